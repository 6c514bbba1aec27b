"""
Turns of large Fetch answers. Reading a megabyte, copying it into an answer and handing it to the socket holds the event loop
for about a millisecond, so the answers of one turn have a bounded size together. Requests beyond it are handled in later
turns, in the order of arrival; requests of other APIs are handled between them.

Apache Kafka sends records with several threads, from the file to the socket.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kohort.model.limits import COUNTED_BYTES_MIN, FETCH_ANSWER_BYTES_MAX, FETCH_TURN_BYTES_MAX
from kohort.runtime.purgatory import CallLater

NEXT_TURN_MS: Final = 1


class FetchTurns:
    """
    The sizes of the answers of this turn, and the requests that wait for the next ones. All brokers of a process share one.

    Args:
        call_later: runs the next turn.
    """

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_armed = False
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether a request has to wait for a later turn."""
        return self._bytes >= FETCH_TURN_BYTES_MAX

    def count(self, answer_bytes: int) -> None:
        """Count the records of an answer. Small answers are not counted: each costs its client a request."""
        if answer_bytes > COUNTED_BYTES_MIN:
            self._bytes += answer_bytes
            self._arm()

    def wait(self, handle: Callable[[], None]) -> None:
        """Call `handle` in a later turn."""
        self._waiting.append(handle)
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._call_later(NEXT_TURN_MS, self._next_turn)

    def _next_turn(self) -> None:
        """Handle waiting requests. They leave room for the requests that arrive in this turn, most of which are small."""
        self._is_armed = False
        self._bytes = 0
        waiting = self._waiting
        while waiting and self._bytes < FETCH_ANSWER_BYTES_MAX:
            waiting.popleft()()
        if waiting:
            self._arm()
