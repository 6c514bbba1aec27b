"""
Long work in slices: the event loop runs one slice of one work in each turn, and everything else between two slices.

A work is a generator that yields at least every millisecond. It yields None, or a function `wait(resume)` if it has to wait:
the next step is taken when `resume` was called, on the event loop. The works of different connections take turns: a connection
with a long request delays the requests of others by a slice.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, Protocol

from kohort.model.limits import LONG_REQUESTS_MAX

_log = logging.getLogger("kohort.server")

SLICE_SECONDS: Final = 0.004
"""A slice ends with the step that exceeds it."""

Steps = Generator[Any, None, Any]


class Work(Protocol):
    """The owner of a long work."""

    def is_wanted(self) -> bool:
        """Whether to go on; if not, the work is dropped and nothing more is called."""

    def done(self, result: Any, error: Exception | None, /) -> None:
        """Take what the generator returned or raised."""


class Slices:
    """
    The long works of a node.

    Args:
        call_soon: calls a function in the next turn of the event loop.
        now: the time in seconds.

    Attributes:
        steps: how many steps were taken so far.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._call_soon = call_soon
        self._now = now
        self._active: deque[tuple[Work, Steps]] = deque()
        self._waiting: deque[tuple[Work, Steps]] = deque()
        self._parked: dict[Steps, Work] = {}
        """Works that wait for something."""
        self._is_scheduled = False
        self._is_closed = False
        self.steps = 0

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting) + len(self._parked)

    def close(self) -> None:
        """Drop all works, and those that are added later."""
        self._is_closed = True
        while self._active or self._waiting or self._parked:
            # The end of one work may let another one go on.
            for works in (self._active, self._waiting):
                while works:
                    works.popleft()[1].close()
            if self._parked:
                self._parked.popitem()[0].close()

    def add(self, work: Work, steps: Steps) -> None:
        """Take the remaining steps of a work in the next turns."""
        if self._is_closed:
            steps.close()
            return
        (self._active if len(self._active) < LONG_REQUESTS_MAX else self._waiting).append((work, steps))
        self._schedule()

    def _schedule(self) -> None:
        if self._active and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if not self._active:
            return
        work, steps = self._active.popleft()
        try:
            if not work.is_wanted():
                steps.close()
            elif self._slice(work, steps):
                self._active.append((work, steps))
        except Exception:  # noqa: BLE001 -- the loop of the node: the failure is logged, the loop goes on
            _log.exception("slice.failed")
        if self._waiting and len(self._active) < LONG_REQUESTS_MAX:
            self._active.append(self._waiting.popleft())
        self._schedule()

    def _slice(self, work: Work, steps: Steps) -> bool:
        """Take steps for a slice of time; returns whether there are more to be taken in the next turns."""
        until = self._now() + SLICE_SECONDS
        result: Any = None
        error: Exception | None = None
        try:
            while True:
                wait = next(steps)
                self.steps += 1
                if wait is not None:
                    self._parked[steps] = work
                    wait(partial(self._resume, steps))
                    return False
                if self._now() >= until:
                    return True
        except StopIteration as end:
            result = end.value
        except Exception as exc:  # noqa: BLE001 -- the owner decides what follows from it
            error = exc
        work.done(result, error)
        return False

    def _resume(self, steps: Steps) -> None:
        """Go on with a work that waited. It has its place among those that were begun."""
        work = self._parked.pop(steps, None)
        if work is not None:
            self._active.append((work, steps))
            self._schedule()
