"""Frames do not depend on how their bytes arrive."""

import tracemalloc
from itertools import cycle
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import WireError
from kohort.wire.frames import FRAME_BYTES_MAX, FrameReader


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_any_cut_into_chunks_gives_the_same_frames(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    frames: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += reader.feed(stream[start:end])
    assert frames == payloads
    assert all(type(frame) is bytes for frame in frames)
    assert reader.buffered_bytes == 0


@given(
    sizes=st.lists(st.integers(0, 150_000), min_size=1, max_size=3),
    chunks=st.lists(st.sampled_from([1, 3, 4, 100, 16_383, 16_384, 65_536, 256_000]), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_large_frames_in_chunks_of_any_size(sizes: list[int], chunks: list[int]) -> None:
    payloads = [Random(size).randbytes(size) for size in sizes]
    stream = b"".join(framed(payload) for payload in payloads)
    reader = FrameReader()
    frames: list[bytes] = []
    position, sizes_of_chunks = 0, cycle(chunks)
    while position < len(stream):
        # A byte at a time would take long; a small chunk is followed by a large one.
        size = next(sizes_of_chunks)
        frames += reader.feed(stream[position : position + size])
        frames += reader.feed(stream[position + size : position + size + 9_000])
        position += size + 9_000
    assert frames == payloads
    assert all(type(frame) is bytes for frame in frames)
    assert reader.buffered_bytes == 0


def test_a_large_frame_in_small_chunks_takes_little_more_than_itself() -> None:
    """A piece of memory for each byte would be thirty times as much."""
    size = 1 << 18
    reader = FrameReader()
    reader.feed(size.to_bytes(4, "big"))
    tracemalloc.start()
    for _ in range(size - 1):
        reader.feed(b"x")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.buffered_bytes == size - 1
    assert held < 1.5 * size
    assert reader.feed(b"x") == [b"x" * size]


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=4))
def test_byte_by_byte(payloads: list[bytes]) -> None:
    reader = FrameReader()
    frames: list[bytes] = []
    for byte in b"".join(framed(payload) for payload in payloads):
        frames += reader.feed(bytes([byte]))
    assert frames == payloads


SIZES = {  # size: taken by a reader with a limit of 100 bytes
    -(1 << 31): False,
    -1: False,
    0: True,
    99: True,
    100: True,
    101: False,
    (1 << 31) - 1: False,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunks", [1, 2])
def test_sizes_are_judged_before_anything_is_kept(size: int, chunks: int) -> None:
    head = size.to_bytes(4, "big", signed=True)
    reader = FrameReader(frame_bytes_max=100)

    def feed() -> list[bytes]:
        return reader.feed(head) if chunks == 1 else reader.feed(head[:2]) + reader.feed(head[2:])

    if not SIZES[size]:
        with pytest.raises(WireError):
            feed()
        return
    assert feed() + reader.feed(bytes(size)) == [bytes(size)]


def test_a_size_beyond_the_limit_is_refused_behind_a_whole_frame_too() -> None:
    with pytest.raises(WireError):
        FrameReader(frame_bytes_max=10).feed(framed(b"fine") + framed(b"not so fine"))


def test_a_whole_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(WireError):
        FrameReader(frame_bytes_max=10).feed(framed(b"not so fine"))


def test_the_limit_is_kafkas() -> None:
    assert FRAME_BYTES_MAX == 104_857_600
    assert FrameReader().feed(FRAME_BYTES_MAX.to_bytes(4, "big")) == []
    with pytest.raises(WireError):
        FrameReader().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
