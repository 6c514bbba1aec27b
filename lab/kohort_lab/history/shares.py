"""
The progress of a share group in one partition, offset by offset, and the records of the share coordinator.

Source: Kafka SharePartition, ShareCoordinatorShard; KIP-932, KIP-1226.
"""

from dataclasses import dataclass, field
from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kohort_lab.history import values
from kohort_lab.history.world import World

Row = dict[str, Any]

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
_NAMES = {AVAILABLE: "available", ACKNOWLEDGED: "acknowledged", ARCHIVED: "archived"}
_UPDATES_PER_SNAPSHOT = 4
_STATE_PARTITIONS = "ShareGroupStatePartitionMetadata"


@dataclass(slots=True)
class SharePartition:
    """
    Attributes:
        offsets: state and delivery count of each delivered offset from the start offset on.
    """

    world: World
    group: str
    topic: str
    partition: int
    start_offset: int = -1
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    snapshot_epoch: int = -1
    written_at_ms: int = 0
    complete_count: int = -1
    _updates: int = 0

    def act(self) -> None:
        """Deliver some records and acknowledge, release or reject them; or delete the state."""
        if self.snapshot_epoch < 0:
            self._initialise()
            return
        rng = self.world.rng
        end = self.world.logs[self.topic, self.partition].next_offset
        first = max(self.start_offset, 0)
        last = min(end, first + 8) - 1
        if rng.random() < 0.05:
            self._delete()
        elif last >= first:
            self._deliver(first, last)

    def row(self, *, end_offset: int) -> Row | None:
        """The row of `share_state`."""
        if self.snapshot_epoch < 0:
            return None
        done = max(self.complete_count, 0)
        return {
            "group": self.group,
            "topic": self.topic,
            "topic_id": self.world.topic_id(self.topic),
            "partition": self.partition,
            "start_offset": self.start_offset if self.start_offset >= 0 else None,
            "end_offset": end_offset,
            "lag": max(end_offset - self.start_offset - done, 0) if self.start_offset >= 0 else None,
            "delivery_complete_count": self.complete_count,
            "batches": [
                {"first_offset": first, "last_offset": last, "state": _NAMES[state], "deliveries": count}
                for first, last, state, count in self._runs(self.offsets)
            ],
            "state_epoch": 1,
            "leader_epoch": 0,
            "written_at_ms": self.written_at_ms,
        }

    def _initialise(self) -> None:
        fields = {"topicId": self.world.topic_id(self.topic), "topicName": self.topic, "partitions": [self.partition]}
        value = {"initializingTopics": [], "initializedTopics": [fields], "deletingTopics": []}
        self.world.write(CONSUMER_OFFSETS, [values.record(_STATE_PARTITIONS, {"groupId": self.group}, value)])
        self._snapshot()

    def _delete(self) -> None:
        key = {"groupId": self.group, "topicId": self.world.topic_id(self.topic), "partition": self.partition}
        self.world.write(SHARE_GROUP_STATE, [values.record("ShareSnapshot", key, None)])
        self.snapshot_epoch = self.start_offset = self.complete_count = -1
        self.offsets = {}

    def _deliver(self, first: int, last: int) -> None:
        rng = self.world.rng
        touched: dict[int, tuple[int, int]] = {}
        for offset in range(first, last + 1):
            state, count = self.offsets.get(offset, (AVAILABLE, 0))
            if state == AVAILABLE and rng.random() < 0.7:
                touched[offset] = (rng.choice((AVAILABLE, ACKNOWLEDGED, ACKNOWLEDGED, ARCHIVED)), count + 1)
        self.offsets |= touched
        self.start_offset = first
        while self.offsets.get(self.start_offset, (AVAILABLE, 0))[0] != AVAILABLE:
            del self.offsets[self.start_offset]
            self.start_offset += 1
        self.complete_count = sum(state != AVAILABLE for state, _ in self.offsets.values())
        self._updates += 1
        if self._updates % _UPDATES_PER_SNAPSHOT == 0:
            self._snapshot()
        else:
            self._write(
                "ShareUpdate", {offset: one for offset, one in touched.items() if offset >= self.start_offset}, {}
            )

    def _snapshot(self) -> None:
        self.snapshot_epoch += 1
        now_ms = self.world.now_ms
        self._write(
            "ShareSnapshot", self.offsets, {"stateEpoch": 1, "createTimestamp": now_ms, "writeTimestamp": now_ms}
        )

    def _write(self, name: str, offsets: dict[int, tuple[int, int]], more: Row) -> None:
        key = {"groupId": self.group, "topicId": self.world.topic_id(self.topic), "partition": self.partition}
        batches = [
            {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}
            for first, last, state, count in self._runs(offsets)
        ]
        value: Row = {"snapshotEpoch": self.snapshot_epoch, "leaderEpoch": 0, "startOffset": self.start_offset}
        value |= {"stateBatches": batches} | more
        value |= {"deliveryCompleteCount": self.complete_count} if self.complete_count >= 0 else {}
        self.written_at_ms = self.world.now_ms
        self.world.write(SHARE_GROUP_STATE, [values.record(name, key, value)])

    @staticmethod
    def _runs(offsets: dict[int, tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        """Adjacent offsets with the same state and delivery count as one batch."""
        runs: list[tuple[int, int, int, int]] = []
        for offset, (state, count) in sorted(offsets.items()):
            if runs and runs[-1][1:] == (offset - 1, state, count):
                runs[-1] = (runs[-1][0], offset, state, count)
            else:
                runs.append((offset, offset, state, count))
        return runs
