"""Suggestions for names that do not exist."""

from collections.abc import Iterable


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the name most like an unknown one; empty if none is like it."""
    from difflib import get_close_matches  # The import takes a start's time.

    lower = {one.lower(): one for one in names}
    found = get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[found[0]]}?" if found else ""
