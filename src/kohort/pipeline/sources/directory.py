"""Ranges of the logs in a data directory, which may grow, or of copied segments."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from kohort.pipeline.decode import storage
from kohort.pipeline.decode.log import Decoder, damage_row
from kohort.pipeline.decode.segments import Segment, list_segments
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import Positions, TopicPartition
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import LogState, RangeTask, check_loss
from kohort.pipeline.sources.segment_reads import PlannedSegment, planned_segments, read_slice
from kohort.pipeline.sources.sparse_index import ScannedSegment, SparseIndex
from kohort.pipeline.sources.topic_ids import id_beside


class SliceTask(RangeTask):
    """A task that reads slices of segments."""

    def __init__(
        self, task: int, slices: tuple[tuple[PlannedSegment, Slice], ...], *, fail_on_data_loss: bool = True
    ) -> None:
        super().__init__(task, sum(slice_bytes(one.segment, stretch) for one, stretch in slices))
        self.slices = slices
        self.fail_on_data_loss = fail_on_data_loss

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        for planned, stretch in self.slices:
            for batch in read_slice(decoder, planned, stretch, fail_on_data_loss=self.fail_on_data_loss):
                note.add(rows=batch.num_rows)
                yield batch
            note.add(bytes_read=slice_bytes(planned.segment, stretch))


def slice_bytes(segment: Segment, stretch: Slice) -> int:
    """Return the approximate number of bytes that a task reads."""
    begin = 0 if stretch.begin is None else stretch.begin.position
    return (segment.size_bytes if stretch.until is None else stretch.until.position) - begin


def chosen_segments(options: SourceOptions) -> list[Segment]:
    """
    Return the segments of a directory that the options choose.

    Raises:
        ConfigError: there is no such directory, or it cannot be read.
    """
    segments = list_segments(options.path, topics=options.topics, partitions=options.partitions)
    return [segment for segment in segments if options.matches(segment.topic)]


class DirectoryLogs:
    """`ranges.Logs` of a directory. Scans only the newest segment of each log, and segments where a range begins or ends."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._index = SparseIndex()
        self._topic_ids: dict[str, str] = {}

    def state(self) -> LogState:
        """As `bounds`. The indexes of topics that were created again since the previous call are dropped."""
        while True:
            logs = self._logs()
            ids = topic_ids_of(logs)
            if changed := [topic for topic, was in self._topic_ids.items() if ids.get(topic, was) != was]:
                self.forget(changed)
            self._topic_ids |= ids
            try:
                bounds = {place: (segments[0].base_offset, self._end(segments)) for place, segments in logs.items()}
            except FileNotFoundError:
                # The log was deleted, or got a new segment, since it was listed.
                continue
            return LogState(bounds, ids)

    def bounds(self) -> Mapping[TopicPartition, tuple[int, int]]:
        return self.state().bounds

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        slices: list[tuple[PlannedSegment, Slice]] = []
        logs, is_strict = self._logs(), self._options.fail_on_data_loss
        # Of the logs that were planned, not of topics that were created again since.
        ids = topic_ids_of(logs) | self._topic_ids
        for place, segments in logs.items():
            begin = start.get(place, segments[0].base_offset)
            if is_strict and begin < end.get(place, begin):
                check_loss(place, segments[0].base_offset, begin)
            planned = {one.segment: one for one in planned_segments(segments, ids)}
            chosen = self._slices(segments, begin, end.get(place, begin))
            slices += [(planned[segment], stretch) for segment, stretch in chosen]
        task_bytes = self._options.task_bytes([slice_bytes(one.segment, stretch) for one, stretch in slices])
        packs = enumerate(_packed(slices, task_bytes))
        return [SliceTask(task, tuple(pack), fail_on_data_loss=is_strict) for task, pack in packs]

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
        options = self._options
        found = chosen_segments(options)
        return {place: list(segments) for place, segments in groupby(found, lambda one: (one.topic, one.partition))}

    def _end(self, segments: Sequence[Segment]) -> int:
        return self._index.of(segments[-1]).end_offset

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
        place = (first.topic, first.partition)
        slices = self._slices(segments, start.get(place, first.base_offset), end[place])
        return sum(slice_bytes(segment, stretch) for segment, stretch in slices)

    def _cut(self, segments: Sequence[Segment], start: Positions, end: int, bytes_max: int) -> int:
        """Return where to stop in one partition: at a batch, after at least one."""
        first = segments[0]
        begin = start.get((first.topic, first.partition), first.base_offset)
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


def _packed(
    slices: Sequence[tuple[PlannedSegment, Slice]], pack_bytes: int
) -> list[list[tuple[PlannedSegment, Slice]]]:
    """Packs of about `pack_bytes`, one for each task; at least one slice. A task costs Spark some 30 ms whatever it reads."""
    packs: list[list[tuple[PlannedSegment, Slice]]] = []
    filled_bytes = pack_bytes
    for planned, stretch in slices:
        size = slice_bytes(planned.segment, stretch)
        if not packs or filled_bytes + size > pack_bytes:
            packs.append([])
            filled_bytes = 0
        packs[-1].append((planned, stretch))
        filled_bytes += size
    return packs
