"""Waiting for something that another process does, with a bound."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL_S = 0.02
PATIENCE_S = 300
"""For what is to come: who waits in vain has failed however long it took, and a busy machine may be slow."""


def wait_until(condition: Callable[[], T], *, what: str | Callable[[], str], timeout_s: float = PATIENCE_S) -> T:
    """
    What `condition` returns when it is first true.

    Args:
        what: is waited for; or makes these words when the time is up.

    Raises:
        AssertionError: the time is up.
    """
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what if isinstance(what, str) else what()}")
        time.sleep(INTERVAL_S)
    return result
