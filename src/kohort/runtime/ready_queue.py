"""
One turn of the node: what is deferred while input is handled runs before the node waits again.

Everything that arrives together thus shares one record batch, one append, one flush, and one write of replies.
"""

import logging
from collections import deque
from collections.abc import Callable

_log = logging.getLogger("kohort.runtime")


class ReadyQueue:
    """
    A queue of things to do at the end of the present turn, first in, first out.

    `wake` asks the owner's loop to call `run` once it has handled what it is handling (for asyncio: `loop.call_soon`).
    """

    __slots__ = ("_queue", "_running", "_wake")

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._queue: deque[Callable[[], None]] = deque()
        self._running = False

    def defer(self, action: Callable[[], None]) -> None:
        """Run `action` before the node waits for input again. What is deferred by an action runs in the same turn."""
        if not self._queue and not self._running:
            self._wake(self.run)
        self._queue.append(action)

    def run(self) -> None:
        """Do what was deferred until nothing is left; one action's failure does not stop the others."""
        if self._running:
            return
        self._running = True
        queue = self._queue
        try:
            while queue:
                try:
                    queue.popleft()()
                except Exception:  # noqa: BLE001 -- the loop of the node: what failed is logged, the rest goes on
                    _log.exception("turn.failed")
        finally:
            self._running = False
