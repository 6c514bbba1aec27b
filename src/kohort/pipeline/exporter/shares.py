"""
The state of share groups, replayed from `__share_group_state` as it grows.

Source: Apache Kafka 4.2.1, ShareCoordinatorShard; KIP-932, KIP-1226 (share lag is end offset - start offset - delivery complete
count).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.model.limits import EXPORTED_PARTITIONS_MAX
from kohort.pipeline.tables.shares.share_history import INITIALISED, SNAPSHOT, UPDATE, ShareHistory


class SharePartition(NamedTuple):
    """A partition that a share group has a start offset in. `done`: records from the start offset on that are complete."""

    group: str
    topic_id: str
    partition: int
    start_offset: int
    done: int


class Initialised(NamedTuple):
    """A partition in which a group coordinator knows that a share group has a state."""

    group: str
    topic_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class Shares:
    """
    All partitions of share groups.

    Attributes:
        dropped: records of partitions beyond `EXPORTED_PARTITIONS_MAX`, of share coordinators and of group coordinators.
    """

    dropped: int = 0
    _found: dict[tuple[str, str, int], tuple[int, ShareHistory]] = field(default_factory=dict)
    _initialised: dict[str, tuple[int, Sequence[Initialised]]] = field(default_factory=dict)
    _count: int = 0

    @property
    def names(self) -> dict[str, str]:
        """Names of topics by their ids, as far as group coordinators tell them."""
        return {one.topic_id: one.topic for _, places in self._initialised.values() for one in places}

    def without_state(self) -> Iterator[Initialised]:
        """Yield the partitions whose state is missing: the log of their share coordinator is not there."""
        for _, places in self._initialised.values():
            yield from (one for one in places if (one.group, one.topic_id, one.partition) not in self._found)

    def __iter__(self) -> Iterator[SharePartition]:
        for key, (_, history) in self._found.items():
            if history.state is not None and history.state["start_offset"] >= 0:
                yield SharePartition(
                    *key, history.state["start_offset"], max(history.state["delivery_complete_count"], 0)
                )

    def replay(self, row: Mapping[str, Any]) -> None:
        """Apply one row (`share_history.INPUT_COLUMNS`), in the order of the log."""
        if row["record_type"] not in (SNAPSHOT, UPDATE):
            return
        key = (row["group"], row["topic_id"], row["partition"])
        if key not in self._found:
            if len(self._found) >= EXPORTED_PARTITIONS_MAX:
                self.dropped += 1
                return
            self._found[key] = row["log_partition"], ShareHistory(*key)
        history = self._found[key][1]
        for _ in history.replay(dict(row)):
            pass
        if history.state is None:
            del self._found[key]

    def initialise(self, row: Mapping[str, Any]) -> None:
        """Apply one row of the log of a group coordinator, in the order of the log."""
        if row["record_type"] != INITIALISED:
            return
        self._count -= len(self._initialised.pop(row["group"], (0, ()))[1])
        if row["tombstone"]:
            return
        places = [
            Initialised(row["group"], one["topicId"], one["topicName"], partition)
            for one in json.loads(row["value"])["initializedTopics"]
            for partition in one["partitions"]
        ]
        if self._count + len(places) > EXPORTED_PARTITIONS_MAX:
            self.dropped += 1
            return
        self._initialised[row["group"]] = row["log_partition"], places
        self._count += len(places)

    def forget_initialised(self, log_partition: int) -> None:
        """Forget everything that was read from the log of a group coordinator: it began again."""
        self._initialised = {group: one for group, one in self._initialised.items() if one[0] != log_partition}
        self._count = sum(len(places) for _, places in self._initialised.values())

    def forget(self, log_partition: int) -> None:
        """Forget everything that was read from one partition of the log: it began again."""
        self._found = {key: one for key, one in self._found.items() if one[0] != log_partition}
