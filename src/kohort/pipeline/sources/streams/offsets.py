"""
The offsets of a stream, as its checkpoint holds them: `{"orders": {"0": 812, "id": "7H-SLoYzTTm0vjLA-u3HvA"}}`.

A topic that was deleted and created again has another id, or, if the source has no ids, an end offset below what was read. A
micro-batch that begins such a log again has another id at its end than at its start, or an end below its start.

Source: KIP-516 (topic ids); Kafka UnifiedLog.truncateTo.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.sources.positions import TOPIC_ID, Positions, TopicPartition, from_json, to_json
from kohort.pipeline.sources.ranges import LogState

StreamOffset = dict[str, dict[str, Any]]

_ADVICE = "option failOnDataLoss=false reads the new log from its first offset"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """
    The next offset of each log, and the ids of their topics as far as they are known.

    Attributes:
        topic_ids: by topic name.
    """

    offsets: Positions
    topic_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def end(cls, state: LogState) -> "StreamPosition":
        """Return the position behind all records."""
        return cls({place: end for place, (_, end) in state.bounds.items()}, dict(state.topic_ids))

    @classmethod
    def from_json(cls, told: StreamOffset) -> "StreamPosition":
        """
        Convert from the JSON form of a checkpoint, with or without topic ids.

        Raises:
            ConfigError: another form.
        """
        offsets = from_json(told)
        return cls(offsets, {topic: told[topic][TOPIC_ID] for topic in told if TOPIC_ID in told[topic]})

    def to_json(self) -> StreamOffset:
        """Convert to the JSON form of a checkpoint."""
        told: StreamOffset = dict(to_json(self.offsets))
        for topic, of_partitions in told.items():
            if topic in self.topic_ids:
                told[topic] = {**of_partitions, TOPIC_ID: self.topic_ids[topic]}
        return told

    def begins_again(self, place: TopicPartition, following: "StreamPosition") -> bool:
        """Tell whether the log of a partition at a later position is not the continuation of this one."""
        if place not in self.offsets:
            return False
        is_truncated = following.offsets.get(place, self.offsets[place]) < self.offsets[place]
        return self.has_other_topic(place[0], following.topic_ids) or is_truncated

    def has_other_topic(self, topic: str, topic_ids: Mapping[str, str]) -> bool:
        """Tell whether a topic has another id now."""
        was, now = self.topic_ids.get(topic), topic_ids.get(topic)
        return was is not None and now is not None and was != now

    def begun(self, now: LogState, *, fail_on_data_loss: bool) -> "StreamPosition":
        """
        Return this position in the logs of now: the first offset of logs that are new, or began again. Partitions that their
        topic no longer has are left out.

        Raises:
            ConfigError: a log began again, and that is an error.
        """
        ends = self.end(now)
        offsets = {place: at for place, at in self.offsets.items() if not self.has_other_topic(place[0], now.topic_ids)}
        for place, (first, _) in now.bounds.items():
            begins_again = self.begins_again(place, ends)
            if begins_again and fail_on_data_loss:
                raise ConfigError(self._loss(place, ends))
            if begins_again or place not in offsets:
                offsets[place] = first
        return StreamPosition(offsets, {**self.topic_ids, **now.topic_ids})

    def readable(
        self, planned: "StreamPosition", now: LogState, *, fail_on_data_loss: bool
    ) -> tuple[Positions, Positions]:
        """
        Return what is left to read of a planned micro-batch that begins here: where each log is read from, if not from its
        first offset, and where to.

        Args:
            planned: the end of the micro-batch, which may have been planned before a restart.

        Raises:
            ConfigError: logs were deleted, created again or truncated since, and that is an error.
        """
        begin = {place: at for place, at in self.offsets.items() if not self.begins_again(place, planned)}
        end: Positions = {}
        for place, until in planned.offsets.items():
            if begin.get(place) == until:
                continue
            first, last = now.bounds.get(place, (None, -1))
            is_other = first is None or planned.has_other_topic(place[0], now.topic_ids)
            if (is_other or last < until) and fail_on_data_loss:
                raise ConfigError(_lost(place, begin.get(place), until, None if first is None or is_other else last))
            if not is_other:
                end[place] = min(until, last)
        return begin, end

    def _loss(self, place: TopicPartition, now: "StreamPosition") -> str:
        (topic, partition), at = place, self.offsets[place]
        if self.has_other_topic(topic, now.topic_ids):
            was, is_now = self.topic_ids[topic], now.topic_ids[topic]
            return (
                f"topic {topic} was deleted and created again (topic id {was} before, {is_now} now), and records of the old"
                f" topic after offset {at} of partition {partition} may be lost; {_ADVICE}"
            )
        return (
            f"{topic}-{partition} ends at offset {now.offsets[place]} now, and was read to {at} before: its topic was deleted"
            f" and created again, or the log was truncated; {_ADVICE}"
        )


def _lost(place: TopicPartition, begin: int | None, until: int, last: int | None) -> str:
    problem = "its topic was deleted, or created again" if last is None else f"it ends at {last} now"
    start = "its first offset" if begin is None else f"offset {begin}"
    return (
        f"{place[0]}-{place[1]} was to be read from {start} to {until}, and {problem}; option failOnDataLoss=false continues"
        " without these records"
    )
