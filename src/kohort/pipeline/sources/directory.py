"""
Ranges of the logs in a data directory, which may grow, or of copied segments.

A running broker replaces or deletes segments between the plan and the read. Compaction merges a segment into an earlier one,
which then has the records of both. Retention deletes segments. A topic that was created again has other records in files of
the same names. A read is limited to the offsets that its segment had when it was listed, so that a merged segment gives every
batch once.

Source: Kafka Cleaner.groupSegmentsBySize and LocalLog.replaceSegments (a merged segment has the base offset of the first one,
and gets its name after the old ones were deleted), UnifiedLog.deleteOldSegments.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas, storage
from kohort.pipeline.decode.batches import Corruption, scans
from kohort.pipeline.decode.log import Decoder, damage_row
from kohort.pipeline.decode.log_starts import log_starts
from kohort.pipeline.decode.segment_ends import marks_around
from kohort.pipeline.decode.segments import Segment, by_partition, list_segments, segments_of
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import Positions, TopicPartition
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import LogState, RangeTask, check_loss
from kohort.pipeline.sources.sparse_index import ScannedSegment, SparseIndex
from kohort.pipeline.sources.topic_ids import id_beside

T = TypeVar("T")

_LAST_OFFSET = (1 << 63) - 1
_LISTINGS_MAX = 10
_PARTS_MAX = 256
"""Parts of one segment. Each costs the planning two checksums of batches."""


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """
    A segment as it was listed.

    Attributes:
        until: the base offset of the next segment of the log; None for the newest one.
        topic_id: None if it is unknown.
    """

    segment: Segment
    until: int | None = None
    topic_id: str | None = None

    @property
    def end(self) -> int:
        return _LAST_OFFSET if self.until is None else self.until

    def is_unchanged(self) -> bool:
        """Tell whether the file is still the one that was listed."""
        path, identity = self.segment.path, self.segment.identity
        try:
            return storage.is_remote(path) or not identity or os.stat(path).st_ino == identity
        except FileNotFoundError:
            return False

    def opened(self) -> tuple[Any, Segment] | None:
        """Open the file that has the records of the segment now: its own, or one that it was merged into. None: deleted."""
        there: Segment | None = self.segment
        for _ in range(_LISTINGS_MAX):
            if there is None:
                break
            try:
                return storage.mapped(there.path), there
            except FileNotFoundError:
                there = self._now()
        return None

    def other_topic(self) -> str | None:
        """Return a sentence's end if the topic of the log is another one now."""
        now = None if storage.is_remote(self.segment.path) else id_beside(os.path.dirname(self.segment.path))
        is_other = now is not None and self.topic_id is not None and now != self.topic_id
        return f"its topic was created again (topic id {now})" if is_other else None

    def newest(self) -> Segment | None:
        """Return the newest segment of the log now."""
        return max(self._listed(), default=None)

    def _now(self) -> Segment | None:
        return max((one for one in self._listed() if one.base_offset <= self.segment.base_offset), default=None)

    def _listed(self) -> Iterable[Segment]:
        return segments_of(os.path.dirname(self.segment.path), self.segment.topic, self.segment.partition)


def planned_segments(segments: Sequence[Segment], topic_ids: Mapping[str, str] | None = None) -> list[PlannedSegment]:
    """Return the segments of one or more logs, which are sorted, with the base offsets of their next ones."""
    ids = topic_ids or {}
    return [
        PlannedSegment(one, following.base_offset if following else None, ids.get(one.topic))
        for log in by_partition(segments).values()
        for one, following in zip_longest(log, log[1:])
    ]


