"""The primitive types: known bytes, and what is written is read."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import WireError
from kohort.wire import primitives

UVARINTS = {
    0: "00",
    1: "01",
    127: "7f",
    128: "8001",
    300: "ac02",
    16_383: "ff7f",
    16_384: "808001",
    2**32 - 1: "ffffffff0f",
}
VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    -2: "03",
    63: "7e",
    -64: "7f",
    64: "8001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
}


def written(write: Callable[[bytearray, Any], None], value: Any) -> bytes:
    out = bytearray(b"before")
    write(out, value)
    return bytes(out[6:])


@pytest.mark.parametrize(("value", "data"), UVARINTS.items())
def test_unsigned_varints(value: int, data: str) -> None:
    assert written(primitives.write_uvarint, value).hex() == data
    assert primitives.read_uvarint(b"x" + bytes.fromhex(data) + b"y", 1) == (value, 1 + len(data) // 2)


@pytest.mark.parametrize(("value", "data"), VARINTS.items())
def test_signed_varints(value: int, data: str) -> None:
    assert written(primitives.write_varint, value).hex() == data
    assert primitives.read_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)


KINDS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "string": (primitives.write_string, primitives.read_string, st.none() | st.text()),
    "compact string": (primitives.write_compact_string, primitives.read_compact_string, st.none() | st.text()),
    "bytes": (primitives.write_bytes, primitives.read_bytes, st.none() | st.binary()),
    "compact bytes": (primitives.write_compact_bytes, primitives.read_compact_bytes, st.none() | st.binary()),
    "unsigned varint": (primitives.write_uvarint, primitives.read_uvarint, st.integers(0, 2**32 - 1)),
    "varint": (primitives.write_varint, primitives.read_varint, st.integers(-(2**31), 2**31 - 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_what_is_written_is_read_and_no_prefix_of_it(kind: str, data: st.DataObject) -> None:
    write, read, values = KINDS[kind]
    value = data.draw(values)
    encoded = written(write, value)
    assert read(b"ab" + encoded + b"tail", 2) == (value, 2 + len(encoded))
    with pytest.raises(WireError):
        read(encoded[: data.draw(st.integers(0, len(encoded) - 1))], 0)


LENGTHS = {
    "string": ("0001 61", "ffff"),
    "compact string": ("02 61", "00"),
    "bytes": ("00000001 61", "ffffffff"),
    "compact bytes": ("02 61", "00"),
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_the_bytes_of_lengths(kind: str) -> None:
    write, _, _ = KINDS[kind]
    one, null = LENGTHS[kind]
    assert written(write, "a" if "string" in kind else b"a") == bytes.fromhex(one)
    assert written(write, None) == bytes.fromhex(null)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (primitives.read_string, "fffe"),
        (primitives.read_bytes, "fffffffe"),
        (primitives.read_string, "0001 ff"),
        (primitives.read_compact_string, "02 ff"),
        (primitives.read_uvarint, "808080808001"),
        (primitives.read_compact_bytes, "ffffffff0f"),
        (primitives.read_bytes, "7fffffff"),
    ],
)
def test_what_means_nothing_is_refused(read: Any, data: str) -> None:
    with pytest.raises(WireError):
        read(bytes.fromhex(data), 0)


def test_a_string_that_is_too_long_for_its_length_is_refused() -> None:
    assert len(written(primitives.write_string, "x" * 0x7FFF)) == 0x7FFF + 2
    with pytest.raises(WireError):
        written(primitives.write_string, "x" * 0x8000)
