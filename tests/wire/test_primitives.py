"""The primitive types that are written by hand: known bytes, and refused ones."""

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
STRINGS: list[tuple[str | None, str, str]] = [
    (None, "ffff", "00"),
    ("", "0000", "01"),
    ("grün", "0005 6772c3bc6e", "06 6772c3bc6e"),
    ("x" * 126, "007e" + "78" * 126, "7f" + "78" * 126),
    ("x" * 127, "007f" + "78" * 127, "8001" + "78" * 127),
]


def written(write: Callable[[bytearray, Any], None], value: Any) -> bytes:
    out = bytearray(b"before")
    write(out, value)
    return bytes(out[6:])


@pytest.mark.parametrize(("value", "data"), UVARINTS.items())
def test_unsigned_varints(value: int, data: str) -> None:
    assert written(primitives.write_uvarint, value).hex() == data
    assert primitives.read_uvarint(b"x" + bytes.fromhex(data) + b"y", 1) == (value, 1 + len(data) // 2)


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_varint_is_read_again(value: int) -> None:
    data = written(primitives.write_uvarint, value)
    assert primitives.read_uvarint(data, 0) == (value, len(data))


@pytest.mark.parametrize(("value", "data"), VARINTS.items())
def test_signed_varints(value: int, data: str) -> None:
    assert written(primitives.write_varint, value).hex() == data


@pytest.mark.parametrize(("value", "fixed", "compact"), STRINGS)
def test_strings(value: str | None, fixed: str, compact: str) -> None:
    assert written(primitives.write_string, value) == bytes.fromhex(fixed)
    assert written(primitives.write_compact_string, value) == bytes.fromhex(compact)


@pytest.mark.parametrize("data", ["", "80", "ffff", "ffffffffff01", "808080808000"])
def test_a_varint_that_ends_early_or_never_is_refused(data: str) -> None:
    with pytest.raises(WireError):
        primitives.read_uvarint(bytes.fromhex(data), 0)


def test_a_string_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(WireError):
        written(primitives.write_string, "x" * 32_768)
    assert len(written(primitives.write_string, "x" * 32_767)) == 32_769
