"""
When the first unread record behind committed offsets was produced: point lookups in the logs of topics.

A directory is read at the position that the offset index names; a cluster by one small fetch for each offset. Only the batch
headers behind the offset are looked at, usually one. The frames of all batches give the same (`tables.lag.time_lag`).

A batch counts if a `read_committed` reader gets data of it: no marker, not aborted, and with records left after compaction.
Batches of a transaction are decided by the next marker of their producer; those of an open one count, because it may commit.

If the committed offset is the first of the batch, the time is that of the batch's first record; inside a batch it is the
batch's greatest timestamp.

Source: KIP-98 (the records that an ABORT marker ends); Kafka CompletedFetch (the records that `read_committed` skips).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from kohort.client.cluster import Client
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batch_rows import controls, first_timestamps_ms
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.schemas import ABORT
from kohort.pipeline.decode.segment_ends import entry_before
from kohort.pipeline.decode.segments import Segment, by_partition
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.sources import live
from kohort.pipeline.sources.directory import chosen_segments
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL

_PIECE_BATCHES = 64
_FETCH_BYTES = 16 << 10
_FETCH_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class UnreadOf:
    """
    The unread records of a partition.

    Attributes:
        start_offset: of the log; None if the log has batches, but none up to the instant.
        has_batch: whether the log has a batch.
        produced_at_ms: for each committed offset when its first unread record was produced; without those that have none.
    """

    start_offset: int | None
    has_batch: bool
    produced_at_ms: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class FirstUnread:
    """
    Looks for the first unread record in consecutive batches.

    Attributes:
        offset: the committed offset.
        at_ms: later batches are ignored.
        produced_at_ms: when the first unread record was produced, as far as it is known.
        has_later: a batch was ignored because it is later.
    """

    offset: int
    at_ms: int
    produced_at_ms: int | None = None
    has_later: bool = False
    _open: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Batches without a marker yet, by producer id: base offset, and when the first unread record was produced."""
    _found_at: int | None = None

    def look(self, found: Scan) -> bool:
        """Look at following batches, and tell whether the record is found."""
        headers = found.headers
        attributes = headers["attributes"].astype(np.int16)
        is_control = (attributes & CONTROL) != 0
        is_later = headers["max_timestamp"].astype(np.int64) > self.at_ms
        is_unread = found.next_offsets > self.offset
        self.has_later |= bool((is_later & is_unread).any())
        chosen = np.flatnonzero(is_unread & ~is_later & (is_control | (headers["count"] > 0)))
        if not len(chosen):
            return False
        some = Scan(found.data, found.positions[chosen], headers[chosen], mapped=found.mapped)
        base_offsets = some.headers["base_offset"].astype(np.int64)
        is_whole = base_offsets >= self.offset
        greatest_ms = some.headers["max_timestamp"].astype(np.int64)
        first_ms = first_timestamps_ms(some).fill_null(-1).to_numpy(zero_copy_only=False)
        times = np.where(is_whole & (first_ms >= 0), first_ms, greatest_ms).tolist()
        ends = controls(some).to_pylist()
        flags = (attributes[chosen] & (CONTROL | TRANSACTIONAL)).tolist()
        rows = zip(flags, base_offsets.tolist(), times, some.headers["producer_id"].tolist(), ends, strict=True)
        return any(self._add(*row) for row in rows)

    def _add(self, flags: int, base_offset: int, at_ms: int, producer_id: int, end: str | None) -> bool:
        """Look at one batch."""
        if flags & CONTROL:
            decided = self._open.pop(producer_id, [])
            if decided and end != ABORT:
                self._take(*decided[0])
        elif flags & TRANSACTIONAL:
            if self._found_at is None:
                self._open.setdefault(producer_id, []).append((base_offset, at_ms))
        else:
            self._take(base_offset, at_ms)
        return self._found_at is not None and all(self._found_at < of[0][0] for of in self._open.values())

    def _take(self, base_offset: int, at_ms: int) -> None:
        if self._found_at is None or base_offset < self._found_at:
            self._found_at, self.produced_at_ms = base_offset, at_ms

    def end(self) -> None:
        """End at the end of the log: batches of open transactions count."""
        for waiting in self._open.values():
            self._take(*waiting[0])


