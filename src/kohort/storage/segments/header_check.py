"""
The check of the two fields of a batch header that no checksum covers, base offset and leader epoch, before readers get them.

Only batches that were on the disk at the start are checked, each once while they are read in order.

- A base offset that goes back is damage; a consumer would skip the batch without an error. The batches before it are served.
- A wrong leader epoch is corrected in the bytes that the reader gets. The epoch cache is the truth: its file has a checksum,
  and each epoch begins in it before its first batch is written. A consumer passes the epoch on in its next requests and
  commits; a wrong one would be taken for a truncation.
"""

import logging
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.storage.epochs import EpochCache
from kohort.wire.batch_header import HEADER_BYTES, LEADER_EPOCH_AT, LOG_OVERHEAD_BYTES, MAGIC_AT, fields_struct

_log = logging.getLogger("kohort.storage")

_read: Final = fields_struct("base_offset", "last_offset_delta").unpack_from


class HeaderCheck:
    """
    The check for one segment.

    Args:
        end: the size of the segment at the start; later bytes were written by this process.
    """

    def __init__(self, epochs: EpochCache, end: int) -> None:
        self._epochs = epochs
        self._end = end
        self._from = self._until = 0
        """The range of bytes that was checked."""
        self._is_logged = False

    def copy(self, epochs: EpochCache) -> "HeaderCheck":
        """A check for another reader, which begins with what was checked already."""
        copy = HeaderCheck(epochs, self._end)
        copy._from, copy._until, copy._is_logged = self._from, self._until, self._is_logged
        return copy

    def is_needed(self, start: int, end: int) -> bool:
        """Whether bytes between these positions were not checked yet."""
        return start < self._end and not self._from <= start <= end <= self._until

    def checked(self, data: bytes, start: int, path: Path, *, following: int) -> bytes:
        """
        The batches up to the first one with a wrong offset, with the leader epochs of the cache.

        Args:
            data: whole batches; other damage is the reader's to find.
            start: their position in the segment.
            following: the offset of the next batch.

        Raises:
            CorruptError: the offset of the first or second batch is wrong.
        """
        end = start + len(data)
        length, wrong = self._walk(data, start, path, following)
        if wrong:
            changed = bytearray(data)
            for at, leader_epoch in wrong:
                changed[at + LEADER_EPOCH_AT : at + MAGIC_AT] = leader_epoch.to_bytes(4, "big")
            if not self._is_logged:
                self._is_logged = True
                _log.warning("log.leader_epoch_corrected path=%s position=%d epoch=%d", path, start + at, leader_epoch)
            data = bytes(changed)
        elif length < len(data):
            return data[:length]
        elif self._from <= start <= self._until:
            self._until = max(self._until, end)
        else:
            self._from, self._until = start, end
        return data[:length]

    def _walk(self, data: bytes, start: int, path: Path, following: int) -> tuple[int, list[tuple[int, int]]]:
        """
        The length of the batches with right offsets, and the positions of batches with another leader epoch than the cache
        has, with the right one.
        """
        wrong: list[tuple[int, int]] = []
        at, before, next_offset = 0, 0, 0
        right, epoch_end = -1, -1
        while True:
            is_end = at + HEADER_BYTES > len(data)
            base_offset, length, leader_epoch, last_offset_delta = following, 0, 0, 0
            if not is_end:
                base_offset, length, leader_epoch, _, _, _, last_offset_delta = _read(data, at)
            if base_offset < next_offset:
                if not before:
                    raise CorruptError(f"{path}: offset {base_offset} at {start + at} follows {next_offset - 1}")
                return before, [each for each in wrong if each[0] < before]
            if is_end:
                return len(data), wrong
            if base_offset >= epoch_end:
                right, epoch_end = self._epochs.epoch_and_end(base_offset)
            if leader_epoch != right >= 0:
                wrong.append((at, right))
            next_offset = base_offset + max(last_offset_delta, 0) + 1
            before = at
            at += max(length, 0) + LOG_OVERHEAD_BYTES
