"""
The compression codecs of record batches, with a bound on the decompressed size.

A megabyte can decompress to a hundred gigabytes, and a frame can state a wrong size. Therefore no size in the data is trusted:
each codec writes into a buffer of limited size and stops when that is full. Work and memory are linear in the bytes that go in
and the bytes that may come out, whatever members, frames and blocks the data consist of.

Source: Kafka CompressionType; KIP-57 (LZ4 frames), KIP-110 (Zstandard), KIP-390 (levels); the xerial snappy stream format.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

from kohort.model.errors import CorruptError
from kohort.model.limits import DECOMPRESSED_BYTES_MAX

try:
    import cramjam
except ImportError:
    from kohort.wire import arrow_codecs as cramjam  # type: ignore[no-redef]

Buffer: TypeAlias = bytes | bytearray | memoryview
DecompressInto: TypeAlias = Callable[[bytes, bytearray], int]
"""Decompresses all frames into a buffer and returns the size; raises DecompressionError if the buffer is too small."""


class TooLargeError(CorruptError):
    """Records decompress to more than the allowed bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"records decompress to more than {bytes_max} bytes")


class Codec(IntEnum):
    """The codec in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")

_LZ4_LEVEL = 9
_LZ4_PIECE_BYTES = 16 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER_BYTES = 7
_LZ4_DICTIONARY = 0x01
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_CONTENT_SIZE = 0x08
_LZ4_BLOCK_CHECKSUMS = 0x10
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_SIZE_MASK = 0x7FFF_FFFF
"""The highest bit marks a block that is not compressed."""

_ZSTD_LEVEL = 3
_GZIP_LEVEL = -1

GZIP_WINDOW_BYTES = 512
"""The first part of a second gzip member; each further part is as large as all before it."""
_ROOM_BYTES_MIN = 64 * 1024
_ROOM_RATIO = 8
"""The first output buffer of LZ4 and Zstandard, as a multiple of the input; each further one is four times as large."""
_ROOM_GROWTH = 4
_BUFFER_IS_FULL = "whole buffer"
"""A part of cramjam's message."""


