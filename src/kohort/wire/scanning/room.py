"""
Decompression of large batches into a room: a buffer of the largest size, of which only the pages in use take memory.

The codecs work without Python's global lock here, and nothing that takes long holds it: no result of a hundred megabytes is
copied or freed in one call. So a thread can decompress while the event loop goes on. Measured for 127 MB: copying the result of
`compression.decompress` holds the lock for 40 to 200 ms, freeing it for 10 to 30 ms.
"""

import mmap
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam

from kohort.model.errors import CorruptError
from kohort.model.limits import DECOMPRESSED_BYTES_MAX
from kohort.wire.compression import (
    GZIP_WINDOW_BYTES,
    Codec,
    TooLargeError,
    check_lz4_frame,
    is_full,
    snappy_blocks,
)

_PIECE_BYTES: Final = 1 << 20
"""Decompressed bytes that are copied at a time."""
_FED_BYTES: Final = 1 << 16
"""Compressed bytes that zlib is given at a time: it copies those that it has not used."""
_FREED_BYTES: Final = 4 << 20


class Room:
    """
    A buffer for the decompressed records of one batch after the other.

    Args:
        bytes_max: its size. Larger records are refused.
    """

    def __init__(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._map = _map(bytes_max)
        self._used = 0

    def decompress(self, packed: bytes, codec: int) -> memoryview:
        """
        Decompress the records of a batch, and return a view that is valid until the next call.

        Raises:
            CorruptError: as `compression.decompress`.
        """
        view = memoryview(self._map)
        self._used = self._bytes_max
        try:
            self._used = self._fill(packed, codec, view)
        except (cramjam.DecompressionError, zlib.error, IndexError) as exc:
            if is_full(exc):
                raise TooLargeError(self._bytes_max) from exc
            raise CorruptError(f"records cannot be decompressed (codec {codec}): {exc}") from exc
        return view[: self._used]

    def _fill(self, packed: bytes, codec: int, view: memoryview) -> int:
        match codec:
            case Codec.GZIP:
                return _gzip_into(packed, view)
            case Codec.SNAPPY:
                return _snappy_into(packed, view)
            case Codec.LZ4:
                check_lz4_frame(packed)
                return int(cramjam.lz4.decompress_into(packed, view))
            case Codec.ZSTD:
                return int(cramjam.zstd.decompress_into(packed, view))
            case _:
                raise CorruptError(f"unknown compression codec {codec}")

    def release(self) -> Iterator[None]:
        """Give the memory back, in steps. The room can be used again."""
        used, self._used = self._used, 0
        if not hasattr(mmap, "MADV_DONTNEED"):
            self._map = _map(self._bytes_max)
            return
        for low in range(0, used, _FREED_BYTES):
            self._map.madvise(mmap.MADV_DONTNEED, low, min(_FREED_BYTES, self._bytes_max - low))
            yield


def _map(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _gzip_into(packed: bytes, room: memoryview) -> int:
    """As `compression.decompress` reads members, but in pieces."""
    data = memoryview(packed)
    start = position = used = 0
    fed = _FED_BYTES
    while position < len(data):
        member = zlib.decompressobj(31)
        has_ended = False
        while not has_ended:
            if position == len(data):
                raise CorruptError("a gzip stream ends early")
            part: bytes | memoryview = data[position : position + fed]
            position += len(part)
            is_full_piece = True
            while not has_ended and (part or is_full_piece):
                piece = member.decompress(part, _PIECE_BYTES)
                if used + len(piece) > len(room):
                    raise TooLargeError(len(room))
                room[used : used + len(piece)] = piece
                used += len(piece)
                is_full_piece = len(piece) == _PIECE_BYTES
                part = member.unconsumed_tail  # Not empty at the end of a member that others follow.
                has_ended = bool(member.eof)
            fed = min(max(position - start, GZIP_WINDOW_BYTES), _FED_BYTES)
        position -= len(member.unused_data)
        start, fed = position, GZIP_WINDOW_BYTES
    return used


def _snappy_into(packed: bytes, room: memoryview) -> int:
    used = 0
    for block in snappy_blocks(packed):
        if cramjam.snappy.decompress_raw_len(block) > len(room) - used:
            raise TooLargeError(len(room))
        used += int(cramjam.snappy.decompress_raw_into(block, room[used:]))
    return used
