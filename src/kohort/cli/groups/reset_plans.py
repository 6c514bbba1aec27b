"""
Plans of offset resets: which offsets of which groups move, and where to. This module writes nothing.

A plan contains the partitions that are named, the partitions of a named topic, or, with all topics, the partitions with a
committed offset of the group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kohort.cli.groups.offset_files import FileOffset
from kohort.cli.groups.queries import fetch_committed, find_group
from kohort.cli.groups.reset_targets import PartitionOffsets, ResetTarget
from kohort.cli.groups.share_groups import SHARE, start_offsets
from kohort.cli.topics import queries
from kohort.client.cluster import Client
from kohort.client.commits import NewOffset
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.numbers import INT32_MAX, is_number

Topics: TypeAlias = Mapping[str, Sequence[int] | None]
"""Topics by name, with partition numbers; None for all partitions."""


class Move(NamedTuple):
    """
    The reset of one partition.

    Attributes:
        old: the committed offset; None if there is none.
        note: a sentence for the user if the new offset differs from the requested one.
    """

    partition: TopicPartition
    old: int | None
    new: NewOffset
    note: str | None = None


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """
    Parse `TOPIC` or `TOPIC:0,1`, as Kafka's tool does.

    Raises:
        ConfigError: a partition is not a number, or a topic is named twice.
    """
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        partitions = [number.strip() for number in numbers.split(",")]
        if not topic or (colon and not all(is_number(each, 0, INT32_MAX) for each in partitions)):
            raise ConfigError(f"--topic {text!r} does not have the form TOPIC or TOPIC:0,1")
        if topic in found:
            raise ConfigError(f"--topic names {topic!r} twice; write {topic}:0,1 for some partitions")
        found[topic] = sorted({int(each) for each in partitions}) if colon else None
    return found


def plan_reset(client: Client, group_id: str, target: ResetTarget, topics: Topics | None) -> list[Move]:
    """
    Plan the reset of one group. Moves are sorted by partition.

    Args:
        topics: None for all partitions in which the group has committed.

    Raises:
        ConfigError: the group has members, a topic or partition does not exist or has no leader, or a partition to shift
            has no committed offset.
    """
    committed = _committed(client, group_id)
    described = _described(client, topics, committed)
    partitions = sorted(_partitions(topics, described, committed))
    starts = queries.offsets(client, described, queries.EARLIEST)
    ends = queries.offsets(client, described, queries.LATEST)
    at_time = {} if target.timestamp_ms is None else queries.offsets(client, described, target.timestamp_ms)
    moves = []
    for each in partitions:
        if each not in starts or each not in ends:
            raise ConfigError(f"{each} has no leader, so its offsets are unknown; try again when it has one")
        offsets = PartitionOffsets(committed.get(each), starts[each], ends[each], at_time.get(each))
        new, requested = target.offset(each, offsets), target.requested(each, offsets)
        side = "before the start" if requested < new else "after the end"
        note = f"{each}: offset {requested} is {side} of the log; {new} is used" if new != requested else None
        moves.append(Move(each, offsets.committed, NewOffset(new), note))
    return moves


def plan_import(client: Client, group_id: str, rows: Sequence[FileOffset]) -> list[Move]:
    """Plan an import. Leader epoch and metadata are kept if the offset is committed unchanged."""
    by_partition = {row.topic_partition: row for row in rows}
    topics: dict[str, list[int]] = {}
    for each in sorted(by_partition):
        topics.setdefault(each.topic, []).append(each.partition)
    target = ResetTarget(lambda partition, _: by_partition[partition].offset)
    moves = plan_reset(client, group_id, target, topics)
    return [_with_origin(move, by_partition[move.partition]) for move in moves]


def committed_partitions(client: Client, group_id: str, topics: Topics | None) -> list[TopicPartition]:
    """Return the group's committed partitions within `topics`, also of topics that do not exist any more."""
    committed = sorted(fetch_committed(client, group_id))
    return [each for each in committed if topics is None or _is_selected(topics, each)]


def _is_selected(topics: Topics, each: TopicPartition) -> bool:
    numbers = topics.get(each.topic, ())
    return numbers is None or each.partition in numbers


def _committed(client: Client, group_id: str) -> dict[TopicPartition, int]:
    group = find_group(client, group_id)
    if group is None:
        return {}
    if not group.is_empty:
        count = len(group.members)
        raise ConfigError(
            f"group {group_id} is {group.state} with {count} member{'' if count == 1 else 's'}; stop its members"
            " before its offsets are moved"
        )
    if group.type == SHARE:
        starts = start_offsets(client, group_id)
        return {each: found.offset for each, found in starts.items() if found.offset is not None}
    return {each: found.committed_offset for each, found in fetch_committed(client, group_id).items()}


def _described(client: Client, topics: Topics | None, committed: Iterable[TopicPartition]) -> list[Any]:
    if topics is None:
        return queries.existing_topics(client, {each.topic for each in committed})
    return queries.topics(client, topics) if topics else []


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


def _with_origin(move: Move, row: FileOffset) -> Move:
    if move.new.offset != row.offset:
        return move
    return move._replace(new=NewOffset(row.offset, row.leader_epoch, row.metadata))
