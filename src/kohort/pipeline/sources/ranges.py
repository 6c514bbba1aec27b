"""
Ranges of logs, wherever these are: what a reader of new data asks of a directory or a cluster, and what its tasks are given.

A range is from an offset to before another. Ranges that follow each other give every batch once, see `decode.slices`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kohort.model.errors import ConfigError
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.sources.positions import EARLIEST, LATEST, Positions, TopicPartition
from kohort.pipeline.sources.progress import Note


class RangeTask(InputPartition, ABC):  # type: ignore[misc]
    """What one task reads. Picklable; `task` numbers it, `size_bytes` is about how much it is, 0 where that is not known."""

    def __init__(self, task: int, size_bytes: int = 0) -> None:
        super().__init__(task)
        self.task = task
        self.size_bytes = size_bytes

    @abstractmethod
    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        """Its rows."""


class Logs(Protocol):
    """The logs of a source."""

    def bounds(self) -> dict[TopicPartition, tuple[int, int]]:
        """
        Of each partition the first offset and the one that the next record gets, now.

        Raises:
            ConfigError: the source cannot be read.
        """
        ...

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        """
        What to read of each partition from `start` (its first offset where it is not in there) to before `end`.

        Raises:
            ConfigError: the source cannot be read, or no longer holds `start`.
        """
        ...

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:
        """
        An end not behind `end`, with about `bytes_max` bytes before it, but something wherever there is something.

        Raises:
            ConfigError: the source does not know how many bytes its records are.
        """
        ...


def resolve(asked: int | Positions, bounds: Mapping[TopicPartition, tuple[int, int]], *, otherwise: int) -> Positions:
    """
    The offsets that an option stands for.

    Args:
        asked: `EARLIEST`, `LATEST` or offsets, which may be those words, too.
        otherwise: one of the words, for partitions that are not named.
    """
    named = {} if isinstance(asked, int) else asked
    word = asked if isinstance(asked, int) else otherwise
    found = {place: named.get(place, word) for place in bounds}
    words = {EARLIEST: 0, LATEST: 1}
    return {place: bounds[place][words[at]] if at in words else at for place, at in found.items()}


def check_loss(place: TopicPartition, first: int, start: int) -> None:
    """
    Raises:
        ConfigError: records between `start` and the `first` that is left are gone.
    """
    if first > start:
        topic, partition = place
        raise ConfigError(
            f"{topic}-{partition} begins at offset {first} now, and was to be read from {start}: what lay between has been"
            " deleted; read on without it with option failOnDataLoss=false"
        )


def cut_records(start: Positions, end: Positions, *, records_max: int) -> Positions:
    """
    An end not behind `end`, with about `records_max` offsets before it: each partition gets its part of them by what it has.

    Whole batches are read, and offsets that hold no record are counted: it is a measure, not a promise.
    """
    there = {place: offset - start.get(place, 0) for place, offset in end.items()}
    total = sum(there.values())
    if total <= records_max:
        return end
    return {place: end[place] - there[place] + -(-there[place] * records_max // total) for place in end}
