"""
When the first unread record behind committed offsets was produced: point lookups in the logs of topics.

A directory is read at the position that the offset index names; a cluster by one small fetch for each offset. Only what
`decode.unread` needs is read, usually one batch header. The frames of all batches give the same (`tables.lag.time_lag`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from kohort.client.cluster import Client
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.segment_ends import entry_before
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.unread import FirstUnread, first_unread
from kohort.pipeline.sources import live
from kohort.pipeline.sources.cluster import chosen_logs
from kohort.pipeline.sources.directory import chosen_segments
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition

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
    found: dict[TopicPartition, UnreadOf] = {}
    for place, segments in groupby(chosen_segments(options), lambda one: (one.topic, one.partition)):
        if place in committed:
            found[place] = _in_segments(list(segments), committed[place], at_ms)
    return found


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
    logs = sorted(chosen_logs(options), key=lambda log: (log.host, log.port))
    for _, led in groupby(logs, lambda log: (log.host, log.port)):
        listed = [log for log in led if (log.topic, log.partition) in committed]
        if not listed:
            continue
        with live.open_leader(listed[0], options.security) as client:
            for log in listed:
                found[log.topic, log.partition] = _in_log(client, log, committed[log.topic, log.partition], at_ms)
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
