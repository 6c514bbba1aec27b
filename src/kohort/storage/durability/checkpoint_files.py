"""
Kafka's checkpoint files of a data directory: recovery points, high watermarks and log start offsets by partition.

The files hold partition names without topic ids. So the entries of a deleted partition are removed before a partition of the
same name is created: after a crash the new log would otherwise start at the old log start, and lose its records below.

Source: Kafka OffsetCheckpointFile; LogManager.asyncDelete, which writes the checkpoints anew at each deletion.
"""

import logging
import threading
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from kohort.model.ids import TopicPartition
from kohort.storage.files.checkpoint_formats import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    is_empty,
    offsets_to_text,
    read_offsets,
    write_atomically,
)

LOG_STARTS_LOSS: Final = "records that were deleted may be there again"

_log = logging.getLogger("kohort.storage")

Offsets: TypeAlias = dict[TopicPartition, int]


class CheckpointFiles:
    """
    The checkpoint files of one data directory. A lock lets one thread write at a time.

    Attributes:
        has_points: whether the file of recovery points exists, be it without entries. A directory with a journal has it, unless
            the file was removed by hand.
    """

    def __init__(self, data_dir: Path) -> None:
        self.has_points = False
        self._data_dir = data_dir
        self._writing = threading.Lock()
        self._offsets: Offsets = {}
        self._start_offsets: Offsets = {}

    def read(self) -> tuple[Offsets, Offsets]:
        """
        Read recovery points and log start offsets.

        Raises:
            CorruptError: a file is not a checkpoint file.
        """
        path = self._data_dir / RECOVERY_POINTS
        self._offsets = read_offsets(path)
        self.has_points = path.exists() and path.stat().st_size > 0
        starts = self._data_dir / LOG_START_OFFSETS
        if self._offsets and is_empty(starts):
            _log.error("store.log_starts_missing error=%r", f"{starts} is missing or empty: {LOG_STARTS_LOSS}")
        self._start_offsets = read_offsets(starts)
        return dict(self._offsets), dict(self._start_offsets)

    def begin(self) -> None:
        """
        Write a file of recovery points without entries, unless there is one.

        Raises:
            OSError: the file could not be written.
        """
        if not self.has_points:
            self._write(
                LOG_START_OFFSETS, self._start_offsets
            )  # First: recovery points without it show that it is missing.
            self._write(RECOVERY_POINTS, self._offsets)
            self.has_points = True

    def write(self, offsets: Offsets, start_offsets: Offsets, *, deleted: Container[TopicPartition] = ()) -> None:
        """
        Write the files of a checkpoint, without the partitions that were deleted since it began.

        Raises:
            OSError: a file could not be written; each file has its old or its new content.
        """
        with self._writing:
            self._offsets, self._start_offsets = _without(offsets, deleted), _without(start_offsets, deleted)
            self._write(RECOVERY_POINTS, self._offsets)
            self._write(HIGH_WATERMARKS, self._offsets)
            self._write(LOG_START_OFFSETS, self._start_offsets)

    def forget(self, deleted: Container[TopicPartition]) -> None:
        """
        Remove partitions from the files that a start reads.

        Raises:
            OSError: a file could not be written, and may still have the partitions.
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
