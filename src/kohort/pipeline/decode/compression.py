"""
Decompression of the records of a batch, up to a bound: a batch of some bytes can claim gigabytes.

Snappy data have the framing of the Java client (xerial: magic, then chunks of 4-byte length) or none, from other clients.

Source: Kafka CompressionType, SnappyInputStream.
"""

import struct

import pyarrow as pa

from kohort.model.errors import CorruptError

NONE = 0
_STREAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_TOO_LARGE = "decompresses to more than is allowed"


def decompress(codec: int, data: bytes, *, bytes_max: int) -> bytes:
    """
    Decompress the records of a batch.

    Raises:
        CorruptError: the codec is unknown, the bytes are damaged, or they decompress to more than `bytes_max`.
    """
    try:
        if codec == _SNAPPY:
            return _snappy(data, bytes_max)
        if codec not in _STREAMED:
            raise CorruptError(f"unknown compression {codec}")
        with pa.CompressedInputStream(pa.BufferReader(data), _STREAMED[codec]) as stream:
            records: bytes = stream.read(bytes_max + 1)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as exc:
        raise CorruptError(f"does not decompress: {exc}") from exc
    if len(records) > bytes_max:
        raise CorruptError(_TOO_LARGE)
    return records


def _snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, bytes_max)
    blocks: list[bytes] = []
    at, left = _XERIAL_HEADER_BYTES, bytes_max
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise CorruptError("does not decompress: a snappy chunk ends behind its batch")
        blocks.append(_snappy_block(data[at + 4 : at + 4 + size], left))
        left -= len(blocks[-1])
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(block: bytes, bytes_max: int) -> bytes:
    claimed, shift = 0, 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > bytes_max:
        raise CorruptError(_TOO_LARGE)
    records: bytes = pa.Codec("snappy").decompress(block, claimed, asbytes=True)
    return records
