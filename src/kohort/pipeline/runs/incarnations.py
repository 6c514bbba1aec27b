"""
Logs that began again since they were read: their topic was deleted and created again under the same name, or they were
truncated below what was read.

The rows that were read stay as the history of an incarnation that has ended. The new log is read from its first offset, as the
next incarnation (`tables.incarnations`). This holds for logs of topics. A coordinator's log that began again is an error: its
state cannot be continued.

Source: KIP-516 (topic ids); Kafka UnifiedLog.truncateTo.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.schemas import BATCH
from kohort.pipeline.runs.state import RunState
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.streams.offsets import StreamPosition
from kohort.pipeline.tables.incarnations import INCARNATION

Bounds = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EndedIncarnation:
    """
    An incarnation of a log that has ended.

    Attributes:
        position: the offset up to which it was read.
        bounds: first and end offset of the new log; None if there is none.
        is_same_topic: the log was truncated; its topic is the same.
    """

    topic: str
    partition: int
    position: int
    bounds: tuple[int, int] | None
    is_same_topic: bool

    def __str__(self) -> str:
        partition, read = f"{self.topic}-{self.partition}", f"was read to offset {self.position}"
        if self.bounds is None:
            return f"{partition} no longer exists since its topic was created again; it {read}"
        if self.is_same_topic:
            return f"{partition} ends at {self.bounds[1]}, and {read} before: it was truncated, and is read again"
        return f"{partition} was created again, and ends at {self.bounds[1]}; the previous log {read}"


def changed_topics(state: RunState, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics whose id changed since they were read."""
    return {topic for topic, was in state.topic_ids.items() if topic_ids.get(topic, was) != was}


def limited(
    bounds: Bounds, topic_ids: Mapping[str, str], state: RunState, until: StreamPosition
) -> tuple[Bounds, Mapping[str, str]]:
    """
    Return bounds and topic ids as of an earlier end of the logs.

    A topic that was created again after that end is left out: its old log has nothing left to read, and its new log is read
    later. Offsets that were read already are within the bounds.
    """
    later = {topic for topic in topic_ids if until.has_other_topic(topic, topic_ids)}
    found = {}
    for place, (first, end) in bounds.items():
        if place in until.offsets and place[0] not in later:
            at = max(until.offsets[place], state.positions.get(place, 0), first)
            # A log that is shorter than what was read of it began again.
            found[place] = (first, min(at, end))
    return found, {topic: topic_id for topic, topic_id in topic_ids.items() if topic not in later}


def find_ended(state: RunState, bounds: Bounds, topic_ids: Mapping[str, str]) -> list[EndedIncarnation]:
    """
    Return the incarnations that have ended since a state.

    Raises:
        ConfigError: a coordinator's log began again.
    """
    changed = changed_topics(state, topic_ids)
    cut = {place for place, position in state.positions.items() if bounds.get(place, (0, position))[1] < position}
    # Without topic ids, a log that ends too early means that the topic was created again, with all its logs.
    known = {topic for topic in topic_ids if topic in state.topic_ids}
    changed |= {topic for topic, _ in cut} - known
    _check(state, bounds, (place for place in state.positions if place in cut or place[0] in changed))
    return [
        EndedIncarnation(*place, position, bounds.get(place), place[0] not in changed)
        for place, position in sorted(state.positions.items())
        if place in cut or place[0] in changed
    ]


def _check(state: RunState, bounds: Bounds, places: Iterator[TopicPartition]) -> None:
    for place in sorted(place for place in places if place[0] in INTERNAL_TOPICS):
        end = f"ends at offset {bounds[place][1]}" if place in bounds else "is gone"
        raise ConfigError(
            f"{place[0]}-{place[1]} {end}, and was read to {state.positions[place]} before: it is another log now;"
            " begin anew with --anew"
        )


def resumed(state: RunState, ended: Collection[EndedIncarnation]) -> RunState:
    """Return the state to continue from: logs that began again are read from their first offset."""
    places = {(one.topic, one.partition) for one in ended}
    positions = {place: offset for place, offset in state.positions.items() if place not in places}
    counts = {place: state.incarnations.get(place, 0) + 1 for place in places}
    return replace(state, positions=positions, incarnations={**state.incarnations, **counts})


def first_rows(
    ended: Collection[EndedIncarnation], state: RunState, began_ms: Mapping[str, int]
) -> list[dict[str, Any]]:
    """
    Return the rows of kind batch that mark the start of new incarnations.

    Args:
        state: as `resumed` returns it.
        began_ms: when the logs of each topic began again.
    """
    return [
        {
            "kind": BATCH,
            "log_topic": one.topic,
            "log_partition": one.partition,
            "log_offset": None if one.bounds is None else one.bounds[0],
            "next_offset": None if one.bounds is None else one.bounds[0],
            "timestamp_ms": began_ms[one.topic],
            "producer_id": -1,
            "transactional": False,
            "is_control": False,
            "record_count": 0,
            INCARNATION: state.incarnations[one.topic, one.partition],
        }
        for one in ended
    ]