def first_unread(batches: Iterable[Scan], offset: int, *, at_ms: int) -> FirstUnread:
    """Look for the first unread record in the batches from that of the committed offset on, or earlier ones; few are read."""
    search = FirstUnread(offset, at_ms)
    for found in batches:
        if search.look(found):
            break
    search.end()
    return search


def can_find(path: str) -> bool:
    """Tell whether a source supports lookups: not an object store, whose segments have to be copied first."""
    return live.is_live(path) or not storage.is_remote(path)


def find_unread(
    options: SourceOptions, committed: Mapping[TopicPartition, Collection[int]], *, at_ms: int
) -> dict[TopicPartition, UnreadOf]:
    """
    Return the unread records of each partition that has a log.

    Args:
        options: of the source; its topics, partitions and kinds are not used.
        committed: the committed offsets of each partition.
        at_ms: later batches are ignored.

    Raises:
        ConfigError: the source cannot be read.
    """
    options = replace(options, topics=frozenset(topic for topic, _ in committed), partitions=None, topics_pattern=None)
    if live.is_live(options.path):
        return _in_cluster(options, committed, at_ms)
    logs = by_partition(chosen_segments(options))
    return {place: _in_segments(logs[place], committed[place], at_ms) for place in logs if place in committed}


def _in_segments(segments: list[Segment], offsets: Collection[int], at_ms: int) -> UnreadOf:
    searches = [first_unread(_from(segments, offset), offset, at_ms=at_ms) for offset in offsets]
    produced_at_ms = _produced(searches)
    has_batch = is_past = bool(produced_at_ms)
    for found in () if is_past else _from(segments, 0):
        has_batch = True
        is_past = bool((found.headers["max_timestamp"] <= at_ms).any())
        if is_past:
            break
    return UnreadOf(segments[0].base_offset if is_past else None, has_batch, produced_at_ms)


def _from(segments: list[Segment], offset: int) -> Iterator[Scan]:
    """Yield the batches from an offset on, and maybe some before it."""
    first = max((at for at, one in enumerate(segments) if one.base_offset <= offset), default=0)
    for number, segment in enumerate(segments[first:]):
        try:
            data = mapped(segment.path)
        except FileNotFoundError:
            # Deleted by retention since it was listed.
            continue
        entry = entry_before(segment, data, offset) if number == 0 else None
        begin = 0 if entry is None else entry.position
        for found in scans(data, check_crc=False, begin=begin, batches_max=_PIECE_BATCHES):
            if len(found.positions):
                yield found


def _in_cluster(
    options: SourceOptions, committed: Mapping[TopicPartition, Collection[int]], at_ms: int
) -> dict[TopicPartition, UnreadOf]:
    found: dict[TopicPartition, UnreadOf] = {}
    logs = sorted(live.chosen_logs(options), key=lambda log: (log.host, log.port))
    for _, led in groupby(logs, lambda log: (log.host, log.port)):
        listed = [log for log in led if log.place in committed]
        if not listed:
            continue
        with live.open_leader(listed[0], options.security) as client:
            found |= {log.place: _in_log(client, log, committed[log.place], at_ms) for log in listed}
    return found


def _in_log(client: Client, log: live.LiveLog, offsets: Collection[int], at_ms: int) -> UnreadOf:
    searches = [first_unread(_fetched(client, log, max(one, log.start)), one, at_ms=at_ms) for one in offsets]
    is_past = not any(one.has_later and one.produced_at_ms is None for one in searches) or any(
        (one.headers["max_timestamp"] <= at_ms).any() for one in _fetched(client, log, log.start)
    )
    return UnreadOf(log.start if is_past else None, log.start < log.end, _produced(searches))


def _produced(searches: Iterable[FirstUnread]) -> dict[int, int]:
    return {one.offset: one.produced_at_ms for one in searches if one.produced_at_ms is not None}


def _fetched(client: Client, log: live.LiveLog, offset: int) -> Iterator[Scan]:
    """Yield the batches from an offset to the end of a log, in pieces that become larger."""
    bytes_max = _FETCH_BYTES
    while offset < log.end:
        piece, offset = live.fetch(client, log, offset, bytes_max)
        yield from scans(piece, check_crc=False)
        bytes_max = min(bytes_max * 4, _FETCH_BYTES_MAX)
