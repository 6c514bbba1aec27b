"""
Batches of some kB that would decompress to gigabytes are refused within a memory limit below one gigabyte.

The limit is RLIMIT_AS of a separate process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from kohort.wire.compression import Codec, compress
from tests.wire.hostile_batches import batch_of, corpus, equal_records, rising_records

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


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux has it")
def test_bombs_are_refused_within_the_memory_there_is(tmp_path: Path) -> None:
    codecs = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
    for codec in codecs:
        (tmp_path / f"bytes-{codec.name}").write_bytes(batch_of(zeros(codec), codec, 1))
    skipped = "a skippable frame, then repeated bytes"
    (hostile,) = [one for one in corpus(zeros_bytes=UNPACKED_BYTES // 8) if one.name == skipped]
    (tmp_path / "bytes-after-a-skippable-frame").write_bytes(batch_of(hostile.packed * 8, Codec.ZSTD, 1))
    count = 18_000_000
    records = batch_of(compress(equal_records(count), Codec.ZSTD), Codec.ZSTD, count)
    assert len(records) < 20_000
    (tmp_path / "records").write_bytes(records)
    (tmp_path / "rising").write_bytes(batch_of(compress(rising_records(RISING), Codec.ZSTD), Codec.ZSTD, RISING))
    told = subprocess.run(
        [sys.executable, "-c", _READER, tmp_path], capture_output=True, text=True, timeout=600, check=True
    ).stdout.splitlines()
    unpacked = f"refused: records decompress to more than {128 << 20} bytes"
    names = sorted([*(codec.name for codec in codecs), "after-a-skippable-frame"])
    bytes_refused = [f"bytes-{name} {unpacked}" for name in names]
    assert told == [
        *(f"one_by_one {refused}" for refused in bytes_refused),
        "one_by_one records refused: offsets do not rise: 0 follows 0",
        f"one_by_one rising {RISING}",
        *(f"all_together {refused}" for refused in bytes_refused),
        f"all_together records refused: the offsets of a batch of {count} records do not rise",
        f"all_together rising {RISING}",
    ]
