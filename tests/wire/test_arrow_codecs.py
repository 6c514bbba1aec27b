"""Arrow in the place of cramjam: the same records come out, the same are refused, in as little memory."""

import random
import tracemalloc

import pytest

from kohort.model.errors import CorruptError
from kohort.wire import arrow_codecs, compression
from kohort.wire.compression import Codec, compress, decompress
from tests.wire.hostile_batches import Hostile, corpus

LIMIT = 1 << 20
CODECS = [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CORPUS = [one for one in corpus() if one.codec in CODECS]


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where cramjam is missing."""
    monkeypatch.setattr(compression, "cramjam", arrow_codecs)


def decompressed_bytes(hostile: Hostile, limit: int) -> int | None:
    try:
        return len(decompress(hostile.packed, hostile.codec, limit))
    except CorruptError:
        return None


@pytest.mark.parametrize("codec", CODECS)
def test_what_cramjam_packs_comes_out(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(int(codec))
    plain = [chance.randbytes(size) + b"text " * size for size in (0, 1, 7, 1_000, 40_000)]
    packed = [compress(one, codec) for one in plain]
    monkeypatch.setattr(compression, "cramjam", arrow_codecs)
    assert [decompress(one, codec) for one in packed] == plain


@pytest.mark.usefixtures("arrow")
@pytest.mark.parametrize("hostile", CORPUS, ids=lambda one: f"{one.codec.name}, {one.name}")
def test_the_bound_decides_whether_records_are_decompressed(hostile: Hostile) -> None:
    assert decompressed_bytes(hostile, 1 << 26) == hostile.plain_bytes
    is_within = hostile.plain_bytes is not None and hostile.plain_bytes <= LIMIT
    tracemalloc.start()
    try:
        assert decompressed_bytes(hostile, LIMIT) == (hostile.plain_bytes if is_within else None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * LIMIT + 2 * len(hostile.packed) + (256 << 10)


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_equal_to_the_bound_is_allowed(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = {size: compress(bytes(size), codec) for size in (0, 1, 70_000, 1 << 20)}
    monkeypatch.setattr(compression, "cramjam", arrow_codecs)
    for size, one in packed.items():
        assert decompress(one, codec, size) == bytes(size)
        if size:
            with pytest.raises(CorruptError, match=f"more than {size - 1} bytes"):
                decompress(one, codec, size - 1)


@pytest.mark.usefixtures("arrow")
@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused(codec: Codec) -> None:
    for junk in (b"\xff", b"\xff" * 40, b"\x80" * 20):
        with pytest.raises(CorruptError):
            decompress(junk, codec)
