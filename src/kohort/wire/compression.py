"""
The compression codecs of record batches, with a bound on the decompressed size.

A megabyte can decompress to a hundred gigabytes. Therefore the size is known or bounded before data are decompressed; if that
is impossible, the output buffer has the allowed size.

Source: Kafka CompressionType; KIP-57 (LZ4 frames), KIP-110 (Zstandard), KIP-390 (levels); the xerial snappy stream format.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import TypeAlias

import cramjam

from kohort.model.errors import CorruptError

Buffer: TypeAlias = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX = 128 << 20
"""The default limit of a batch's decompressed size: a full batch of 1 MiB at a ratio of 128."""


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
_LZ4_RATIO_MAX = 255
"""A byte of an LZ4 block decompresses to at most 255 bytes."""
_LZ4_INDEPENDENT = 0x20

_ZSTD_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024


def compress(data: Buffer, codec: Codec) -> bytes:
    """Compress the records of a batch at Kafka's default level."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflate = zlib.compressobj(-1, zlib.DEFLATED, 31)
            return deflate.compress(data) + deflate.flush()
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Kafka refuses dependent blocks.
            frame = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(bytes(data), level=_ZSTD_LEVEL))


def decompress(data: Buffer, codec: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """
    Decompress the records of a batch.

    Raises:
        CorruptError: the codec is unknown, the data are damaged, or they decompress to more than `decompressed_bytes_max`.
    """
    packed = bytes(data)
    try:
        match codec:
            case Codec.NONE:
                return packed
            case Codec.GZIP:
                return _decompress_gzip(packed, decompressed_bytes_max)
            case Codec.SNAPPY:
                return _decompress_snappy(packed, decompressed_bytes_max)
            case Codec.LZ4:
                return _decompress_lz4(packed, decompressed_bytes_max)
            case Codec.ZSTD:
                return _decompress_zstd(packed, decompressed_bytes_max)
            case _:
                raise CorruptError(f"unknown compression codec {codec}")
    except (cramjam.DecompressionError, zlib.error, IndexError) as exc:
        raise CorruptError(f"records cannot be decompressed (codec {codec}): {exc}") from exc


def _too_large(decompressed_bytes_max: int) -> CorruptError:
    return CorruptError(f"records decompress to more than {decompressed_bytes_max} bytes")


def _decompress_gzip(packed: bytes, bytes_max: int) -> bytes:
    """All members of a gzip file, as Java's stream reads them."""
    parts: list[bytes] = []
    room = bytes_max
    while packed:
        member = zlib.decompressobj(31)
        part = member.decompress(packed, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large(bytes_max)
        if not member.eof:
            raise CorruptError("a gzip stream ends early")
        parts.append(part)
        packed = member.unused_data
    return b"".join(parts)


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    plain = bytes(data)
    for start in range(0, len(plain), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(plain[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(packed: bytes, bytes_max: int) -> bytes:
    """Decompress a xerial stream of blocks, or one block without a stream, which some clients send."""
    if not packed.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(packed, bytes_max)
    parts: list[bytes] = []
    room = bytes_max
    position = len(_XERIAL_HEADER)
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big", signed=True)
        position += 4
        if not 0 <= size <= len(packed) - position:
            raise CorruptError("a snappy stream ends early")
        parts.append(_decompress_snappy_block(packed[position : position + size], room))
        room -= len(parts[-1])
        position += size
    return b"".join(parts)


def _decompress_snappy_block(packed: bytes, bytes_max: int) -> bytes:
    """Decompress a block, which begins with its decompressed size."""
    if cramjam.snappy.decompress_raw_len(packed) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(packed))


def _decompress_lz4(packed: bytes, bytes_max: int) -> bytes:
    if len(packed) > 4 and not packed[4] & _LZ4_INDEPENDENT:
        raise CorruptError("an LZ4 frame has dependent blocks")
    if len(packed) * _LZ4_RATIO_MAX <= bytes_max:
        return bytes(cramjam.lz4.decompress(packed))
    room = bytearray(bytes_max)
    return bytes(memoryview(room)[: _into(cramjam.lz4, packed, room)])


def _decompress_zstd(packed: bytes, bytes_max: int) -> bytes:
    if _zstd_size_bound(packed) <= bytes_max:
        return bytes(cramjam.zstd.decompress(packed))
    room = bytearray(bytes_max)
    return bytes(memoryview(room)[: _into(cramjam.zstd, packed, room)])


def _into(codec: "object", packed: bytes, room: bytearray) -> int:
    """Decompress into a buffer and return the decompressed size."""
    try:
        size: int = codec.decompress_into(packed, room)  # type: ignore[attr-defined]
    except cramjam.DecompressionError as exc:
        if "whole buffer" in str(exc):
            raise _too_large(len(room)) from exc
        raise
    return size


def _zstd_size_bound(packed: bytes) -> int:
    """
    An upper bound of the decompressed size of Zstandard frames, from their block headers (RFC 8878, 3.1.1.1 and 3.1.1.2).

    Every block states its decompressed size, or is of the compressed kind, which gives at most 128 KiB.
    """
    bound = position = 0
    while packed[position : position + 4] == _ZSTD_MAGIC:
        descriptor = packed[position + 4]
        is_single_segment = descriptor >> 5 & 1
        content_size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
        dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
        position += 5 + (1 - is_single_segment) + dictionary_bytes + content_size_bytes
        is_last = 0
        while not is_last and position + 3 <= len(packed):
            header = int.from_bytes(packed[position : position + 3], "little")
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            bound += _ZSTD_BLOCK_BYTES_MAX if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += 4 if descriptor & 4 else 0
    return bound
