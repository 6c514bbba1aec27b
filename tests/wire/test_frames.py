"""Frames do not depend on how their bytes arrive."""

import pytest
from hypothesis import given
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
