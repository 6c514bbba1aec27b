"""
Plans: which offsets of which groups are to be moved, and where to. Nothing is written here.

A partition is in a plan because it was named, its topic was named, or, with all topics, because the group has committed in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kohort.cli.groups.offset_files import Exported
from kohort.cli.groups.positions import AtTime, Current, FromPlan, PartitionOffsets, Position, new_offset, wanted_offset
from kohort.cli.groups.reads import committed_offsets, found_group
from kohort.cli.groups.writes import NewOffset
from kohort.cli.topics import reads
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

Topics: TypeAlias = Mapping[str, Sequence[int] | None]
"""Topics by name, with the partitions that are meant; None for all of them."""


class Move(NamedTuple):
    """
    What happens to one partition.

    Attributes:
        old: what was committed, None for nothing.
        note: a sentence when it is not exactly what was asked for.
    """

    partition: TopicPartition
    old: int | None
    new: NewOffset
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """
    What was asked for.

    Attributes:
        topics: None for all that a group has committed in.
    """

    position: Position
    topics: Topics | None


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """
    `TOPIC` or `TOPIC:0,1`, as Kafka's tool takes them.

    Raises:
        ConfigError: the partitions are no numbers, or a topic is named twice.
    """
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        partitions = [number.strip() for number in numbers.split(",")]
        if not topic or (colon and not all(each.isascii() and each.isdecimal() for each in partitions)):
            raise ConfigError(f"--topic {text!r} is not of the form TOPIC or TOPIC:0,1")
        if topic in found:
            raise ConfigError(f"--topic names {topic!r} twice; write {topic}:0,1 for some partitions")
        found[topic] = sorted({int(each) for each in partitions}) if colon else None
    return found


def plan(client: Client, group_id: str, wish: ResetRequest) -> list[Move]:
    """
    The moves of one group, by partition.

    Raises:
        ConfigError: the group has members, a topic or partition does not exist or has no leader, or nothing was committed
            that could be shifted.
    """
    committed = _committed(client, group_id)
    described = _described(client, wish.topics, committed)
    partitions = sorted(_partitions(wish.topics, described, committed))
    starts = reads.offsets(client, described, reads.EARLIEST)
    ends = reads.offsets(client, described, reads.LATEST)
    position = wish.position
    at_time = reads.offsets(client, described, position.timestamp_ms) if isinstance(position, AtTime) else {}
    moves = []
    for each in partitions:
        if each not in starts or each not in ends:
            raise ConfigError(f"{each} has no leader that could be asked for its offsets")
        moves.append(
            _move(position, each, PartitionOffsets(committed.get(each), starts[each], ends[each], at_time.get(each)))
        )
    return moves


def plan_from(client: Client, group_id: str, rows: Sequence[Exported]) -> list[Move]:
    """As `plan`, for offsets out of a file; leader epoch and metadata go with the offset that they belong to."""
    by_partition = {row.topic_partition: row for row in rows}
    topics: dict[str, list[int]] = {}
    for each in sorted(by_partition):
        topics.setdefault(each.topic, []).append(each.partition)
    position = FromPlan({partition: row.offset for partition, row in by_partition.items()})
    return [
        _with_origin(move, by_partition[move.partition])
        for move in plan(client, group_id, ResetRequest(position, topics))
    ]


def committed_partitions(client: Client, group_id: str, topics: Topics | None) -> list[TopicPartition]:
    """Those of a group's partitions that are meant, whether their topics still exist or not."""
    committed = sorted(committed_offsets(client, group_id))
    return [each for each in committed if topics is None or _is_meant(topics, each)]


def _is_meant(topics: Topics, each: TopicPartition) -> bool:
    numbers = topics.get(each.topic, ())
    return numbers is None or each.partition in numbers


def _committed(client: Client, group_id: str) -> dict[TopicPartition, int]:
    group = found_group(client, group_id)
    if group is None:
        return {}
    if not group.is_empty:
        count = len(group.members)
        raise ConfigError(
            f"group {group_id} is {group.state} with {count} member{'' if count == 1 else 's'}; its offsets can be moved"
            " when all of them have left"
        )
    return {each: found.committed_offset for each, found in committed_offsets(client, group_id).items()}


def _described(client: Client, topics: Topics | None, committed: Iterable[TopicPartition]) -> list[Any]:
    if topics is None:
        return reads.existing_topics(client, {each.topic for each in committed})
    return reads.topics(client, topics) if topics else []


def _partitions(
    topics: Topics | None, described: Iterable[Any], committed: Iterable[TopicPartition]
) -> set[TopicPartition]:
    existing = {
        TopicPartition(topic.name, partition.partition_index) for topic in described for partition in topic.partitions
    }
    if topics is None:
        return existing & set(committed)
    named = {TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers or ()}
    for each in sorted(named - existing):
        raise ConfigError(
            f"topic {each.topic} has no partition {each.partition}; see: kohort topics describe {each.topic}"
        )
    return named | {each for each in existing if topics[each.topic] is None}


def _move(position: Position, partition: TopicPartition, standing: PartitionOffsets) -> Move:
    offset = new_offset(position, partition, standing)
    note = None
    if not isinstance(position, Current) and offset != (wanted := wanted_offset(position, partition, standing)):
        side = "before the beginning" if wanted < offset else "behind the end"
        note = f"{partition}: offset {wanted} is {side} of the log; it becomes {offset}"
    return Move(partition, standing.committed, NewOffset(offset), note)


def _with_origin(move: Move, row: Exported) -> Move:
    if move.new.offset != row.offset:
        return move
    return move._replace(new=NewOffset(row.offset, row.leader_epoch, row.metadata))
