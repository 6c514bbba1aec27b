"""
Compressed records that are small and would cost much: a corpus for every place that decompresses.

Each entry is legal for its decompressor, or close to it: members, frames and blocks in great numbers, without content, without
a stated size or with a wrong one, and records without content.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam

from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.compression import Codec, compress
from tests.wire.sealed import sealed

ZEROS_BYTES = 4 << 20
REPEATS = 2000
"""Times that something small is repeated."""


class Hostile(NamedTuple):
    """
    Attributes:
        packed: the compressed records.
        plain_bytes: the size that they decompress to; None if they cannot be decompressed.
    """

    name: str
    codec: Codec
    packed: bytes
    plain_bytes: int | None


def corpus(*, zeros_bytes: int = ZEROS_BYTES, repeats: int = REPEATS) -> Iterator[Hostile]:
    """The whole corpus; a bomb decompresses to `zeros_bytes`."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        yield Hostile("zeros", codec, compress(bytes(zeros_bytes), codec), zeros_bytes)
        inner = compress(compress(bytes(zeros_bytes), codec), codec)
        yield Hostile("nested twice", codec, inner, len(compress(bytes(zeros_bytes), codec)))
    yield from _gzip(zeros_bytes, repeats)
    yield from _snappy(zeros_bytes, repeats)
    yield from _lz4(zeros_bytes, repeats)
    yield from _zstd(zeros_bytes, repeats)


