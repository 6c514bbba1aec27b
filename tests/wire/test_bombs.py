"""
Batches of some kB that would decompress to gigabytes are refused within a memory limit below one gigabyte.

The limit is RLIMIT_AS of a separate process.
"""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.wire.batches import HEADER_BYTES, BatchRecord, build_batch
from kohort.wire.compression import Codec, compress
from tests.wire.sealed import sealed

MEMORY_BYTES = 900 << 20
UNPACKED_BYTES = 2 << 30
RISING = 500_000

_READER = f"""
import resource, sys
from pathlib import Path
from kohort.model.errors import CorruptError
from kohort.wire.batches import read_records
from kohort.wire.columnar.layout import BatchBuffer
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
def one_by_one(batch):
    return len(read_records(batch))
def all_together(batch):
    buffer = BatchBuffer()
    buffer.add(batch, bytes_max=1 << 20)
    steps = buffer.parse()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return len(end.value)
for read in one_by_one, all_together:
    for path in sorted(Path(sys.argv[1]).iterdir()):
        try:
            print(read.__name__, path.name, read(path.read_bytes()))
        except CorruptError as error:
            print(read.__name__, path.name, "refused:", error)
"""


def batch_of(packed: bytes, codec: Codec, count: int) -> bytes:
    """A batch with these bytes where its records are."""
    batch = bytearray(build_batch([BatchRecord(None, b"x")], timestamp_ms=1000)[:HEADER_BYTES])
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return sealed(batch + packed)


def zeros(codec: Codec) -> bytes:
    """Zeros of some megabytes, many times over."""
    some = compress(bytes(16 << 20), codec)
    match codec:
        case Codec.GZIP:  # one member after the other
            return some * (UNPACKED_BYTES >> 24)
        case Codec.ZSTD:  # one frame after the other
            return some * (UNPACKED_BYTES >> 24)
        case Codec.SNAPPY:  # a bare block says itself how much it is
            return b"\x80\x80\x80\x80\x08" + some
        case _:
            return compress(bytes(192 << 20), codec)


def equal_records(count: int) -> bytes:
    """The smallest records that there are: nothing in them, and all at offset 0."""
    return b"\x0c\0\0\0\x01\x01\0" * count


def rising_records(count: int) -> bytes:
    """As small as they may be where each has an offset of its own."""
    return b"".join(bytes((0x12, 0, 0, *varint_of(number << 1), 1, 1, 0)) for number in range(count))


def varint_of(value: int) -> bytes:
    """An unsigned varint of four bytes for any value."""
    return bytes(value >> shift & 0x7F | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux has it")
def test_bombs_are_refused_within_the_memory_there_is(tmp_path: Path) -> None:
    codecs = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
    for codec in codecs:
        (tmp_path / f"bytes-{codec.name}").write_bytes(batch_of(zeros(codec), codec, 1))
    count = 18_000_000
    records = batch_of(compress(equal_records(count), Codec.ZSTD), Codec.ZSTD, count)
    assert len(records) < 20_000
    (tmp_path / "records").write_bytes(records)
    (tmp_path / "rising").write_bytes(batch_of(compress(rising_records(RISING), Codec.ZSTD), Codec.ZSTD, RISING))
    told = subprocess.run(
        [sys.executable, "-c", _READER, tmp_path], capture_output=True, text=True, timeout=600, check=True
    ).stdout.splitlines()
    unpacked = f"refused: records decompress to more than {128 << 20} bytes"
    bytes_refused = [f"bytes-{name} {unpacked}" for name in sorted(codec.name for codec in codecs)]
    assert told == [
        *(f"one_by_one {refused}" for refused in bytes_refused),
        "one_by_one records refused: offsets after 0 do not rise",
        f"one_by_one rising {RISING}",
        *(f"all_together {refused}" for refused in bytes_refused),
        f"all_together records refused: the offsets of a batch of {count} records do not rise",
        f"all_together rising {RISING}",
    ]