def read_whole(decoder: Decoder, planned: PlannedSegment, part: Slice | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment, or of a part of it; none if it was deleted, as in a read after that."""
    if planned.is_unchanged():
        with suppress(FileNotFoundError):
            yield from decoder.decode_file(planned.segment, part)
            return
    found = planned.opened()
    if found is not None:
        data, segment = found
        stretch = part or Slice(planned.segment.base_offset, planned.end, has_tail=True)
        start, end = max(stretch.start, planned.segment.base_offset), min(stretch.end, planned.end)
        # The marks are not used if a batch with their offset is not there.
        yield from decoder.decode(data, segment, replace(stretch, start=start, end=end))
    # The newest segment tells the end of the log.
    if part is None and planned.until is None and (newest := planned.newest()) is not None:
        yield from decoder.segment_row(newest)


def parts_of(planned: PlannedSegment, *, part_bytes: int) -> list[Slice | None]:
    """Return the parts of a segment of about a size, which begin at batches of its index; None stands for the whole one."""
    segment = planned.segment
    count = min(segment.size_bytes // part_bytes, _PARTS_MAX)
    if count < 2 or storage.is_remote(segment.path):
        return [None]
    try:
        data = storage.mapped(segment.path)
    except FileNotFoundError:
        return [None]
    near = (marks_around(segment, data, segment.size_bytes * part // count) for part in range(1, count))
    cuts = list(dict.fromkeys(one for one in near if one is not None))
    parts: list[Slice | None] = []
    for low, high in pairwise([None, *cuts, None]):
        start, begin = (0, None) if low is None else (low[1].offset, low[0])
        end, until = (_LAST_OFFSET, None) if high is None else (high[1].offset, high[1])
        parts.append(Slice(start, end, begin, until, has_tail=high is None))
    return parts if cuts else [None]


def read_slice(
    decoder: Decoder, planned: PlannedSegment, stretch: Slice, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a slice that lie in a segment.

    Raises:
        ConfigError: records were deleted since the plan, and that is an error. Otherwise they are a row of kind damage.
    """
    found = planned.opened()
    start, end = max(stretch.start, planned.segment.base_offset), min(stretch.end, planned.end)
    loss = "its segment was deleted" if found is None else planned.other_topic()
    if loss is not None:
        place = f"{planned.segment.topic}-{planned.segment.partition}"
        problem = f"{place} was to be read from offset {start} to {end}, and {loss} meanwhile"
        if fail_on_data_loss:
            raise ConfigError(f"{problem}; option failOnDataLoss=false continues without these records")
        yield from decoder.damage_rows([Corruption(0, planned.segment.size_bytes, problem, start)], planned.segment)
    elif found is not None:
        data, segment = found
        is_own = segment == planned.segment and planned.is_unchanged()
        # The marks are not used if a batch with their offset is not there.
        yield from decoder.decode(data, segment, stretch if is_own else replace(stretch, start=start, end=end))


@dataclass(frozen=True, slots=True)
class SliceTask(RangeTask):
    """
    A task that reads slices of segments; None stands for a whole segment.

    Attributes:
        is_whole: slices are parts of segments that are read as a whole.
    """

    task: int
    slices: Sequence[tuple[PlannedSegment, Slice | None]]
    fail_on_data_loss: bool = field(default=True, kw_only=True)
    is_whole: bool = field(default=False, kw_only=True)

    @property
    def size_bytes(self) -> int:
        return sum(slice_bytes(one.segment, stretch) for one, stretch in self.slices)

    @property
    def places(self) -> Collection[TopicPartition]:
        return {planned.segment.place for planned, _ in self.slices}

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        for planned, stretch in self.slices:
            if self.is_whole or stretch is None:
                yield from read_whole(decoder, planned, stretch)
            else:
                yield from read_slice(decoder, planned, stretch, fail_on_data_loss=self.fail_on_data_loss)
            note.add(bytes_read=slice_bytes(planned.segment, stretch))


def slice_bytes(segment: Segment, stretch: Slice | None) -> int:
    """Return the approximate number of bytes that a task reads."""
    begin = 0 if stretch is None or stretch.begin is None else stretch.begin.position
    return (segment.size_bytes if stretch is None or stretch.until is None else stretch.until.position) - begin


def whole_tasks(segments: Sequence[PlannedSegment], options: SourceOptions) -> list[SliceTask]:
    """
    Return the tasks that read whole segments, of about the size in the options: a task costs Spark some 30 ms. A segment that
    is twice as large is read in parts, if it has an index. The end of a segment is told by who reads it as a whole.
    """
    part_bytes = options.task_bytes([one.segment.size_bytes for one in segments])
    is_split = schemas.SEGMENT not in options.kinds
    slices = [
        (one, part) for one in segments for part in (parts_of(one, part_bytes=part_bytes) if is_split else [None])
    ]
    return _packed_tasks(slices, options, part_bytes, is_whole=True)


def slice_tasks(slices: Sequence[tuple[PlannedSegment, Slice]], options: SourceOptions) -> list[SliceTask]:
    """Return the tasks that read some slices, of about the size in the options."""
    pack_bytes = options.task_bytes([slice_bytes(one.segment, stretch) for one, stretch in slices])
    return _packed_tasks(slices, options, pack_bytes, is_whole=False)


def _packed_tasks(
    slices: Sequence[tuple[PlannedSegment, Slice | None]], options: SourceOptions, pack_bytes: int, *, is_whole: bool
) -> list[SliceTask]:
    packs = packed(slices, lambda one: slice_bytes(one[0].segment, one[1]), pack_bytes=pack_bytes)
    is_strict = options.fail_on_data_loss
    return [SliceTask(task, pack, fail_on_data_loss=is_strict, is_whole=is_whole) for task, pack in enumerate(packs)]


def packed(pieces: Iterable[T], size_bytes: Callable[[T], int], *, pack_bytes: int) -> list[list[T]]:
    """Return pieces in packs of about `pack_bytes`, in order; a piece is not split, and a pack has at least one."""
    packs: list[list[T]] = []
    filled_bytes = 0
    for piece in pieces:
        size = size_bytes(piece)
        if not packs or filled_bytes + size > pack_bytes:
            packs.append([])
            filled_bytes = 0
        packs[-1].append(piece)
        filled_bytes += size
    return packs


def chosen_segments(options: SourceOptions) -> list[Segment]:
    """
    Return the segments of a directory that the options choose.

    Raises:
        ConfigError: there is no such directory, or it cannot be read.
    """
    segments = list_segments(options.path, topics=options.topics, partitions=options.partitions)
    return [segment for segment in segments if options.matches(*segment.place)]


class DirectoryLogs:
    """`ranges.Logs` of a directory. Scans only the newest segment of each log, and segments where a range begins or ends."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._index = SparseIndex()
        self._topic_ids: dict[str, str] = {}

    def state(self) -> LogState:
        """As in `Logs`. The indexes of topics that were created again since the previous call are dropped."""
        while True:
            logs = self._logs()
            ids = topic_ids_of(logs)
            if changed := [topic for topic, was in self._topic_ids.items() if ids.get(topic, was) != was]:
                self.forget(changed)
            self._topic_ids |= ids
            try:
                starts = log_starts(log[0] for log in logs.values())
                bounds = {place: (starts[place], self._index.of(log[-1]).end_offset) for place, log in logs.items()}
            except FileNotFoundError:
                # The log was deleted, or got a new segment, since it was listed.
                continue
            return LogState(bounds, ids)

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        slices: list[tuple[PlannedSegment, Slice]] = []
        logs, is_strict = self._logs(), self._options.fail_on_data_loss
        # Of the logs that were planned, not of topics that were created again since.
        ids = topic_ids_of(logs) | self._topic_ids
        starts = log_starts(log[0] for log in logs.values())
        for place, segments in logs.items():
            begin = start.get(place, segments[0].base_offset)
            if begin == starts[place] > segments[0].base_offset:
                begin = self._batch_at(segments, begin)
            if is_strict and begin < end.get(place, begin):
                check_loss(place, segments[0].base_offset, begin)
            planned = {one.segment: one for one in planned_segments(segments, ids)}
            chosen = self._slices(segments, begin, end.get(place, begin))
            slices += [(planned[segment], stretch) for segment, stretch in chosen]
        return slice_tasks(slices, self._options)

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:
        logs = self._logs()
        there = {place: self._bytes(logs[place], start, end) for place in end if place in logs}
        total = sum(there.values())
        if total <= bytes_max:
            return end
        # In proportion to the size of each partition.
        parts = {place: -(-size * bytes_max // total) for place, size in there.items()}
        return end | {place: self._cut(logs[place], start, end[place], part) for place, part in parts.items() if part}

    def tails(self) -> list[dict[str, Any]]:
        """Return the unreadable ends of the newest segments, as rows of kind damage."""
        rows: list[dict[str, Any]] = []
        for segments in self._logs().values():
            newest = segments[-1]
            try:
                damage = self._index.of(newest).tail(newest)
            except FileNotFoundError:
                continue
            rows += [damage_row(one, newest) for one in damage]
        return rows

    def scanned(self) -> list[ScannedSegment]:
        """Return how far the newest segments were scanned."""
        return self._index.scanned({segments[-1].path for segments in self._logs().values()})

    def remember(self, scanned: Iterable[ScannedSegment]) -> None:
        """Restore the result of an earlier `scanned`."""
        self._index.remember(scanned)

    def forget(self, topics: Collection[str]) -> None:
        """Drop the indexes of some topics, which were created again."""
        self._index.forget(segment.path for segment in list_segments(self._options.path, topics=topics))

    def _logs(self) -> dict[TopicPartition, list[Segment]]:
        return by_partition(chosen_segments(self._options))

    def _batch_at(self, segments: Sequence[Segment], offset: int) -> int:
        """Return the base offset of the batch that holds an offset; the offset if there is none."""
        segment = max(one for one in segments if one.base_offset <= offset)
        try:
            mark = self._index.of(segment).before(offset + 1)
            data = storage.mapped(segment.path)
        except FileNotFoundError:
            return offset
        for found in scans(data, check_crc=False, begin=0 if mark is None else mark.position):
            holding = found.headers["base_offset"][found.next_offsets > offset]
            if len(holding):
                return min(int(holding[0]), offset)
        return offset

    def _slices(self, segments: Sequence[Segment], start: int, end: int) -> Iterator[tuple[Segment, Slice]]:
        if start >= end:
            return
        for segment, behind in zip(segments, [*segments[1:], None], strict=True):
            until = None if behind is None else behind.base_offset
            if segment.base_offset < end and (until is None or until >= start):
                has_tail = until is not None and start <= until < end
                yield segment, self._slice(segment, until, Slice(start, end, has_tail=has_tail))

    def _slice(self, segment: Segment, until: int | None, stretch: Slice) -> Slice:
        """Add index entries if the range begins or ends within the segment."""
        is_whole = stretch.start <= segment.base_offset and until is not None and until < stretch.end
        if is_whole:
            return stretch
        try:
            index = self._index.of(segment)
        except FileNotFoundError:
            return stretch
        begin, end = index.before(stretch.start), index.not_before(stretch.end)
        return Slice(stretch.start, stretch.end, begin, end, stretch.has_tail)

    def _bytes(self, segments: Sequence[Segment], start: Positions, end: Positions) -> int:
        first = segments[0]
        slices = self._slices(segments, start.get(first.place, first.base_offset), end[first.place])
        return sum(slice_bytes(segment, stretch) for segment, stretch in slices)

    def _cut(self, segments: Sequence[Segment], start: Positions, end: int, bytes_max: int) -> int:
        """Return where to stop in one partition: at a batch, after at least one."""
        first = segments[0]
        begin = start.get(first.place, first.base_offset)
        left = bytes_max
        for segment, stretch in self._slices(segments, begin, end):
            size = slice_bytes(segment, stretch)
            if size <= left:
                left -= size
                continue
            try:
                index = self._index.of(segment)
            except FileNotFoundError:
                return end
            from_position = 0 if stretch.begin is None else stretch.begin.position
            stop = index.stop(position=from_position + left, offset=begin)
            if stop > begin:
                return min(stop, end)
        return end


def topic_ids_of(logs: Mapping[TopicPartition, Sequence[Segment]]) -> dict[str, str]:
    """Return the ids of topics, from the directory of one partition each."""
    directories = {topic: segments[0].path.rpartition("/")[0] for (topic, _), segments in logs.items()}
    local = {topic: path for topic, path in directories.items() if not storage.is_remote(path)}
    return {topic: topic_id for topic, path in local.items() if (topic_id := id_beside(path)) is not None}
