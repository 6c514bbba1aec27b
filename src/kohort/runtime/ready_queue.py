"""
The callbacks at the end of a turn of the event loop. Requests that arrive in one turn share one record batch, one append, one
flush, and one write of replies.
"""

import logging
from collections import deque
from collections.abc import Callable

_log = logging.getLogger("kohort.runtime")


class ReadyQueue:
    """
    A queue of callbacks that run at the end of the current turn, first in, first out.

    Args:
        wake: asks the event loop to call `run` at the end of the turn (asyncio: `loop.call_soon`).
    """

    __slots__ = ("_queue", "_running", "_wake")

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._queue: deque[Callable[[], None]] = deque()
        self._running = False

    def defer(self, action: Callable[[], None]) -> None:
        """Run `action` at the end of the current turn; also if another deferred action calls this."""
        if not self._queue and not self._running:
            self._wake(self.run)
        self._queue.append(action)

    def run(self) -> None:
        """Run deferred actions until none is left; the failure of one does not stop the others."""
        if self._running:
            return
        self._running = True
        queue = self._queue
        try:
            while queue:
                try:
                    queue.popleft()()
                except Exception:  # noqa: BLE001 -- the loop of the node: the failure is logged, the loop goes on
                    _log.exception("turn.failed")
        finally:
            self._running = False
