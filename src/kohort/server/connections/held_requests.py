"""
The bytes of requests that have arrived and are not handled yet, of all connections together.

They are unfinished frames, frames behind a request in flight, and long requests that are worked on. Up to
`COUNTED_BYTES_MIN` of a connection do not count, so small requests pass. Beyond the bound, a connection with an unfinished
frame is not read until the sum has fallen, except one: that with the fewest missing bytes. So a connection that is alone always
makes progress. Clients that neither go on nor are held back themselves are disconnected, those with the most bytes first.

Source: Kafka `queued.max.request.bytes`, MemoryPool; there a client that stops in a frame holds up the others until it is idle.
"""

import logging
from typing import Final, Protocol

from kohort.model.limits import COUNTED_BYTES_MIN, HELD_BYTES_MAX, STALLED_SECONDS_MAX

_log: Final = logging.getLogger("kohort.server")


class HeldConnection(Protocol):
    """
    A connection whose bytes are counted; `ClientConnection` implements it.

    Attributes:
        held_bytes: the bytes that are counted.
    """

    client_host: str
    held_bytes: int

    @property
    def missing_bytes(self) -> int: ...
    @property
    def is_worked_on(self) -> bool: ...
    def set_full(self, *, is_full: bool) -> None: ...
    def abort(self) -> None: ...


class HeldRequests:
    """
    Attributes:
        bytes: the sum.
        bytes_max: its bound. One frame may exceed it, and of each connection the bytes that arrive at once.
    """

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self._seen: dict[HeldConnection, tuple[int, float]] = {}
        """The connections with counted bytes: how many they were when a check found progress, and the time of that check."""
        self._paused: dict[HeldConnection, None] = {}
        self._first: HeldConnection | None = None
        """The connection that is read although the bound is exceeded."""

    def count(self, connection: HeldConnection, held_bytes: int) -> None:
        """Count the bytes that a connection holds now, and decide who is read."""
        self.bytes += held_bytes - connection.held_bytes
        connection.held_bytes = held_bytes
        if held_bytes:
            self._seen.setdefault(connection, (0, 0.0))
        else:
            self._seen.pop(connection, None)
            self._paused.pop(connection, None)
            if self._first is connection:
                self._first = None
        if self.bytes <= self.bytes_max:
            self._resume_all()
        elif held_bytes and connection is not self._first and connection.missing_bytes:
            self._pause(connection)
            if self._first is not None and connection.missing_bytes < self._first.missing_bytes:
                self._pause(self._first)
                self._first = None
        if self._first is None and self._paused:
            self._first = min(self._paused, key=lambda each: each.missing_bytes)
            self._resume(self._first)

    def _pause(self, connection: HeldConnection) -> None:
        self._paused[connection] = None
        self._seen[connection] = 0, 0.0
        connection.set_full(is_full=True)

    def _resume(self, connection: HeldConnection) -> None:
        self._paused.pop(connection, None)
        connection.set_full(is_full=False)

    def _resume_all(self) -> None:
        self._first = None
        for connection in list(self._paused):
            self._resume(connection)

    def abort_stalled(self, now: float) -> None:
        """Make room: disconnect clients whose requests do not go on. Called periodically."""
        if self.bytes <= self.bytes_max:
            return
        for connection in sorted(self._seen, key=lambda each: each.held_bytes, reverse=True):
            seen_bytes, since = self._seen[connection]
            if connection in self._paused or connection.is_worked_on:
                continue
            if not since or abs(connection.held_bytes - seen_bytes) >= COUNTED_BYTES_MIN:
                self._seen[connection] = connection.held_bytes, now
            elif now - since > STALLED_SECONDS_MAX:
                client, held_bytes = connection.client_host, connection.held_bytes
                _log.warning("connection.stalled client=%s held_bytes=%d", client, held_bytes, extra={"client": client})
                connection.abort()
                self.count(connection, 0)
                if self.bytes <= self.bytes_max:
                    return
