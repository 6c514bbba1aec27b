"""
What the checkpoints have written down of each partition: recovery points, high watermarks, log starts.

The files name partitions and not topics. So of a partition that is deleted the next one of its name must not find anything, or
a crash would have the new log begin where the old one did, and its records below were lost.

Source: Kafka OffsetCheckpointFile; LogManager.asyncDelete, which writes the checkpoints anew at each deletion.
"""

import threading
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TypeAlias

from kohort.model.ids import TopicPartition
from kohort.storage.durability.checkpoint_formats import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    offsets_to_text,
    read_offsets,
    write_atomically,
)

Offsets: TypeAlias = dict[TopicPartition, int]


class CheckpointFiles:
    """
    The checkpoint files of one data directory. Threads write them one after the other.

    Attributes:
        has_points: whether there are recovery points, though they may be of no partition. Where a journal was begun there are,
            unless somebody took them away.
    """

    def __init__(self, data_dir: Path) -> None:
        self.has_points = False
        self._data_dir = data_dir
        self._writing = threading.Lock()
        self._offsets: Offsets = {}
        self._start_offsets: Offsets = {}

    def read(self) -> tuple[Offsets, Offsets]:
        """
        Recovery points and log starts, as they were left.

        Raises:
            CorruptError: a file holds something else.
        """
        path = self._data_dir / RECOVERY_POINTS
        self._offsets = read_offsets(path)
        self.has_points = path.exists() and path.stat().st_size > 0
        self._start_offsets = read_offsets(self._data_dir / LOG_START_OFFSETS)
        return dict(self._offsets), dict(self._start_offsets)

    def begin(self) -> None:
        """
        Have recovery points, if there are none: of no partition.

        Raises:
            OSError: there may be none.
        """
        if not self.has_points:
            self._write(RECOVERY_POINTS, self._offsets)
            self.has_points = True

    def write(self, offsets: Offsets, start_offsets: Offsets, *, deleted: Container[TopicPartition] = ()) -> None:
        """
        Write down a checkpoint, but for the partitions that were deleted since it was begun.

        Raises:
            OSError: the files may be the old ones or the new.
        """
        with self._writing:
            self._offsets, self._start_offsets = _without(offsets, deleted), _without(start_offsets, deleted)
            self._write(RECOVERY_POINTS, self._offsets)
            self._write(HIGH_WATERMARKS, self._offsets)
            self._write(LOG_START_OFFSETS, self._start_offsets)

    def forget(self, deleted: Container[TopicPartition]) -> None:
        """
        Have these partitions in none of the files that a start reads.

        Raises:
            OSError: they may be there still.
        """
        with self._writing:
            offsets, start_offsets = _without(self._offsets, deleted), _without(self._start_offsets, deleted)
            if len(start_offsets) < len(self._start_offsets):
                self._write(LOG_START_OFFSETS, start_offsets)
                self._start_offsets = start_offsets
            if len(offsets) < len(self._offsets):
                self._write(RECOVERY_POINTS, offsets)
                self._offsets = offsets

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_atomically(self._data_dir / name, offsets_to_text(offsets))


def _without(offsets: Offsets, deleted: Container[TopicPartition]) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key not in deleted}
