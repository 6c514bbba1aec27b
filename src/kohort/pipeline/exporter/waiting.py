"""
The oldest unread record of each committed offset: when it was produced. So the time lag is exact, without samples of log ends.

One small fetch for each committed offset that lags behind, again when the offset changes. Transaction markers and records of
aborted transactions do not wait for anybody; records of an open transaction do. Inside a batch the record itself is looked at.

Source: Kafka CompletedFetch (the records that `read_committed` skips); `tables.lag.time_lag` has the same rules.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.batch_rows import controls
from kohort.pipeline.decode.batches import Scan, scan
from kohort.pipeline.decode.records import parse, windows
from kohort.pipeline.decode.schemas import ABORT
from kohort.pipeline.exporter.source import FAILURES, Source
from kohort.pipeline.sources.live import LiveLog
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from kohort.wire.columnar.vectors import Bools

FETCHES_MAX = 5_000
"""Fetches of one poll. Further offsets keep what is known, and are looked at in the next poll."""
_FETCHES_OF_OFFSET_MAX = 16
_FETCH_BYTES = 16 << 10


class Waiting(NamedTuple):
    """A committed offset of a log."""

    place: TopicPartition
    offset: int


class FirstUnread(NamedTuple):
    """
    The search for the first unread record.

    Attributes:
        produced_ms: its timestamp; None if there is none before `searched_to`.
        searched_to: where the search goes on; with `produced_ms`, not beyond the record.
        is_open: the record may be of an open transaction, and wait for nobody once that is aborted.
    """

    produced_ms: int | None
    searched_to: int
    is_open: bool = False
    topic_id: str | None = None

    def is_of(self, log: LiveLog) -> bool:
        """Tell whether the result still holds: not after the record was deleted, or the topic was created again."""
        return self.topic_id == log.topic_id and (self.produced_ms is None or self.searched_to >= log.start)


@dataclass(slots=True)
class WaitingRecords:
    """
    The first unread records of all committed offsets that lag behind; forgotten when the offset moves, the record is deleted,
    or the topic was created again.
    """

    _known: dict[Waiting, FirstUnread] = field(default_factory=dict)

    def refresh(
        self,
        source: Source,
        logs: Mapping[tuple[str, int], LiveLog],
        wanted: Collection[Waiting],
        stable_ends: Mapping[tuple[str, int], int],
    ) -> None:
        """
        Search for the records of new offsets, and forget those of other offsets than `wanted`.

        Args:
            stable_ends: last stable offsets; transactions before them have ended.
        """
        self._known = {one: self._known[one] for one in wanted if one in self._known}
        fetches = 0
        for one in wanted:
            log = logs.get(one.place)
            known = self._known.get(one)
            if known is not None and log is not None and not known.is_of(log):
                del self._known[one]
                known = None
            is_known = known is not None and known.produced_ms is not None and not known.is_open
            if log is None or source.is_down(log) or fetches >= FETCHES_MAX or is_known:
                continue
            at = max(one.offset if known is None else known.searched_to, log.start)
            if known is None:
                self._known[one] = FirstUnread(None, at, topic_id=log.topic_id)
            stable_end = stable_ends.get(one.place, log.end)
            try:
                for _ in range(_FETCHES_OF_OFFSET_MAX):
                    if at >= log.end:
                        break
                    fetches += 1
                    found = first_unread(source, log, at, stable_end)
                    is_done = found.produced_ms is not None or found.searched_to <= at
                    at = found.searched_to
                    self._known[one] = found._replace(topic_id=log.topic_id)
                    if is_done:
                        break
            except FAILURES as exc:
                source.failed(exc, log)

    def is_all_read(self, place: TopicPartition, offset: int, *, end: int) -> bool:
        """Tell whether no record from an offset on waits, as far as it is known."""
        found = self._known.get(Waiting(place, offset))
        return offset >= end or (found is not None and found.produced_ms is None and found.searched_to >= end)

    def time_lag_ms(self, place: TopicPartition, offset: int, *, end: int, at_ms: int) -> int | None:
        """Return how long the first unread record from an offset on has waited; 0 if there is none, None if it is unknown."""
        if self.is_all_read(place, offset, end=end):
            return 0
        found = self._known.get(Waiting(place, offset))
        if found is None or found.produced_ms is None or found.produced_ms < 0:
            return None
        return max(at_ms - found.produced_ms, 0)


def first_unread(source: Source, log: LiveLog, at: int, stable_end: int) -> FirstUnread:
    """
    Fetch once, and look for the first record that waits.

    Raises:
        ConfigError, CorruptError, WireError, OSError: the log cannot be read, or its leader has moved.
    """
    is_committed = at < stable_end
    piece, following, aborted = source.fetch(log, at, bytes_max=_FETCH_BYTES, is_committed=is_committed)
    if not piece:
        return FirstUnread(None, at)
    found = scan(piece, check_crc=False)
    waits = _waits(found, aborted)
    for window in windows(found.of(waits)):
        records = parse(window)
        unread = np.flatnonzero(records.offset >= at)
        if len(unread):
            offset = int(records.offset[unread[0]])
            return FirstUnread(int(records.timestamp_ms[unread[0]]), offset, is_open=not is_committed)
        if records.damage:
            # Unreadable records wait too; their batch tells the latest of their times.
            return FirstUnread(int(window.headers["max_timestamp"][0]), at, is_open=not is_committed)
    return FirstUnread(None, following)


def _waits(found: Scan, aborted: Sequence[Any]) -> Bools:
    """Tell which batches have records for `read_committed` readers. Source: Kafka CompletedFetch.nextFetchedRecord."""
    control = (found.headers["attributes"] & CONTROL) != 0
    transactional = (found.headers["attributes"] & TRANSACTIONAL) != 0
    waits: Bools = ~control & (found.headers["count"] > 0)
    if not aborted:
        return waits
    to_come = sorted(aborted, key=lambda one: -int(one.first_offset))
    markers = controls(found).to_pylist()
    inside: set[int] = set()
    for batch, next_offset in enumerate(found.next_offsets.tolist()):
        while to_come and to_come[-1].first_offset < next_offset:
            inside.add(to_come.pop().producer_id)
        producer_id = int(found.headers["producer_id"][batch])
        if control[batch] and markers[batch] == ABORT:
            inside.discard(producer_id)
        elif transactional[batch] and producer_id in inside:
            waits[batch] = False
    return waits
