"""Differences between two values of JSON."""

from collections.abc import Iterator
from typing import Any

ABSENT = "(absent)"


def differences(found: Any, expected: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, found and expected value of each difference, at the deepest level that both have."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            yield from differences(found.get(key, ABSENT), expected.get(key, ABSENT), f"{path}/{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, f"{path}/{number}")
    elif found != expected:
        yield path, found, expected
