"""
The committed offsets of all groups, replayed from `__consumer_offsets` as it grows.

Each partition of a group has its last commits, as Burrow keeps them, without those of open and aborted transactions. A
tombstone removes the partition. State is held by key, so a log that was compacted gives the same state as the whole log.

`tables.offsets.offset_commits` decides which commits take effect. Burrow's window is as in `tables.burrow.evaluator`.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.model.limits import EXPORTED_PARTITIONS_MAX, EXPORTED_PENDING_COMMITS_MAX
from kohort.pipeline.decode.schemas import MARKER
from kohort.pipeline.tables.burrow.evaluator import INTERVALS, PAUSES, Commit
from kohort.pipeline.tables.offsets.offset_commits import is_commit_marker, replaces

_SEPARATOR = "\x00"


class GroupPartition(NamedTuple):
    """A partition of a topic that a group commits to."""

    group: str
    topic: str
    partition: int


@dataclass(slots=True)
class Committed:
    """
    The commits of one partition of a group: those of the window, the newest last. `order` is the offset in the log.

    Attributes:
        pauses_ms: the longest pause between the last commits, and between those before: of half of `PAUSES` commits each.
    """

    log_partition: int
    window: deque[Commit] = field(default_factory=lambda: deque(maxlen=INTERVALS))
    pauses_ms: tuple[int, int] = (0, 0)
    _count: int = 0

    def add(self, commit: Commit, *, has_gap: bool) -> None:
        """Add a commit; `has_gap` if commits before it were left out."""
        if self._count >= PAUSES // 2:
            self.pauses_ms, self._count = (0, self.pauses_ms[0]), 0
        if self.window and not has_gap:
            pause_ms = commit.timestamp_ms - self.timestamp_ms
            self.pauses_ms = max(pause_ms, self.pauses_ms[0]), self.pauses_ms[1]
        self._count += 1
        self.window.append(commit)

    @property
    def offset(self) -> int:
        return self.window[-1].offset

    @property
    def timestamp_ms(self) -> int:
        return self.window[-1].timestamp_ms


@dataclass(slots=True)
class Commits:
    """
    Committed offsets by group and partition.

    Attributes:
        found: the partitions with a committed offset.
        counts: commits that took effect, by group.
        dropped: commits of partitions beyond `EXPORTED_PARTITIONS_MAX`, and pending ones beyond their limit.
    """

    found: dict[GroupPartition, Committed] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    _pending: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=dict)
    _pending_count: int = 0

    def replay(self, rows: Iterable[Mapping[str, Any]], ends: Mapping[tuple[str, int], int]) -> None:
        """
        Apply rows (`offset_commits.FATE_COLUMNS`) of one log partition, in the order of the log.

        Args:
            ends: log end offsets before these commits, for the lag at each of them; a missing one is unknown.
        """
        for row in rows:
            if row["kind"] == MARKER:
                self._end_transaction(row, ends)
            elif row["transactional"]:
                self._hold(dict(row))
            else:
                self._apply(row, row["timestamp_ms"], ends)

    def forget(self, log_partition: int) -> None:
        """Forget everything that was read from one partition of the log: it began again."""
        for key in [key for key, one in self.found.items() if one.log_partition == log_partition]:
            self.found.pop(key, None)
        for of_producer in [one for one in self._pending if one[0] == log_partition]:
            self._pending_count -= len(self._pending.pop(of_producer))

    def _hold(self, row: dict[str, Any]) -> None:
        if self._pending_count >= EXPORTED_PENDING_COMMITS_MAX:
            self.dropped += 1
            return
        self._pending.setdefault((row["log_partition"], row["producer_id"]), []).append(row)
        self._pending_count += 1

    def _end_transaction(self, row: Mapping[str, Any], ends: Mapping[tuple[str, int], int]) -> None:
        held = self._pending.pop((row["log_partition"], row["producer_id"]), [])
        self._pending_count -= len(held)
        if is_commit_marker(row["control"]):
            for one in held:
                self._apply(one, row["timestamp_ms"], ends)

    def _apply(self, row: Mapping[str, Any], at_ms: int, ends: Mapping[tuple[str, int], int]) -> None:
        key = GroupPartition(row["group"], row["topic"], row["partition"])
        known = self.found.get(key)
        order = row["log_offset"]
        if known is not None and known.window and not replaces(order, known.window[-1].order):
            return
        if row["tombstone"]:
            self.found.pop(key, None)
            self._drop_pending(key, row["log_partition"])
            return
        self.counts[key.group] += 1
        if known is None:
            if len(self.found) >= EXPORTED_PARTITIONS_MAX:
                self.dropped += 1
                return
            known = self.found[key] = Committed(row["log_partition"])
        end = ends.get((key.topic, key.partition))
        lag = None if end is None else max(end - row["offset"], 0)
        known.add(Commit(row["offset"], at_ms, lag, order), has_gap=row.get("has_gap", False))

    def _drop_pending(self, key: GroupPartition, log_partition: int) -> None:
        """Drop pending commits before a tombstone: the commit with the greatest log offset is the current one."""
        for producer, held in list(self._pending.items()):
            if producer[0] == log_partition:
                kept = [one for one in held if GroupPartition(one["group"], one["topic"], one["partition"]) != key]
                self._pending_count -= len(held) - len(kept)
                self._pending[producer] = kept


def newest_rows(batch: pa.RecordBatch, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """
    Yield the rows of a batch of offset commits that the state needs: all in transactions, and the last ones of each key.

    A log of millions of commits is reduced before its rows become Python objects. `counts` gets the commits that are left out,
    and `has_gap` tells the rows before which there may be one.
    """
    is_plain = ~batch.column("transactional").to_numpy(zero_copy_only=False).astype(np.bool_)
    plain = batch.filter(pa.array(is_plain))
    text = pc.cast(plain.column("partition"), pa.string())
    keys = pc.binary_join_element_wise(plain.column("group"), plain.column("topic"), text, _SEPARATOR)
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    to_come = np.empty(len(codes), np.int64)
    to_come[order] = np.searchsorted(ordered, ordered, side="right") - np.arange(len(codes))
    is_chosen, has_gap = ~is_plain, np.zeros(len(is_plain), np.bool_)
    is_chosen[is_plain], has_gap[is_plain] = to_come <= INTERVALS, to_come == INTERVALS
    chosen = pa.array(is_chosen)
    left_out = batch.filter(pc.and_not(pc.invert(chosen), pc.fill_null(batch.column("tombstone"), False)))
    for counted in pc.value_counts(left_out.column("group")).to_pylist():
        counts[counted["values"]] += counted["counts"]
    yield from batch.append_column("has_gap", pa.array(has_gap)).filter(chosen).to_pylist()
