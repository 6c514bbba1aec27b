"""
The offset index and the time index of a segment, in Kafka's formats.

An index of the active segment is kept in memory and written when the segment rolls or the log closes: after a crash it is
rebuilt anyway. An index of an inactive segment is mapped from its file by the first access.

Source: Kafka OffsetIndex, TimeIndex, AbstractIndex.
"""

import mmap
import operator
import os
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final

from kohort.storage.files import syscalls
from kohort.storage.files.directory import open_swapped
from kohort.storage.log import NO_TIMESTAMP
from kohort.wire.native import crc32c

_OFFSET_ENTRY: Final = Struct(">ii")
"""Relative offset, position."""
_TIME_ENTRY: Final = Struct(">qi")
"""Timestamp, relative offset."""
_read_timestamp: Final = Struct(">q").unpack_from


class _Index:
    """Entries of one size, sorted, in a buffer that is the file's content."""

    ENTRY: ClassVar[Struct]
    KEPT: ClassVar[int] = 0
    """How many of the last places are kept for what a roll adds."""

    def __init__(self, path: Path, base_offset: int, *, bytes_max: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.limit(bytes_max)
        self._loaded: bytearray | mmap.mmap | None = bytearray()

    def limit(self, bytes_max: int) -> None:
        """Set the size at which the index is full, minus the room that a roll needs."""
        self._bytes_full = (bytes_max // self.ENTRY.size - self.KEPT) * self.ENTRY.size

    @property
    def _entries(self) -> bytearray | mmap.mmap:
        if self._loaded is None:
            self._loaded = self._map()
        return self._loaded

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory; a mapped file may be read by the next access."""
        return isinstance(self._loaded, bytearray)

    def share(self, other: "_Index") -> None:
        """Use the entries of another index of the same segment."""
        self._loaded, self.path = other._loaded, other.path

    @property
    def count(self) -> int:
        return len(self._entries) // self.ENTRY.size

    @property
    def is_full(self) -> bool:
        loaded = self._loaded
        return len(self._entries if loaded is None else loaded) >= self._bytes_full

    def entry(self, index: int) -> tuple[int, int]:
        first, second = self.ENTRY.unpack_from(self._entries, index * self.ENTRY.size)
        return first, second

    @property
    def checksum(self) -> int:
        """CRC-32C of the content."""
        return crc32c(memoryview(self._entries))

    def clear(self) -> None:
        self._loaded = bytearray()

    def load(self, bytes_max: int | None = None) -> bool:
        """Read the file into memory, so that the index can grow; False if it is missing or larger than `bytes_max`."""
        try:
            with self.path.open("rb") as file:
                if bytes_max is not None and os.fstat(file.fileno()).st_size > bytes_max:
                    return False
                self._loaded = bytearray(file.read())
        except FileNotFoundError:
            return False
        return True

    def release(self) -> None:
        """Drop the entries from memory; the next access maps the file."""
        self._loaded = None

    def unmap(self) -> None:
        """Close the file if it is mapped; the next access maps it again. A mapping keeps a descriptor."""
        if isinstance(self._loaded, mmap.mmap):
            self._loaded = None

    def make_growable(self) -> None:
        """Make a released index ready for appends."""
        if not isinstance(self._loaded, bytearray):
            self._loaded = bytearray(self._entries)

    def _map(self) -> bytearray | mmap.mmap:
        try:
            with open_swapped(self.path, lambda path: path.open("rb")) as file:
                is_empty = os.fstat(file.fileno()).st_size == 0
                return bytearray() if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:  # a lookup then begins at the segment's start
            return bytearray()

    def save(self) -> None:
        """Write the whole file, without flushing it."""
        syscalls.write_file(self.path, memoryview(self._entries))

    def _append(self, first: int, second: int) -> None:
        entries = self._loaded
        assert isinstance(entries, bytearray), "a released index does not grow"
        entries += self.ENTRY.pack(first, second)


class OffsetIndex(_Index):
    """For some batches: the last offset, and the position where the batch begins."""

    ENTRY = _OFFSET_ENTRY

    def append(self, last_offset: int, position: int) -> None:
        self._append(last_offset - self.base_offset, position)

    def position_for(self, offset: int) -> int:
        """The position of the greatest entry not above `offset`; 0 if there is none."""
        relative = offset - self.base_offset
        at = bisect_right(range(self.count), relative, key=lambda index: self.entry(index)[0])
        return self.entry(at - 1)[1] if at else 0

    def position_at_most(self, position: int) -> int:
        """The greatest position in the index that is not above `position`; 0 if there is none."""
        at = bisect_right(range(self.count), position, key=lambda index: self.entry(index)[1])
        return self.entry(at - 1)[1] if at else 0

    def first_offset_from(self, position: int) -> int | None:
        """The offset of the first entry at `position` or behind it; None if there is none."""
        at = bisect_left(range(self.count), position, key=lambda index: self.entry(index)[1])
        return self.base_offset + self.entry(at)[0] if at < self.count else None

    def is_plausible(self, size_bytes: int) -> bool:
        """Whether the entries are whole, rising, and within a segment of that size."""
        if len(self._entries) % self.ENTRY.size:
            return False
        words = array("i", bytes(self._entries))
        words.byteswap()
        offsets, positions = words[0::2], words[1::2]
        is_inside = not words or (offsets[0] >= 0 and positions[0] >= 0 and positions[-1] < size_bytes)
        return _rises(offsets) and _rises(positions) and is_inside


class TimeIndex(_Index):
    """For some batches: the largest timestamp so far, and the last offset of the batch that has it."""

    ENTRY = _TIME_ENTRY
    KEPT = 1

    @property
    def last(self) -> tuple[int, int]:
        """The newest entry as (timestamp, offset); (-1, base offset) if there is none."""
        if not self.count:
            return NO_TIMESTAMP, self.base_offset
        timestamp_ms, relative = self.entry(self.count - 1)
        return timestamp_ms, self.base_offset + relative

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry, unless the newest entry has this timestamp or a larger one."""
        entries = self._entries
        newest_ms = _read_timestamp(entries, len(entries) - _TIME_ENTRY.size)[0] if entries else NO_TIMESTAMP
        if timestamp_ms > newest_ms:
            self._append(timestamp_ms, offset - self.base_offset)

    def offset_for(self, timestamp_ms: int) -> int:
        """The offset of the greatest entry whose timestamp is not above this one; the base offset if there is none."""
        at = bisect_right(range(self.count), timestamp_ms, key=lambda index: self.entry(index)[0])
        return self.base_offset + self.entry(at - 1)[1] if at else self.base_offset

    def is_plausible(self, offset_max: int) -> bool:
        """Whether the entries are whole, rising, and within a segment that ends at `offset_max`."""
        if len(self._entries) % self.ENTRY.size:
            return False
        entries = list(self.ENTRY.iter_unpack(self._entries))
        timestamps = [timestamp_ms for timestamp_ms, _ in entries]
        offsets = [relative for _, relative in entries]
        return (
            _rises(timestamps)
            and offsets == sorted(offsets)
            and (not offsets or (offsets[0] >= 0 and self.base_offset + offsets[-1] <= offset_max))
        )


def _rises(values: "array[int] | list[int]") -> bool:
    return all(map(operator.lt, values, values[1:]))
