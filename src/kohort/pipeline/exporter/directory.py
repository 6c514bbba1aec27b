"""
Follows the logs in the data directory of a broker, while it grows or not.

The end of a log is behind its last whole batch: a directory does not tell the high watermark. Open transactions come from the
headers of batches (`log_ends`), aborted ones from the transaction indexes of the segments.

Source: Kafka LogSegment.collectAbortedTxns, TransactionIndex (the aborted transactions of a fetch); PartitionMetadataFile.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.properties import parse_properties
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.log_starts import log_starts
from kohort.pipeline.decode.segment_ends import entry_before
from kohort.pipeline.decode.segments import Segment, list_segments
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.transaction_files import AbortedTransaction, aborted_in
from kohort.pipeline.exporter.log_ends import LogEnd
from kohort.pipeline.exporter.source import Fetched, Source
from kohort.pipeline.exporter.transactions import OpenProducer
from kohort.pipeline.sources.directory import topic_ids_of
from kohort.pipeline.sources.live import LiveLog
from kohort.pipeline.sources.sparse_index import SparseIndex
from kohort.pipeline.sources.topic_ids import Catalog
from kohort.pipeline.sources.unwritten import META_PROPERTIES, unwritten

PIECE_BYTES = 8 << 20
"""Bytes of a log that become rows at once."""
_SCAN_BATCHES = 64
_LISTINGS_MAX = 3

Place: TypeAlias = tuple[str, int]


class Directory(Source):
    """A data directory. `LogEnd` and the index of a log are dropped with the log."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._segments: dict[Place, list[Segment]] = {}
        self._ends: dict[Place, LogEnd] = {}
        self._topic_ids: dict[str, str] = {}
        self._index = SparseIndex()
        self._catalog = Catalog(path)

    def close(self) -> None:
        """Nothing is open between two calls."""

    def cluster_id(self) -> str:
        try:
            text = (Path(self.path) / META_PROPERTIES).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""
        return parse_properties(text).get("cluster.id", "")

    def logs(self, topics: Collection[str] | None = None) -> list[LiveLog]:
        found = self._listed(topics)
        ids = topic_ids_of(found)
        for topic, topic_id in ids.items():
            if self._topic_ids.get(topic, topic_id) != topic_id:
                self._forget({place for place in self._ends if place[0] == topic})
        if topics is None:
            self._forget(self._ends.keys() - found.keys())
            self._topic_ids = ids
        else:
            self._topic_ids |= ids
        starts = log_starts(segments[0] for segments in found.values())
        logs = []
        for place in found:
            try:
                end = self._end(place, found)
            except (ConfigError, OSError) as exc:
                self.problems.append(str(exc))
                continue
            logs.append(LiveLog(*place, starts[place], end, "", 0, ids.get(place[0])))
        empty = (
            (place, topic_id) for place, topic_id in unwritten(self.path, self._catalog).items() if place not in found
        )
        logs += [
            LiveLog(*place, 0, 0, "", 0, topic_id) for place, topic_id in empty if topics is None or place[0] in topics
        ]
        self._segments |= found
        self.dropped = sum(one.dropped for one in self._ends.values())
        return logs

    def at_rest(self) -> str | None:
        return self.path if self.is_at_rest({place: one.end_offset for place, one in self._ends.items()}) else None

    def read(self, log: LiveLog, at: int, decoder: Decoder) -> tuple[list[pa.RecordBatch], int | None]:
        segments = self._segments[log.topic, log.partition]
        number = _holding(segments, at)
        segment = segments[number]
        following = segments[number + 1].base_offset if number + 1 < len(segments) else log.end
        try:
            index = self._index.of(segment)
            if at >= index.end_offset:
                # The rest of the segment has no batch; the next segment is read by the next call.
                return [], following if following > at else None
            begin = index.before(at)
            position = 0 if begin is None else begin.position
            stop = min(index.stop(position=position + PIECE_BYTES, offset=at), following)
            rows = list(decoder.decode_file(segment, Slice(at, stop, begin, index.not_before(stop))))
        except FileNotFoundError:
            # Compacted or deleted since it was listed; the next poll lists it anew.
            return [], None
        return rows, stop

    def fetch(self, log: LiveLog, at: int, *, bytes_max: int, is_committed: bool) -> Fetched:
        segments = self._segments[log.topic, log.partition]
        until = self._ends[log.topic, log.partition].stable_end if is_committed else log.end
        for segment in segments[_holding(segments, at) :]:
            for found in _batches(segment, at):
                base_offsets, following = found.headers["base_offset"].tolist(), found.next_offsets.tolist()
                first = next((row for row, offset in enumerate(following) if offset > at), None)
                if first is None:
                    continue
                begin, ends = int(found.positions[first]), found.ends.tolist()
                last = first
                while last + 1 < len(ends) and ends[last + 1] - begin <= bytes_max and base_offsets[last + 1] < until:
                    last += 1
                if base_offsets[first] >= until:
                    return Fetched(b"", at)
                aborted = _aborted(segments, at, following[last]) if is_committed else []
                return Fetched(found.data[begin : ends[last]].tobytes(), following[last], aborted)
        return Fetched(b"", at)

    def stable_ends(self, logs: Collection[LiveLog]) -> dict[tuple[str, int], int]:
        ends = ((log, self._ends.get((log.topic, log.partition))) for log in logs)
        return {(log.topic, log.partition): log.end if end is None else end.stable_end for log, end in ends}

    def open_transactions(self, logs: Collection[LiveLog]) -> list[OpenProducer]:
        return [
            OpenProducer(TopicPartition(log.topic, log.partition), producer_id, one.last_ms)
            for log in logs
            for producer_id, one in self._ends[log.topic, log.partition].open.items()
        ]

    def _leader(self, log: LiveLog) -> Hashable:
        return log.topic, log.partition

    def _listed(self, topics: Collection[str] | None) -> dict[Place, list[Segment]]:
        segments = list_segments(self.path, topics=topics)
        return {place: list(some) for place, some in groupby(segments, lambda one: (one.topic, one.partition))}

    def _end(self, place: Place, found: dict[Place, list[Segment]]) -> int:
        """Bring the end of a log up to date. Its segments are listed anew if one was removed meanwhile."""
        end = self._ends.setdefault(place, LogEnd())
        for attempt in range(_LISTINGS_MAX):
            try:
                end.update(found[place])
                break
            except FileNotFoundError:
                if attempt + 1 == _LISTINGS_MAX:
                    raise
                found[place] = list_segments(self.path, topics={place[0]}, partitions={place[1]}) or found[place]
        return end.end_offset

    def _forget(self, places: Collection[Place]) -> None:
        for place in places:
            del self._ends[place]
            self._index.forget(segment.path for segment in self._segments.pop(place, ()))


def _holding(segments: Sequence[Segment], offset: int) -> int:
    """Return the number of the segment that holds an offset; the first one if the offset is before it."""
    return max((number for number, one in enumerate(segments) if one.base_offset <= offset), default=0)


def _batches(segment: Segment, offset: int) -> Iterator[Scan]:
    """Yield the batches of a segment from an offset on, and maybe some before it; none if the file was removed."""
    try:
        data = mapped(segment.path)
    except FileNotFoundError:
        return
    entry = entry_before(segment, data, offset)
    begin = 0 if entry is None else entry.position
    yield from scans(data, check_crc=False, begin=begin, batches_max=_SCAN_BATCHES)


def _aborted(segments: Sequence[Segment], offset: int, upper: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records from an offset to before another one."""
    found: list[AbortedTransaction] = []
    for segment in segments[_holding(segments, offset) :]:
        for one in aborted_in(segment):
            if one.last_offset >= offset and one.first_offset < upper:
                found.append(one)
            if one.last_stable_offset >= upper:
                return found
    return found
