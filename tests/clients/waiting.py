"""Waiting for something that another process does, with a bound."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 0.02


def wait_until(condition: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """
    What `condition` returns when it is first true.

    Raises:
        AssertionError: the time is up; `what` says what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(INTERVAL_S)
    return result
