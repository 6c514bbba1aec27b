"""
Java properties files: `server.properties`, `meta.properties`, and the files that Kafka's tools take with `--command-config`.

Source: java.util.Properties.load, except that escapes inside names and values stay as they are.
"""

import re
from collections.abc import Iterator

_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
"""An odd number of backslashes at the end of a line."""


def parse_properties(text: str, *, is_strict: bool = False) -> dict[str, str]:
    """
    The values by name; the last one of a name counts.

    A line is `name=value`, `name:value` or `name value`. A line that starts with # or ! is a comment; a line that ends in a
    backslash continues on the next one.

    Raises:
        ValueError: with `is_strict`, a line has no separator or no name; the text names the line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        separator = _SEPARATOR.search(line)
        if is_strict and not (separator and separator.start()):
            raise ValueError(f"line {number}: {line!r} is not name=value")
        if separator is None:
            found[line] = ""
        else:
            found[line[: separator.start()]] = line[separator.end() :]
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments, continued ones joined, with the number of their first line."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        piece = line.lstrip()
        if not parts:
            if not piece or piece[0] in "#!":
                continue
            first = number
        if _CONTINUED.search(piece):
            parts.append(piece[:-1])
            continue
        yield first, "".join([*parts, piece]).strip()
        parts = []
    if parts:
        yield first, "".join(parts).strip()
