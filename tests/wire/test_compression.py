"""
Decompression of hostile records: right or refused, in little memory and with work linear in input and output.

Work is counted at the libraries: the bytes that they are fed, and the buffers that they are given.
"""

import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest

from kohort.model.errors import CorruptError
from kohort.wire import compression
from kohort.wire.compression import Codec, compress, decompress
from tests.wire.hostile_batches import ZEROS_BYTES, Hostile, corpus

CORPUS = list(corpus())
LIMIT = 1 << 20
"""Below the size of the bombs, and above that of everything else."""
assert LIMIT < ZEROS_BYTES


@pytest.fixture(params=CORPUS, ids=lambda one: f"{one.codec.name}, {one.name}")
def hostile(request: pytest.FixtureRequest) -> Hostile:
    found: Hostile = request.param
    return found


class Work:
    """
    Counts what the libraries are asked.

    Attributes:
        calls: calls of a library.
        fed_bytes: compressed bytes given to it.
        room_bytes: bytes of the buffers that it may fill.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.fed_bytes = self.room_bytes = 0
        monkeypatch.setattr(compression, "zlib", SimpleNamespace(decompressobj=self._member, error=zlib.error))
        codecs = {name: self._counted(getattr(cramjam, name)) for name in ("snappy", "lz4", "zstd")}
        error = cramjam.DecompressionError
        monkeypatch.setattr(compression, "cramjam", SimpleNamespace(**codecs, DecompressionError=error))

    def _count(self, packed: bytes, room_bytes: int) -> None:
        self.calls += 1
        self.fed_bytes += len(packed)
        self.room_bytes += room_bytes

    def _member(self, wbits: int) -> Any:
        member = zlib.decompressobj(wbits)

        class Counted:
            def decompress(counted, part: bytes, room: int) -> bytes:  # noqa: N805
                found = member.decompress(part, room)
                self._count(part, len(found))
                return found

            def __getattr__(counted, name: str) -> Any:  # noqa: N805
                return getattr(member, name)

        return Counted()

    def _counted(self, codec: Any) -> Any:
        def decompress_into(packed: bytes, room: bytearray) -> int:
            self._count(packed, len(room))
            size: int = codec.decompress_into(packed, room)
            return size

        def decompress_raw(packed: bytes) -> bytes:
            found = bytes(codec.decompress_raw(packed))
            self._count(packed, len(found))
            return found

        length = getattr(codec, "decompress_raw_len", None)
        return SimpleNamespace(
            decompress_into=decompress_into, decompress_raw=decompress_raw, decompress_raw_len=length
        )


def decompressed_bytes(hostile: Hostile, limit: int) -> int | None:
    try:
        return len(decompress(hostile.packed, hostile.codec, limit))
    except CorruptError:
        return None


def test_the_bound_decides_whether_records_are_decompressed(hostile: Hostile) -> None:
    assert decompressed_bytes(hostile, 1 << 26) == hostile.plain_bytes
    is_within = hostile.plain_bytes is not None and hostile.plain_bytes <= LIMIT
    assert decompressed_bytes(hostile, LIMIT) == (hostile.plain_bytes if is_within else None)


def test_memory_is_bounded_by_what_may_come_out(hostile: Hostile) -> None:
    tracemalloc.start()
    try:
        decompressed_bytes(hostile, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * LIMIT + 2 * len(hostile.packed) + (256 << 10)


def test_work_is_linear_in_what_goes_in_and_what_may_come_out(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(monkeypatch)
    decompressed_bytes(hostile, LIMIT)
    assert work.fed_bytes <= 32 * len(hostile.packed)
    assert work.room_bytes <= 2 * LIMIT + (128 << 10)
    assert work.calls <= len(hostile.packed) // 5 + 8


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_size_equal_to_the_bound_is_allowed(codec: Codec) -> None:
    for size in (0, 1, 70_000, 1 << 20):
        packed = compress(bytes(size), codec)
        assert decompress(packed, codec, size) == bytes(size)
        if size:
            with pytest.raises(CorruptError, match=f"more than {size - 1} bytes"):
                decompress(packed, codec, size - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_streams_in_a_row_are_read_as_one(codec: Codec) -> None:
    """Java's readers of these formats continue after the first stream."""
    packed = b"".join(compress(part, codec) for part in (b"one", b"", b"x" * 5000, b"two"))
    assert decompress(packed, codec) == b"one" + b"x" * 5000 + b"two"


def test_java_clients_read_the_first_lz4_frame_only_so_there_may_be_no_other() -> None:
    packed = compress(b"one", Codec.LZ4)
    for rest in (packed, b"\0", compress(b"", Codec.LZ4)):
        with pytest.raises(CorruptError, match="bytes after an LZ4 frame"):
            decompress(packed + rest, Codec.LZ4)
