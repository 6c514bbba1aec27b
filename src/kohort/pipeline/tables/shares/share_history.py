"""
The state of a share group in one partition, replayed record by record: a plain class without Spark.

The share coordinator writes a snapshot, then updates with the changes, then a new snapshot. An update belongs to the snapshot
epoch that it names. Deliveries below the start offset are complete.

Source: Apache Kafka 4.2.1, ShareCoordinatorShard, ShareGroupOffset, PersisterStateBatchCombiner; KIP-932, KIP-1226.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = dict[str, Any]

INPUT_COLUMNS = (
    "kind",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "group",
    "topic_id",
    "partition",
    "tombstone",
    "record_type",
    "value",
)
"""Columns that a history reads, of `kind` coordinator of `__share_group_state`."""

SNAPSHOT, UPDATE = "ShareSnapshot", "ShareUpdate"
INITIALISED = "ShareGroupStatePartitionMetadata"
"""The record of a group coordinator that names the partitions in which a group has a state."""
STATES = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""RecordState by id; ACQUIRED is never written, ARCHIVING while a record is copied to the dead-letter topic."""
_UNKNOWN = -1


class StateBatch(NamedTuple):
    """A range of offsets with one state: first and last offset, state id, delivery count."""

    first: int
    last: int
    state: int
    deliveries: int


@dataclass(slots=True)
class ShareHistory:
    """
    One partition of one share group.

    Attributes:
        state: the newest value; None if there is none or it was deleted.
    """

    group: str
    topic_id: str
    partition: int
    state: Row | None = None

    def replay(self, record: Row) -> Iterator[Row]:
        value = None if record["tombstone"] else json.loads(record["value"])
        if record["record_type"] == SNAPSHOT:
            self.state = None if value is None else self._snapshot(value)
        elif value is not None and self.state is not None and value["snapshotEpoch"] == self.state["snapshot_epoch"]:
            self.state = self._updated(self.state, value, record["timestamp_ms"])
        return iter(())

    def finish(self) -> Iterator[Row]:
        if self.state is not None:
            batches = [
                {
                    "first_offset": first,
                    "last_offset": last,
                    "state": STATES.get(state, str(state)),
                    "deliveries": count,
                }
                for first, last, state, count in self.state["batches"]
            ]
            yield {
                "group": self.group,
                "topic_id": self.topic_id,
                "partition": self.partition,
                **self.state,
                "batches": batches,
            }

    @staticmethod
    def _snapshot(value: Row) -> Row:
        return {
            "snapshot_epoch": value["snapshotEpoch"],
            "state_epoch": value["stateEpoch"],
            "leader_epoch": value["leaderEpoch"],
            "start_offset": value["startOffset"],
            "delivery_complete_count": value.get("deliveryCompleteCount", _UNKNOWN),
            "written_at_ms": value["writeTimestamp"],
            "batches": combined((), _batches(value), start_offset=value["startOffset"]),
        }

    @staticmethod
    def _updated(state: Row, value: Row, at_ms: int) -> Row:
        start_offset = state["start_offset"] if value["startOffset"] == _UNKNOWN else value["startOffset"]
        leader_epoch = state["leader_epoch"] if value["leaderEpoch"] == _UNKNOWN else value["leaderEpoch"]
        return state | {
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": value.get("deliveryCompleteCount", _UNKNOWN),
            "written_at_ms": at_ms,
            "batches": combined(state["batches"], _batches(value), start_offset=start_offset),
        }


def _batches(value: Row) -> list[StateBatch]:
    return [
        StateBatch(one["firstOffset"], one["lastOffset"], one["deliveryState"], one["deliveryCount"])
        for one in value["stateBatches"]
    ]


def combined(
    before: Sequence[StateBatch], update: Sequence[StateBatch], *, start_offset: int
) -> tuple[StateBatch, ...]:
    """
    Combine both lists into disjoint batches from `start_offset` on, by ascending offset; equal neighbours are joined.

    Where they overlap, the greater delivery count wins, then the greater state, then the update.
    """
    edges = sorted({edge for one in (*before, *update) for edge in (one.first, one.last + 1)} | {start_offset})
    found: list[StateBatch] = []
    for first, after in pairwise(edges):
        if first < start_offset:
            continue
        here = [one for one in (*before, *update) if one.first <= first and one.last >= after - 1]
        if not here:
            continue
        best = max(here, key=lambda one: (one.deliveries, one.state))
        previous = found[-1] if found else None
        if previous is not None and (previous.last + 1, *previous[2:]) == (first, *best[2:]):
            found[-1] = previous._replace(last=after - 1)
        else:
            found.append(StateBatch(first, after - 1, best.state, best.deliveries))
    return tuple(found)
