"""Wait for another process, with a timeout."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 0.02
PATIENCE_S = 300
"""Long enough for a busy machine. A test that reaches it has failed."""


def wait_until(
    condition: Callable[[], T],
    *,
    what: str | Callable[[], str],
    timeout_s: float = PATIENCE_S,
    interval_s: float = INTERVAL_S,
) -> T:
    """
    Poll a condition until it is true, and return its value.

    Args:
        what: the event, for the message; or a function that returns it.

    Raises:
        AssertionError: the timeout has passed.
    """
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what if isinstance(what, str) else what()}")
        time.sleep(interval_s)
    return result
