"""Decompression into a room: the result of decompression at once, for sound, hostile and damaged data of every codec."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.model.errors import CorruptError
from kohort.wire.compression import Codec, TooLargeError, compress, decompress
from kohort.wire.scanning.room import Room
from tests.wire.hostile_batches import Hostile, corpus

BYTES_MAX = 4 << 20
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
ROOM = Room(BYTES_MAX)


def outcome(decompressed: Callable[[], Any]) -> bytes | type[Exception]:
    try:
        return bytes(decompressed())
    except CorruptError as error:
        return type(error)


@pytest.mark.parametrize("hostile", list(corpus()), ids=lambda each: f"{each.codec.name} {each.name}")
def test_the_corpus_gives_the_same(hostile: Hostile) -> None:
    for packed in (hostile.packed, hostile.packed[:-1], hostile.packed + b"\0"):
        expected = outcome(partial(decompress, packed, hostile.codec, BYTES_MAX))
        assert outcome(partial(ROOM.decompress, packed, hostile.codec)) == expected
        for _ in ROOM.release():
            pass


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_about_the_bound(codec: Codec) -> None:
    for size in (0, 1, BYTES_MAX - 1, BYTES_MAX):
        packed = compress(bytes(size), codec)
        assert len(ROOM.decompress(packed, codec)) == size
    with pytest.raises(TooLargeError):
        ROOM.decompress(compress(bytes(BYTES_MAX + 1), codec), codec)


def test_the_room_is_empty_again_after_its_release() -> None:
    room = Room(BYTES_MAX)
    view = room.decompress(compress(b"x" * BYTES_MAX, Codec.ZSTD), Codec.ZSTD)
    assert set(view) == {ord("x")}
    assert len(list(room.release())) > 0
    assert not any(view)
    assert not list(room.release())
    assert bytes(room.decompress(compress(b"again", Codec.GZIP), Codec.GZIP)) == b"again"


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptError, match="unknown compression codec 7"):
        ROOM.decompress(b"", 7)
