"""Numbers in texts are read and printed as by Java. The answers were given by Apache Kafka 4.2.1 and its Java."""

# ruff: noqa: RUF001 -- digits of many scripts

import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.numbers import double_text, is_number, parse_double, parse_integer, trim

INF = math.inf
# fmt: off
INTEGERS: dict[str, int | None] = {  # as integers of 32 bits
    "0": 0, "+5": 5, "-5": -5, "007": 7, "-0": 0, "2147483647": 2**31 - 1, "-2147483648": -(2**31),
    "0" * 5_000 + "1": 1, "-" + "0" * 5_000: 0,
    "١٢٣٤": 1234, "１２３": 123, "-５": -5, "٠" * 5_000 + "١": 1,
    "": None, "+": None, "-": None, "+-5": None, "5-": None, " 5": None, "1_000": None, "0x5": None, "5.0": None, "²": None,
    "𝟓": None, "五": None, "2147483648": None, "-2147483649": None, "1" * 4_301: None, "-" + "9" * 20_000: None, "5\n": None,
}
DOUBLES: dict[str, float | None] = {
    "0.5": 0.5, "5": 5.0, ".5": 0.5, "5.": 5.0, "+1e3": 1000.0, "-1E-3": -0.001, "0.5f": 0.5, "0.5D": 0.5, " 5\x01": 5.0,
    "0x1p-1": 0.5, "-0X1.8P+1d": -3.0, "0x.8p0": 0.5, "1e400": INF, "-1e400": -INF, "1e-400": 0.0, "0x1p9999": INF,
    "-0x1p9999": -INF, "0x1p-9999": 0.0, "Infinity": INF, "-Infinity": -INF, "+Infinity": INF, "4.9e-324": 5e-324,
    "1" * 5_000: INF, "0." + "0" * 5_000 + "1": 0.0, "0" * 5_000 + "2": 2.0, "1e" + "9" * 5_000: INF,
    "": None, ".": None, "e5": None, "1e": None, "0x1": None, "0x.p1": None, "inf": None, "nan": None, "infinity": None,
    "0_1.0": None, "٠.٥": None, "٥": None, "1 2": None, "5ff": None, "\u20035": None, "--5": None, "1,5": None,
    "1" * 5_000 + "x": None,
    "1" * 30_000 + "x": None, "." + "1" * 30_000 + "x": None, "0x" + "1" * 30_000: None,
}
TEXTS: dict[float, str] = {
    0.0: "0.0", 0.5: "0.5", 1.0: "1.0", 100.0: "100.0", 0.001: "0.001", 1e-5: "1.0E-5", 9999999.0: "9999999.0", 1e7: "1.0E7",
    123456.789: "123456.789", 1.7976931348623157e308: "1.7976931348623157E308", 5e-324: "4.9E-324", -1.5e10: "-1.5E10",
    1e23: "1.0E23", 2.2250738585072014e-308: "2.2250738585072014E-308", INF: "Infinity", -INF: "-Infinity",
}
# fmt: on


@pytest.mark.parametrize("text", INTEGERS, ids=lambda text: ascii(text)[:30])
def test_integers(text: str) -> None:
    if (expected := INTEGERS[text]) is None:
        with pytest.raises(ValueError, match="not an integer of 32 bits"):
            parse_integer(text, 32)
    else:
        assert parse_integer(text, 32) == expected


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_the_edges_of_integers(bits: int) -> None:
    least, most = -1 << (bits - 1), (1 << (bits - 1)) - 1
    assert [parse_integer(str(number), bits) for number in (least, most)] == [least, most]
    for number in (least - 1, most + 1):
        with pytest.raises(ValueError, match=f"not an integer of {bits} bits"):
            parse_integer(str(number), bits)


@pytest.mark.parametrize("text", DOUBLES, ids=lambda text: ascii(text)[:30])
def test_doubles(text: str) -> None:
    if (expected := DOUBLES[text]) is None:
        with pytest.raises(ValueError, match="not a number"):
            parse_double(text)
    else:
        assert parse_double(text) == expected


def test_not_a_number() -> None:
    assert all(math.isnan(parse_double(text)) for text in ("NaN", "+NaN", "-NaN"))
    assert double_text(math.nan) == "NaN"


@pytest.mark.parametrize("value", TEXTS)
def test_texts_of_doubles(value: float) -> None:
    assert double_text(value) == TEXTS[value]
    assert double_text(-value) == (TEXTS[value][1:] if value < 0 else f"-{TEXTS[value]}")


@given(st.floats(allow_nan=False))
def test_a_double_is_read_as_it_was_printed(value: float) -> None:
    assert struct.pack("d", parse_double(double_text(value))) == struct.pack("d", value)


@given(st.text() | st.text("0123456789.eExXpP+-_fFdDaNnIity ٥５"))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    for parse in (parse_double, lambda text: parse_integer(text, 64)):
        with suppress(ValueError):
            assert isinstance(parse(text), int | float)


def test_blanks_are_those_of_java() -> None:
    assert trim("\0\x1f 5\x01\n") == "5"
    assert trim("\u20035\xa0") == "\u20035\xa0"


def test_numbers_of_the_command_line() -> None:
    assert [is_number(text, 1, 9) for text in ("1", "9", "0009", "0" * 5_000 + "9")] == [True] * 4
    assert [is_number(text, 1, 9) for text in ("", "0", "10", "-1", "+1", "٥", "²", "9" * 5_000)] == [False] * 8