def _gzip(zeros_bytes: int, repeats: int) -> Iterator[Hostile]:
    codec = Codec.GZIP
    empty, some = compress(b"", codec), compress(bytes(zeros_bytes // 64), codec)
    yield Hostile("empty members", codec, empty * repeats, 0)
    yield Hostile("empty members, then zeros", codec, empty * repeats + some * 64, zeros_bytes)
    yield Hostile("members of zeros", codec, some * 64, zeros_bytes)
    yield Hostile("members of one byte", codec, compress(b"x", codec) * repeats, repeats)
    named = some[:3] + b"\x08" + some[4:10] + b"n" * zeros_bytes + b"\0" + some[10:]
    yield Hostile("a member with a long name", codec, named, zeros_bytes // 64)
    yield Hostile("members and a piece of one", codec, some * 63 + some[:-1], None)


def _snappy(zeros_bytes: int, repeats: int) -> Iterator[Hostile]:
    codec = Codec.SNAPPY
    header = compress(b"", codec)
    bare = bytes(cramjam.snappy.compress_raw(bytes(zeros_bytes // 64)))
    yield Hostile("a bare block of zeros", codec, bytes(cramjam.snappy.compress_raw(bytes(zeros_bytes))), zeros_bytes)
    yield Hostile("a bare block that claims 4 GB", codec, b"\xff\xff\xff\xff\x0f" + bare, None)
    yield Hostile("a bare block that claims nothing", codec, b"\0" + bare, None)
    yield Hostile("blocks of zeros", codec, header + (struct.pack(">i", len(bare)) + bare) * 64, zeros_bytes)
    yield Hostile("empty blocks", codec, header + struct.pack(">ib", 1, 0) * repeats, 0)
    yield Hostile("headers", codec, header * repeats, 0)
    claims = struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\0"
    yield Hostile("blocks that claim 4 GB", codec, header + claims * repeats, None)


def _lz4(zeros_bytes: int, repeats: int) -> Iterator[Hostile]:
    codec = Codec.LZ4
    header, end = b"\x04\x22\x4d\x18\x60\x40\x82", bytes(4)  # independent blocks of 64 KiB, no checksums
    some = compress(bytes(zeros_bytes // 64), codec)
    yield Hostile("frames of zeros", codec, some * 64, None)
    yield Hostile("empty frames", codec, (header + end) * repeats, None)
    yield Hostile("a skippable frame, then zeros", codec, _skippable(b"") + compress(bytes(zeros_bytes), codec), None)
    yield Hostile("blocks of one byte", codec, header + struct.pack("<IB", 1 << 31 | 1, 0) * repeats + end, repeats)
    block = bytes(cramjam.lz4.compress_block(bytes(1 << 16), store_size=False))
    blocks = struct.pack("<I", len(block)) + block
    yield Hostile("blocks of zeros", codec, header + blocks * (zeros_bytes >> 16) + end, zeros_bytes)
    yield Hostile("without an end", codec, header + blocks * (zeros_bytes >> 16), None)


def _zstd(zeros_bytes: int, repeats: int) -> Iterator[Hostile]:
    codec = Codec.ZSTD
    some, zeros = compress(bytes(zeros_bytes // 64), codec), compress(bytes(zeros_bytes), codec)
    yield Hostile("frames of zeros", codec, some * 64, zeros_bytes)
    yield Hostile("empty frames", codec, compress(b"", codec) * repeats, 0)
    yield Hostile("a skippable frame, then zeros", codec, _skippable(b"") + zeros, zeros_bytes)
    yield Hostile("skippable frames between zeros", codec, (some + _skippable(b"skip")) * 64, zeros_bytes)
    yield Hostile("skippable frames", codec, _skippable(b"") * repeats, 0)
    yield Hostile("a skippable frame of 4 GB", codec, b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + zeros, None)
    repeated = _zstd_frame(zeros_bytes >> 17, content_size=None)
    yield Hostile("repeated bytes, no content size", codec, repeated, zeros_bytes)
    yield Hostile("repeated bytes, a content size of 0", codec, _zstd_frame(zeros_bytes >> 17, content_size=0), None)
    yield Hostile("repeated bytes, a content size of 2^63", codec, _zstd_frame(1, content_size=1 << 63), None)
    yield Hostile("a skippable frame, then repeated bytes", codec, _skippable(b"") + repeated, zeros_bytes)
    yield Hostile("a window of 128 MB", codec, _zstd_frame(1, content_size=None, window=17 << 3) * 64, 64 << 17)
    yield Hostile("a window of 2 TB", codec, _zstd_frame(1, content_size=None, window=31 << 3), None)


def _skippable(content: bytes) -> bytes:
    """A frame that a Zstandard or LZ4 decompressor skips."""
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", len(content)) + content


def _zstd_frame(blocks: int, *, content_size: int | None, window: int = 7 << 3) -> bytes:
    """
    A frame of blocks of 128 KiB with one repeated byte, four bytes each.

    Source: RFC 8878, 3.1.1.
    """
    descriptor = 0 if content_size is None else 3 << 6
    size = b"" if content_size is None else struct.pack("<Q", content_size)
    out = bytearray(b"\x28\xb5\x2f\xfd" + bytes([descriptor, window]) + size)
    for left in range(blocks - 1, -1, -1):
        out += ((1 << 17) << 3 | 1 << 1 | (left == 0)).to_bytes(3, "little") + b"\0"
    return bytes(out)


def batch_of(packed: bytes, codec: Codec, count: int) -> bytes:
    """A batch with these bytes where its records are."""
    batch = bytearray(build_batch([BatchRecord(None, b"x")], timestamp_ms=1000)[:HEADER_BYTES])
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return sealed(batch + packed)


def equal_records(count: int) -> bytes:
    """The smallest records that there are: nothing in them, and all at offset 0."""
    return b"\x0c\0\0\0\x01\x01\0" * count


def rising_records(count: int, first: int = 0) -> bytes:
    """As small as they may be where each has an offset of its own."""
    return b"".join(record_at(number) for number in range(first, first + count))


def record_at(offset_delta: int) -> bytes:
    return bytes((0x12, 0, 0, *_varint(offset_delta << 1), 1, 1, 0))


def equal_between_ends(chunks: int, chunk_records: int) -> bytes:
    """Chunks of equal records whose first and last ones have the offsets that they ought to have."""
    out = []
    for first in range(0, chunks * chunk_records, chunk_records):
        equal = record_at(first) * (chunk_records - 1)
        out.append(equal + record_at(first + chunk_records - 1))
    return b"".join(out)


def _varint(value: int) -> bytes:
    """An unsigned varint of four bytes for any value."""
    return bytes(value >> shift & 0x7F | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
