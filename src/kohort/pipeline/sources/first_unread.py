"""
The times when the first unread records behind committed offsets were produced: point lookups in the logs of topics.

A directory is read at the position that the offset index names; a cluster by one small fetch for each offset, a store by one
small statement. Only the batches behind the offset are looked at, usually one. The frames of all batches give the same
(`tables.lag.time_lag`), without the records inside a batch.

A batch counts if a `read_committed` reader gets data of it: no marker, not aborted, and with records left after compaction.
Batches of a transaction are decided by the next marker of their producer; those of an open one count, because it may commit.

The time is that of the record itself: inside a batch its records are read. If they cannot be read, it is the batch's greatest
timestamp, which is not exact.

Source: KIP-98 (the records that an ABORT marker ends); Kafka CompletedFetch (the records that `read_committed` skips).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from kohort.client.cluster import Client
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batch_rows import controls, first_timestamps_ms
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.log_starts import log_starts
from kohort.pipeline.decode.records import parse, windows
from kohort.pipeline.decode.schemas import ABORT
from kohort.pipeline.decode.segment_ends import entry_before
from kohort.pipeline.decode.segments import Segment, by_partition
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.sources import live
from kohort.pipeline.sources.directory import chosen_segments
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.postgres import logs as stored
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.postgres.connection import opened
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL

_PIECE_BATCHES = 64
_FETCH_BYTES = 16 << 10
_FETCH_BYTES_MAX = 4 << 20


class Produced(NamedTuple):
    """The time when a record was produced, and whether it is that of the record itself, not of its batch."""

    at_ms: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class UnreadOf:
    """
    The unread records of a partition.

    Attributes:
        start_offset: of the log.
        has_batch: whether the log has a batch.
        produced: for each committed offset when its first unread record was produced; without those that have none.
    """

    start_offset: int
    has_batch: bool
    produced: Mapping[int, Produced] = field(default_factory=dict)


@dataclass(slots=True)
class FirstUnread:
    """
    Looks for the first unread record in consecutive batches.

    Attributes:
        offset: the committed offset; if it lies below the log start, that.
        produced: when the first unread record was produced, as far as it is known.
    """

    offset: int
    produced: Produced | None = None
    _open: dict[int, list[tuple[int, Produced]]] = field(default_factory=dict)
    """Batches without a marker yet, by producer id: base offset, and when the first unread record was produced."""
    _found_at: int | None = None

    def look(self, found: Scan) -> bool:
        """Look at following batches, and tell whether the record is found."""
        headers = found.headers
        attributes = headers["attributes"].astype(np.int16)
        is_control = (attributes & CONTROL) != 0
        chosen = np.flatnonzero((found.next_offsets > self.offset) & (is_control | (headers["count"] > 0)))
        if not len(chosen):
            return False
        some = found.of(chosen)
        base_offsets = some.headers["base_offset"].tolist()
        times = first_timestamps_ms(some).to_pylist()
        ends = controls(some).to_pylist()
        flags = (attributes[chosen] & (CONTROL | TRANSACTIONAL)).tolist()
        for row, producer_id in enumerate(some.headers["producer_id"].tolist()):
            produced = None if times[row] is None else Produced(times[row])
            if base_offsets[row] < self.offset and not flags[row] & CONTROL:
                # None if compaction has removed the rest of the batch.
                produced = first_inside(some.of([row]), self.offset)
            if self._add(flags[row], base_offsets[row], produced, producer_id, ends[row]):
                return True
        return False

    def _add(self, flags: int, base_offset: int, produced: Produced | None, producer_id: int, end: str | None) -> bool:
        """Look at one batch."""
        if flags & CONTROL:
            decided = self._open.pop(producer_id, [])
            if decided and end != ABORT:
                self._take(*decided[0])
        elif produced is not None and flags & TRANSACTIONAL:
            if self._found_at is None:
                self._open.setdefault(producer_id, []).append((base_offset, produced))
        elif produced is not None:
            self._take(base_offset, produced)
        return self._found_at is not None and all(self._found_at < of[0][0] for of in self._open.values())

    def _take(self, base_offset: int, produced: Produced) -> None:
        if self._found_at is None or base_offset < self._found_at:
            self._found_at, self.produced = base_offset, produced

    def end(self) -> None:
        """End at the end of the log: batches of open transactions count."""
        for waiting in self._open.values():
            self._take(*waiting[0])


def first_inside(batch: Scan, offset: int) -> Produced | None:
    """Return when the first record from an offset on in one batch was produced; None if there is none."""
    for window in windows(batch):
        records = parse(window)
        unread = np.flatnonzero(records.offset >= offset)
        if len(unread):
            return Produced(int(records.timestamp_ms[unread[0]]))
        if records.damage:
            # Unreadable records wait too; their batch tells the latest of their times.
            return Produced(int(batch.headers["max_timestamp"][0]), is_exact=False)
    return None


def first_unread(batches: Iterable[Scan], offset: int) -> Produced | None:
    """Look for the first unread record in the batches from that of the committed offset on, or earlier ones; few are read."""
    search = FirstUnread(offset)
    for found in batches:
        if search.look(found):
            break
    search.end()
    return search.produced


def can_find(path: str) -> bool:
    """Tell whether a source supports lookups: not an object store, whose segments have to be copied first."""
    return live.is_live(path) or is_database(path) or not storage.is_remote(path)


def find_unread(
    options: SourceOptions, committed: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, UnreadOf]:
    """
    Return the unread records of each partition that has a log.

    Args:
        options: of the source; its topics, partitions and kinds are not used.
        committed: the committed offsets of each partition.

    Raises:
        ConfigError: the source cannot be read.
    """
    options = replace(options, topics=frozenset(topic for topic, _ in committed), partitions=None, topics_pattern=None)
    if live.is_live(options.path):
        return _in_cluster(options, committed)
    if is_database(options.path):
        return _in_store(options, committed)
    logs = by_partition(chosen_segments(options))
    wanted = {place: segments for place, segments in logs.items() if place in committed}
    starts = log_starts(segments[0] for segments in wanted.values())
    return {place: _in_segments(wanted[place], committed[place], start) for place, start in starts.items()}


def _in_segments(segments: list[Segment], offsets: Collection[int], start: int) -> UnreadOf:
    produced = {}
    for offset in offsets:
        found = first_unread(batches_from(segments, max(offset, start)), max(offset, start))
        if found is not None:
            # Records before the first local segment are in remote storage.
            is_here = max(offset, start) >= segments[0].base_offset
            produced[offset] = found._replace(is_exact=found.is_exact and is_here)
    return UnreadOf(start, bool(produced) or any(True for _ in batches_from(segments, 0)), produced)


def batches_from(segments: Sequence[Segment], offset: int) -> Iterator[Scan]:
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
    options: SourceOptions, committed: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, UnreadOf]:
    found: dict[TopicPartition, UnreadOf] = {}
    logs = sorted(live.chosen_logs(options), key=lambda log: (log.host, log.port))
    for _, led in groupby(logs, lambda log: (log.host, log.port)):
        listed = [log for log in led if log.place in committed]
        if not listed:
            continue
        with live.open_leader(listed[0], options.security) as client:
            found |= {log.place: _in_log(client, log, committed[log.place]) for log in listed}
    return found


def _in_log(client: Client, log: live.LiveLog, offsets: Collection[int]) -> UnreadOf:
    return _in_bounds(lambda offset: _fetched(client, log, offset), log.start, log.end, offsets)


def _in_store(
    options: SourceOptions, committed: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, UnreadOf]:
    with opened(options.path) as connection:
        return {
            log.place: _in_bounds(
                partial(stored.batches_from, connection, log), log.start, log.end, committed[log.place]
            )
            for log in stored.logs_of(connection, topics=options.topics)
            if log.place in committed
        }


def _in_bounds(batches: Callable[[int], Iterator[Scan]], start: int, end: int, offsets: Collection[int]) -> UnreadOf:
    searches = {one: first_unread(batches(max(one, start)), max(one, start)) for one in offsets}
    produced = {offset: found for offset, found in searches.items() if found is not None}
    return UnreadOf(start, start < end, produced)


def _fetched(client: Client, log: live.LiveLog, offset: int) -> Iterator[Scan]:
    """Yield the batches from an offset to the end of a log, in pieces that become larger."""
    bytes_max = _FETCH_BYTES
    while offset < log.end:
        piece, offset = live.fetch(client, log, offset, bytes_max)
        yield from scans(piece, check_crc=False)
        bytes_max = min(bytes_max * 4, _FETCH_BYTES_MAX)
