"""
A scan of the records of a large batch in steps, with the results of `record_scan`.

The records may have any size and any number of headers. They are read in windows, so that only a window is copied at a time.
A step takes about a millisecond in plain Python.
"""

from collections.abc import Generator
from typing import Final

from kohort.model.errors import CorruptError
from kohort.wire.compression import Buffer
from kohort.wire.scanning.record_scan import RecordReader, RecordScan, check_left, read_size, read_time

STEP_RECORDS: Final = 1_000
STEP_HEADERS: Final = 500
_WINDOW_BYTES: Final = 1 << 18
_WHOLE_BYTES: Final = 1 << 13
"""A record whose length has at most two bytes is less than this; it is read at once. Larger ones are read field by field."""
_MARGIN_BYTES: Final = 2 * _WHOLE_BYTES
_FIELD_BYTES: Final = 32
"""At least the size of the fixed fields up to the length of the key, or of any two sizes."""


class RecordWindows(RecordReader):
    """
    Reads records of a buffer. `position` counts from the start of the window.

    Args:
        buffer: whole records from `start` on.
        window_bytes: copied at a time.
    """

    __slots__ = ("_base", "_buffer", "_end", "_window_bytes")

    def __init__(self, buffer: Buffer, start: int, window_bytes: int = _WINDOW_BYTES) -> None:
        super().__init__(b"", 0)
        self._buffer: memoryview = memoryview(buffer)
        self._end: int = len(self._buffer)
        self._base: int = start
        self._window_bytes: int = window_bytes
        self._move(start)

    @property
    def left(self) -> int:
        """The bytes after the last record that was read; negative if that ends after the buffer."""
        return self._end - self._base - self.position

    def _move(self, position: int) -> None:
        """Begin a window at a position of the buffer."""
        self._base = position
        self.data = bytes(self._buffer[position : position + self._window_bytes])
        self.position = 0

    def read_small(self) -> bool:
        """
        Read a record if it is a small one; else return False.

        Raises:
            CorruptError, IndexError: as `read`.
        """
        if len(self.data) - self.position < _MARGIN_BYTES and self._base + len(self.data) < self._end:
            self._move(self._base + self.position)
        data, at = self.data, self.position
        if data[at] > 0x7F and data[at + 1] > 0x7F:
            return False
        self.read()
        return True

    def read_large(self) -> Generator[None, None, None]:
        """
        Read a record of any size, in steps.

        Raises:
            CorruptError, IndexError: as `read`.
        """
        start = self._base + self.position
        data = bytes(self._buffer[start : start + _FIELD_BYTES])
        length, at = read_size(data, 0)
        if length < 0:
            raise CorruptError(f"a record has a length of {length}")
        end = start + at + length
        self.timestamp_delta, at = read_time(data, at + 1)
        self.offset_delta, at = read_size(data, at)
        size, at = read_size(data, at)
        if size < -1:
            raise CorruptError(f"a key has a length of {size}")
        self.key_bytes = size
        at = start + at + max(size, 0)
        size, at = self._size_at(at)
        if size < -1:
            raise CorruptError(f"a value has a length of {size}")
        self.value_bytes = size
        at += max(size, 0)
        count, at = self._size_at(at)
        if count < 0:
            raise CorruptError(f"a record has {count} headers")
        for number in range(count):
            if number % STEP_HEADERS == STEP_HEADERS - 1:
                yield
            size, at = self._size_at(at)
            if size < 0:
                raise CorruptError(f"the key of a header has a length of {size}")
            size, at = self._size_at(at + size)
            if size < -1:
                raise CorruptError(f"the value of a header has a length of {size}")
            at += max(size, 0)
            if at > end:
                raise CorruptError("the headers of a record are longer than the record")
        if at != end:
            raise CorruptError(f"a record of {length} bytes has {at - end + length} bytes")
        self._move(end)

    def _size_at(self, at: int) -> tuple[int, int]:
        """A size at a position of the buffer, and the position after it. The window follows."""
        if not self._base <= at <= self._base + len(self.data) - _FIELD_BYTES:
            self._move(min(at, self._end))
        size, after = read_size(self.data, at - self._base)
        return size, self._base + after


def scan_in_steps(reader: RecordWindows, count: int, *, must_rise: bool = False) -> Generator[None, None, RecordScan]:
    """As `record_scan.scan_records`, in steps."""
    scan: RecordScan | None = None
    last = -1
    try:
        for number in range(count):
            if number % STEP_RECORDS == STEP_RECORDS - 1:
                yield
            if not reader.read_small():
                yield from reader.read_large()
            if scan is None:
                scan = RecordScan(reader)
            else:
                scan.take(reader, last, must_rise=must_rise)
            last = reader.offset_delta
    except IndexError:
        raise CorruptError(f"the records end before there are {count}") from None
    assert scan is not None, "a batch without records"
    check_left(reader.left, count)
    return scan
