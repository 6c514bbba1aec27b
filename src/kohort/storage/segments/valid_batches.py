"""
The valid batches at the beginning of a segment file, which a recovery keeps.

Source: Kafka LogSegment.recover.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from kohort.model.errors import ConfigError
from kohort.storage.batchset import Span, read_front, span_at, stated_size
from kohort.wire.batch_header import LOG_OVERHEAD_BYTES
from kohort.wire.batches import check_crc
from kohort.wire.compression import Buffer

SIZE_BYTES_MAX = (1 << 31) - 1
"""Source: segment.bytes is an int, and so are the positions in an index."""
_SCAN_BYTES = 4 << 20
_OLD_HEADER_BYTES = LOG_OVERHEAD_BYTES + 14
"""Of a message of magic 0: nothing in it is shorter."""


class ValidBatches:
    """
    The batches of an open file up to the first one with a wrong checksum or an impossible offset, which no checksum covers.

    Iteration gives for each batch a buffer, the position of the batch in it, and its span in the file.

    Args:
        next_offset: the smallest possible base offset.
        offset_max: the largest possible last offset.
        gapless_from: a gap before a batch from this offset on ends the valid batches; None if gaps are allowed everywhere.

    Attributes:
        file_bytes: the size of the file.
        end: after the iteration, the end position of the valid batches.
        is_shifted: whether the offset of the last valid batch is wrong: it begins behind a gap, and the next batch goes on as
            if there was none. Other batches there, whose offsets go back, are remains of older data.

    Raises:
        ConfigError: the file is larger than a segment can be.
    """

    def __init__(self, fd: int, path: Path, *, next_offset: int, offset_max: int, gapless_from: int | None) -> None:
        self.file_bytes = os.fstat(fd).st_size
        if self.file_bytes > SIZE_BYTES_MAX:
            raise ConfigError(
                f"{path} has {self.file_bytes} bytes, and a segment {SIZE_BYTES_MAX} at most: move it away."
            )
        self.end = 0
        self.is_shifted = False
        self._unshifted = -1
        """Where the last batch would end without the gap before it; -1 if there was none."""
        self._fd = fd
        self._path = path
        self._next_offset = next_offset
        self._offset_max = offset_max
        self._gapless_from = gapless_from
        self._buffer, self._buffer_position = memoryview(b""), 0

    def __iter__(self) -> Iterator[tuple[memoryview, int, Span]]:
        while True:
            at = self.end - self._buffer_position
            span = _valid_batch(self._buffer, at)
            if span is None and self._buffer_position + len(self._buffer) < self.file_bytes:
                self._fill()
                at, span = 0, _valid_batch(self._buffer, 0)
            if span is None or not self._can_follow(span):
                self.is_shifted = span is not None and span[2] == self._unshifted
                return
            _, size, base_offset, last_offset, max_timestamp_ms = span
            yield self._buffer, at, (self.end, size, base_offset, last_offset, max_timestamp_ms)
            self.end += size
            gap = base_offset - self._next_offset
            self._unshifted = last_offset + 1 - gap if gap else -1
            self._next_offset = last_offset + 1

    def _can_follow(self, span: Span) -> bool:
        if not self._next_offset <= span[2] <= span[3] <= self._offset_max:
            return False
        return self._gapless_from is None or span[2] == self._next_offset or span[2] < self._gapless_from

    def _fill(self) -> None:
        """Read from the next batch on, at least the whole batch if the file has it."""
        data = os.pread(self._fd, min(_SCAN_BYTES, self.file_bytes - self.end), self.end)
        size = stated_size(data)
        if len(data) < size <= self.file_bytes - self.end:
            data = os.pread(self._fd, size, self.end)
        self._buffer, self._buffer_position = memoryview(data), self.end

    def refuse_old_format(self) -> None:
        """
        Check that the bytes behind the valid batches may be truncated: they must not be messages of a format before Kafka 0.11.

        Raises:
            ConfigError: they are messages of an old format.
        """
        tail = self._buffer[self.end - self._buffer_position :]
        if len(tail) < _OLD_HEADER_BYTES or tail[16] > 1:
            return
        size = read_front(tail)[1] + LOG_OVERHEAD_BYTES
        crc = int.from_bytes(tail[12:16], "big")
        if _OLD_HEADER_BYTES <= size <= len(tail) and zlib.crc32(tail[16:size]) == crc:
            raise ConfigError(
                f"{self._path} holds messages of a format before Kafka 0.11 (magic {tail[16]}), which is not read here. "
                "Copy the topic with Kafka's own tools to bring it to the present format."
            )


def _valid_batch(buffer: Buffer, start: int) -> Span | None:
    """The batch at a position, if it is whole and its checksum is right."""
    span = span_at(buffer, start)
    if span is None:
        return None
    return span if check_crc(buffer, start) else None