def compress(data: Buffer, codec: Codec, level: int | None = None) -> bytes:
    """
    Compress the records of a batch.

    Args:
        level: of gzip, LZ4 or Zstandard, as Kafka counts; None for Kafka's default.

    LZ4 holds Python's global lock: it is given small pieces, so that other threads have their turns.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflate = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
            return deflate.compress(data) + deflate.flush()
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Kafka refuses dependent blocks.
            lz4_level = _LZ4_LEVEL if level is None else level
            frame = cramjam.lz4.Compressor(level=lz4_level, content_checksum=False, block_linked=False)
            view = memoryview(data)
            for low in range(0, len(view), _LZ4_PIECE_BYTES):
                frame.compress(bytes(view[low : low + _LZ4_PIECE_BYTES]))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(
    data: Buffer,
    codec: int,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    *,
    parts_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """
    Decompress the records of a batch.

    Args:
        parts_max: members or blocks that are handled one by one, and may be empty. All that there can be unless stated.

    Raises:
        TooLargeError: they decompress to more than `decompressed_bytes_max`, or have more parts.
        CorruptError: the codec is unknown, or the data are damaged.
    """
    packed = bytes(data)
    try:
        match codec:
            case Codec.NONE:
                return packed
            case Codec.GZIP:
                return _decompress_gzip(packed, decompressed_bytes_max, parts_max)
            case Codec.SNAPPY:
                return _decompress_snappy(packed, decompressed_bytes_max, parts_max)
            case Codec.LZ4:
                return _decompress_lz4(packed, decompressed_bytes_max, parts_max)
            case Codec.ZSTD:
                return _into_growing_room(cramjam.zstd.decompress_into, packed, decompressed_bytes_max)
            case _:
                raise CorruptError(f"unknown compression codec {codec}")
    except (cramjam.DecompressionError, zlib.error, IndexError) as exc:
        raise CorruptError(f"records cannot be decompressed (codec {codec}): {exc}") from exc


def _decompress_gzip(packed: bytes, bytes_max: int, parts_max: int) -> bytes:
    """
    All members of a gzip file, as Java's stream reads them.

    A decompressor copies the bytes that follow its member. The first member gets all bytes, because there is hardly ever a
    second one; the others get a few at first, because they may be as small as twenty bytes.
    """
    out = bytearray()
    view = memoryview(packed)
    start = position = 0
    fed = len(view)
    members = 0
    while position < len(view):
        members += 1
        if members > parts_max:
            raise TooLargeError(bytes_max)
        member = zlib.decompressobj(31)
        while not member.eof:
            if position == len(view):
                raise CorruptError("a gzip stream ends early")
            part = view[position : position + fed]
            out += member.decompress(part, bytes_max - len(out) + 1)
            if len(out) > bytes_max:
                raise TooLargeError(bytes_max)
            position += len(part)
            fed = position - start
        position -= len(member.unused_data)
        start, fed = position, GZIP_WINDOW_BYTES
    return bytes(out)


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    plain = memoryview(data)
    for start in range(0, len(plain), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(plain[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(packed: bytes, bytes_max: int, parts_max: int) -> bytes:
    """Decompress xerial streams of blocks, or one block without a stream, which some clients send."""
    if not packed.startswith(_XERIAL_MAGIC):
        _check_snappy_block(packed, bytes_max, bytes_max)
        return bytes(cramjam.snappy.decompress_raw(packed))
    if packed.count(_XERIAL_MAGIC) > parts_max:
        raise TooLargeError(bytes_max)
    out = bytearray()
    for number, block in enumerate(snappy_blocks(packed)):
        if number >= parts_max:
            raise TooLargeError(bytes_max)
        _check_snappy_block(block, bytes_max - len(out), bytes_max)
        out += cramjam.snappy.decompress_raw(block)
    return bytes(out)


def snappy_blocks(packed: bytes) -> Iterator[bytes]:
    """
    The blocks of xerial streams, or the one block without a stream.

    Raises:
        CorruptError: a stream ends early.
    """
    if not packed.startswith(_XERIAL_MAGIC):
        yield packed
        return
    position = 0
    while position < len(packed):
        if packed.startswith(_XERIAL_MAGIC, position):  # the first stream, or one more
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(packed[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(packed) - position:
            raise CorruptError("a snappy stream ends early")
        yield packed[position : position + size]
        position += size


def _check_snappy_block(block: bytes, room: int, bytes_max: int) -> None:
    """Check the decompressed size with which a block begins; the block is refused later if it does not have that size."""
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise TooLargeError(bytes_max)


def _decompress_lz4(packed: bytes, bytes_max: int, parts_max: int) -> bytes:
    if check_lz4_frame(packed, parts_max) > parts_max:
        raise TooLargeError(bytes_max)
    return _into_growing_room(cramjam.lz4.decompress_into, packed, bytes_max)


def check_lz4_frame(packed: bytes, blocks_max: int = DECOMPRESSED_BYTES_MAX) -> int:
    """
    Check that the data are one LZ4 frame of independent blocks, which is all that Java clients read.

    Returns:
        The number of blocks; more than `blocks_max` if there are more, which are not checked.

    Raises:
        CorruptError: they are not.

    Source: LZ4 frame format 1.6.4; Kafka Lz4BlockInputStream, which neither continues after a frame nor skips one.
    """
    if len(packed) < _LZ4_HEADER_BYTES or packed[:4] != _LZ4_MAGIC:
        raise CorruptError("no LZ4 frame")
    flags = packed[4]
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptError("an LZ4 frame has dependent blocks")
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
    position = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    blocks = 0
    while size := int.from_bytes(packed[position : position + 4], "little"):
        position += 4 + (size & _LZ4_BLOCK_SIZE_MASK) + checksum_bytes
        blocks += 1
        if blocks > blocks_max:
            return blocks
    position += 4 + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
    if position != len(packed):
        raise CorruptError("an LZ4 frame ends early" if position > len(packed) else "bytes after an LZ4 frame")
    return blocks


def is_full(error: Exception) -> bool:
    """Whether a codec failed because the buffer was too small."""
    return _BUFFER_IS_FULL in str(error)


def _into_growing_room(decompress_into: DecompressInto, packed: bytes, bytes_max: int) -> bytes:
    """
    Decompress into a buffer, and into a larger one if it was too small; all attempts together cost a third more than the last.

    A buffer of the largest size at once would have to be cleared first, which costs more than most batches.
    """
    room_bytes = min(max(_ROOM_BYTES_MIN, len(packed) * _ROOM_RATIO), bytes_max)
    while True:
        room = bytearray(room_bytes)
        try:
            return bytes(memoryview(room)[: decompress_into(packed, room)])
        except cramjam.DecompressionError as exc:
            if not is_full(exc):
                raise
            if room_bytes == bytes_max:
                raise TooLargeError(bytes_max) from exc
        room_bytes = min(room_bytes * _ROOM_GROWTH, bytes_max)
