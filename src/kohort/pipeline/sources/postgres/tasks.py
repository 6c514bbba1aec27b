"""
The tasks that read a store: whole logs, and ranges of offsets.

A large log is split by offsets, and small ones share a task. Each task has a connection of its own, on the machine of its
executor. A log keeps its id when another broker takes it over, so a read goes on. The id of a topic that is created again is
another one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources.directory import packed
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import Positions, TopicPartition
from kohort.pipeline.sources.postgres.connection import opened
from kohort.pipeline.sources.postgres.logs import Reader, StoredLog, chosen_logs
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import LogState, RangeTask, check_loss, cut_records

if TYPE_CHECKING:
    from kohort.storage.postgres.connect import Connection

_PARTS_MAX = 256
"""Parts of one log."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """
    A part of a log.

    Attributes:
        log: `start` and `end` are those of the part, and its size in bytes.
        is_first: it begins with the log, whose start may lie inside a batch: then it has all of that batch.
        is_last: it ends with the log, where that ends when it is read, and tells the end.
    """

    log: StoredLog
    is_first: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class StoreTask(RangeTask):
    """
    A task that reads parts of logs.

    Attributes:
        is_whole: they are parts of logs that are read as a whole: what was deleted since the plan is left out.
    """

    task: int
    path: str
    stretches: Sequence[Stretch]
    fail_on_data_loss: bool = field(default=True, kw_only=True)
    is_whole: bool = field(default=False, kw_only=True)

    @property
    def size_bytes(self) -> int:
        return sum(one.log.size_bytes for one in self.stretches)

    @property
    def places(self) -> Collection[TopicPartition]:
        return {one.log.place for one in self.stretches}

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of the parts.

        Raises:
            ConfigError: the store cannot be read; or records were deleted since the plan, and that is an error. Otherwise they
                are a row of kind damage.
        """
        with opened(self.path) as connection:
            for one in self.stretches:
                yield from self._read(connection, one, decoder, note)

    def _read(
        self, connection: "Connection", stretch: Stretch, decoder: Decoder, note: Note
    ) -> Iterator[pa.RecordBatch]:
        log, reader = stretch.log, Reader(connection, stretch.log)
        at, end = log.start, log.end
        while at < end:
            piece = reader.piece(at, end)
            if piece is None or piece.start > at:
                until = end if piece is None else min(piece.start, end)
                yield from self._lost(log, at, until, decoder, is_deleted=piece is None)
                if piece is None:
                    return
            begin = 0 if stretch.is_first else log.start
            yield from decoder.decode(piece.data, log.segment, Slice(begin, end, has_tail=True))
            note.add(bytes_read=len(piece.data))
            at = piece.following
            if stretch.is_last and at >= end == log.end:
                # A record that compaction has removed meanwhile has a later record with its key, maybe behind the planned end.
                end = max(end, piece.end)
        if stretch.is_last:
            # An empty segment at the end gives the row.
            yield from decoder.decode(b"", replace(log, start=end).segment)

    def _lost(
        self, log: StoredLog, at: int, until: int, decoder: Decoder, *, is_deleted: bool
    ) -> Iterator[pa.RecordBatch]:
        if self.is_whole:
            return
        reason = "its topic was deleted, or created again," if is_deleted else "these records were deleted"
        problem = f"{log.topic}-{log.partition} was to be read from offset {at} to {until}, and {reason} meanwhile"
        if self.fail_on_data_loss:
            raise ConfigError(f"{problem}; option failOnDataLoss=false continues without these records")
        yield from decoder.damage_rows([Corruption(0, 0, problem, at)], log.segment)


def whole_tasks(options: SourceOptions) -> Sequence[StoreTask]:
    """Return the tasks that read whole logs, of about the size in the options. Of the newest records only the ends are read."""
    logs = chosen_logs(options)
    if options.newest:
        logs = [replace(log, start=log.end, size_bytes=0) for log in logs]
    part_bytes = options.task_bytes([log.size_bytes for log in logs])
    stretches = [part for log in logs for part in parts_of(Stretch(log, is_first=True, is_last=True), part_bytes)]
    return _packed(stretches, options, part_bytes, is_whole=True)


def parts_of(stretch: Stretch, part_bytes: int) -> list[Stretch]:
    """Split a log into parts of about a size, by offsets; one that is less than twice as large is one part."""
    log = stretch.log
    count = max(1, min(log.size_bytes // part_bytes, _PARTS_MAX, log.end - log.start))
    bounds = [log.start + (log.end - log.start) * part // count for part in range(count + 1)]
    parts = [
        Stretch(replace(log, start=start, end=end, size_bytes=log.size_bytes // count))
        for start, end in pairwise(bounds)
    ]
    parts[0] = replace(parts[0], is_first=stretch.is_first)
    parts[-1] = replace(parts[-1], is_last=stretch.is_last)
    return parts


def _packed(
    stretches: Sequence[Stretch], options: SourceOptions, pack_bytes: int, *, is_whole: bool
) -> list[StoreTask]:
    packs = packed(stretches, lambda one: one.log.size_bytes, pack_bytes=pack_bytes)
    is_strict = options.fail_on_data_loss
    return [
        StoreTask(task, options.path, pack, fail_on_data_loss=is_strict, is_whole=is_whole)
        for task, pack in enumerate(packs)
    ]


class StoreLogs:
    """`ranges.Logs` of a store."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs: dict[TopicPartition, StoredLog] = {}
        """As of the last `state`. Tasks read these logs, and no others of the same names."""

    def state(self) -> LogState:
        self._logs = {log.place: log for log in chosen_logs(self._options)}
        bounds = {place: (log.start, log.end) for place, log in self._logs.items()}
        ids = {log.topic: log.topic_id for log in self._logs.values() if log.topic_id is not None}
        return LogState(bounds, ids)

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        found = {log.place: log for log in chosen_logs(self._options)}
        for place, log in self._logs.items():
            if place in end and (place not in found or found[place].log_id != log.log_id):
                found[place] = log
        ranges = [self._range(log, start, end) for log in found.values()]
        ranges = [one for one in ranges if one.log.start < one.log.end]
        part_bytes = self._options.task_bytes([one.log.size_bytes for one in ranges])
        stretches = [part for one in ranges for part in parts_of(one, part_bytes)]
        return _packed(stretches, self._options, part_bytes, is_whole=False)

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:
        # By offsets: all offsets of a log count as much.
        there = {place: offset - start.get(place, 0) for place, offset in end.items()}
        sizes = (_share(self._logs[place], offsets) for place, offsets in there.items() if place in self._logs)
        size_bytes = sum(sizes)
        if size_bytes <= bytes_max:
            return end
        return cut_records(start, end, records_max=max(1, sum(there.values()) * bytes_max // size_bytes))

    def _range(self, log: StoredLog, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Stretch:
        begin = start.get(log.place, log.start)
        until = end.get(log.place, begin)
        if self._options.fail_on_data_loss and begin < until:
            check_loss(log.place, log.start, begin)
        is_first = begin <= log.start
        begin = max(begin, log.start)
        size_bytes = _share(log, until - begin)
        return Stretch(replace(log, start=begin, end=until, size_bytes=size_bytes), is_first=is_first)


def _share(log: StoredLog, offsets: int) -> int:
    """Return the approximate size of a part of a log."""
    return log.size_bytes * offsets // max(1, log.end - log.start)
