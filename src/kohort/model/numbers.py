"""
Numbers in texts, as Java reads and prints them, and numbers of the command line.

Source: java.lang.Integer.parseInt, Long.parseLong, Double.parseDouble, Double.toString, String.trim.
"""

import re
from typing import Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

_BLANKS: Final = "".join(map(chr, range(33)))
_DIGITS_MAX: Final = 19
"""Digits of the largest integer of 64 bits."""
_BASIC_PLANE_MAX: Final = "\uffff"
"""Java reads an integer by UTF-16 units, so digits beyond the basic plane are not digits."""

# Possessive quantifiers: a text that does not match is refused in one walk.
_DECIMAL: Final = re.compile(r"[+-]?+(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?+\d++)?+[fFdD]?+", re.ASCII)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?+0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?+|\.[0-9a-fA-F]++)[pP][+-]?+\d++)[fFdD]?+", re.ASCII
)
_NAMED: Final = {"NaN": float("nan"), "Infinity": float("inf")}


def trim(text: str) -> str:
    """The text without control characters and spaces at both ends. Other blanks stay, as in Java."""
    return text.strip(_BLANKS)


def parse_integer(text: str, bits: int) -> int:
    """
    Parse an integer of 16, 32 or 64 bits: an optional sign, and decimal digits of any script.

    Raises:
        ValueError: the text is something else, or the number has more bits.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > _BASIC_PLANE_MAX:
        raise ValueError(f"not an integer of {bits} bits")
    if not digits.isascii():
        digits = "".join(str(int(digit)) for digit in digits)
    digits = digits.lstrip("0")
    number = int(digits or "0") if len(digits) <= _DIGITS_MAX else 1 << bits
    if text[0] == "-":
        number = -number
    if not -1 << (bits - 1) <= number < 1 << (bits - 1):
        raise ValueError(f"not an integer of {bits} bits")
    return number


def parse_double(text: str) -> float:
    """
    Parse a double: decimal or hexadecimal, with an optional suffix, `NaN` or `Infinity`.

    Raises:
        ValueError: the text is something else.
    """
    trimmed = trim(text)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if match := _HEXADECIMAL.fullmatch(trimmed):
        return _from_hexadecimal(match[1])
    sign = trimmed[:1] if trimmed[:1] in ("+", "-") else ""
    value = _NAMED.get(trimmed[len(sign) :])
    if value is None:
        raise ValueError("not a number")
    return -value if sign == "-" else value


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf") if text[0] == "-" else float("inf")


def double_text(value: float) -> str:
    """The text of a double. Source: Double.toString of Java 19 and newer, which prints the shortest digits."""
    if value != value:
        return "NaN"
    sign = "-" if str(value)[0] == "-" else ""
    if value in (float("inf"), float("-inf")):
        return f"{sign}Infinity"
    digits, point = _shortest(abs(value))
    if not -3 <= point < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point}"
    if point < 0:
        return f"{sign}0.{'0' * (-point - 1)}{digits}"
    whole = digits[: point + 1].ljust(point + 1, "0")
    return f"{sign}{whole}.{digits[point + 1 :] or '0'}"


def _shortest(value: float) -> tuple[str, int]:
    """
    The fewest digits that are the value again, the first before the point, and the exponent of ten.

    If one digit is enough, it is the first of the nearest two: Java prints the smallest double as 4.9E-324.
    """
    text = next(text for places in range(1, 17) if float(text := f"{value:.{places}e}") == value)
    mantissa, _, exponent = text.partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


def is_port(text: str, least: int = 1) -> bool:
    """Whether a text is the number of a port, in ASCII digits."""
    return is_number(text, least, 65_535)


def is_number(text: str, least: int, most: int) -> bool:
    """Whether a text of ASCII digits is a number from `least` to `most`. A text of any length is refused quickly."""
    significant = text.lstrip("0")
    is_short = text.isascii() and text.isdecimal() and len(significant) <= _DIGITS_MAX
    return is_short and least <= int(significant or "0") <= most
