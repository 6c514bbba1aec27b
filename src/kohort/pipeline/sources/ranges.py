"""
Ranges of logs in any source: the interface of directories and clusters, and the tasks over ranges.

A range ends before its end offset. Consecutive ranges give every batch once, see `decode.slices`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.compact import LatestByKey
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import WINDOW_BYTES
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import EARLIEST, LATEST, Positions, TopicPartition
from kohort.pipeline.sources.progress import Note


class RangeTask(ABC):
    """The input of one task. Picklable. `task` is its number."""

    task: int

    @property
    def size_bytes(self) -> int:
        """The approximate size; 0 if it is unknown."""
        return 0

    @property
    def offsets(self) -> int:
        """The number of offsets; 0 if it is unknown."""
        return 0

    @property
    @abstractmethod
    def places(self) -> Collection[TopicPartition]:
        """The logs that the task reads."""

    @abstractmethod
    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range, and note the bytes of log that were read."""


def decoder(options: SourceOptions, *, window_bytes: int = WINDOW_BYTES) -> Decoder:
    """Return the decoder for the options of a source."""
    return Decoder(
        kinds=options.kinds,
        schema=schemas.subset(options.columns),
        window_bytes=window_bytes,
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        fold=LatestByKey() if options.compact else None,
    )


def read_task(options: SourceOptions, task: RangeTask, *, window_bytes: int = WINDOW_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range: the body of every task, of a batch and of a stream."""
    decoding = decoder(options, window_bytes=window_bytes)
    note = Note(options.progress_directory, task.task)
    for batch in chain(task.read(decoding, note), decoding.rest()):
        note.add(rows=batch.num_rows)
        yield batch


class LogState(NamedTuple):
    """
    The logs of a source at an instant.

    Attributes:
        bounds: first offset and end offset of each log.
        topic_ids: the id of each topic, as far as the source knows it.
    """

    bounds: Mapping[TopicPartition, tuple[int, int]]
    topic_ids: Mapping[str, str]


class Logs(Protocol):
    """The logs of a source."""

    def state(self) -> LogState:
        """
        Return the current bounds of each log, and the topic ids.

        Raises:
            ConfigError: the source cannot be read.
        """
        ...

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        """
        Return the tasks that read each log from `start` (by default its first offset) to before `end`.

        Raises:
            ConfigError: the source cannot be read, or no longer holds `start`.
        """
        ...

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:
        """
        Return an end not beyond `end`, after about `bytes_max` bytes, but at least one batch per log with data.

        Raises:
            ConfigError: the source does not know the size of its records.
        """
        ...


def resolve(asked: int | Positions, bounds: Mapping[TopicPartition, tuple[int, int]], *, otherwise: int) -> Positions:
    """
    Resolve an option to offsets.

    Args:
        asked: `EARLIEST`, `LATEST`, or offsets, which may be these constants, too.
        otherwise: the constant for partitions that are not named.
    """
    named = {} if isinstance(asked, int) else asked
    word = asked if isinstance(asked, int) else otherwise
    found = {place: named.get(place, word) for place in bounds}
    words = {EARLIEST: 0, LATEST: 1}
    return {place: bounds[place][words[at]] if at in words else at for place, at in found.items()}


def check_loss(place: TopicPartition, first: int, start: int) -> None:
    """
    Check for deleted records.

    Raises:
        ConfigError: records between `start` and the `first` remaining offset were deleted.
    """
    if first > start:
        topic, partition = place
        raise ConfigError(
            f"{topic}-{partition} begins at offset {first} now, and was to be read from {start}: the records between were"
            " deleted; option failOnDataLoss=false continues without them"
        )


def cut_records(start: Positions, end: Positions, *, records_max: int) -> Positions:
    """
    Return an end not beyond `end`, after about `records_max` offsets, in proportion to the size of each partition.

    The limit is approximate: batches are not split, and offsets without a record count.
    """
    there = {place: offset - start.get(place, 0) for place, offset in end.items()}
    total = sum(there.values())
    if total <= records_max:
        return end
    return {place: end[place] - there[place] + -(-there[place] * records_max // total) for place in end}
