"""Texts of clients on terminals, in logs and on pages: control characters are escaped, so that no name can move a cursor."""

import re
from functools import cache


@cache
def _controls(ascii_part: str = "\x00-\x1f") -> re.Pattern[str]:
    """
    Control characters of ASCII and Latin-1; separators of lines, and marks that change the direction of writing.

    Compiled at the first use: that takes a hundredth of a start.
    """
    return re.compile(f"[{ascii_part}\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _controls_without_newline() -> re.Pattern[str]:
    return _controls("\x00-\x09\x0b-\x1f")


def printable(text: str) -> str:
    """The text on one line, with control characters as `\\x1b`, `\\n` or `\\u2028`."""
    return text if text.isprintable() else _controls().sub(_escaped, text)


def printable_lines(text: str) -> str:
    """As `printable`, with newlines as they are."""
    return _controls_without_newline().sub(_escaped, text)


def printable_json(text: str) -> str:
    """As `printable_lines`, for JSON: the characters that JSON lets pass in strings."""
    return _controls_without_newline().sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
