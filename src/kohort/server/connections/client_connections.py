"""
All connections of a process: the bounds that they share, idle connections, stalled connections, and their end.

Source: Kafka SocketServer, Selector.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from kohort.model.limits import (
    CLOSING_SECONDS_MAX,
    FETCH_BYTES_ALWAYS,
    HELD_BYTES_MAX,
    STALLED_SECONDS_MAX,
    UNSENT_BYTES_MAX,
)
from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.connections.connection_limits import ConnectionLimits, ListenerLimits
from kohort.server.connections.held_requests import HeldRequests
from kohort.server.requests.dispatch import Dispatch, Route
from kohort.server.requests.slices import Slices
from kohort.wire.templates import Memory

CallLater: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


def loop_call_later(seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
    """Call a function later, on the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, function)


class ServedEndpoint(NamedTuple):
    """One listener of one broker."""

    node_id: int
    listener: str
    dispatch: Dispatch
    limits: ListenerLimits


class OpenConnection(Protocol):
    """
    One connection; `ClientSocket` implements it and describes its attributes.

    Its methods are called periodically or at its end, never for a request.
    """

    endpoint: ServedEndpoint
    was_used: bool
    used_at: float
    unsent_bytes: int

    @property
    def has_begun_requests(self) -> bool: ...
    def check_progress(self) -> None: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...
    def close_idle(self) -> None: ...
    def abort(self) -> None: ...
    def abort_stalled(self) -> None: ...


class ClientConnections:
    """
    The connections of all brokers of a process, and the objects that they share.

    Attributes:
        dispatches: of the brokers, by their id.
        limits: of the brokers, by their id: how many connections there may be, and how many there are.
        closing: closed connections whose client has not taken the last replies, with the time of the check that found them so.
        slow: the connections whose client has not taken more than `COUNTED_BYTES_MIN` of replies.
        unsent_bytes: the replies of these connections, as of the last look at each.
        unsent_bytes_max: the bound of `unsent_bytes`.
        held: the bytes of requests that have arrived and are not handled yet.
        abandoned_bytes: the requests that are worked on although their client has disconnected.
        throttled: connections that are not read for a time because of a quota.
        call_later: `call_later(seconds, function)` of the event loop.
        is_draining: whether the node is stopping, so that no further request is taken.
        guard: stands between connections and their transports, of nodes that answer under a lease; None for others.
    """

    def __init__(
        self,
        dispatches: Mapping[int, Dispatch],
        ready_queue: ReadyQueue,
        slices: Slices,
        limits: Mapping[int, ConnectionLimits],
        *,
        frame_bytes_max: int,
        held_bytes_max: int = HELD_BYTES_MAX,
        call_later: CallLater = loop_call_later,
    ) -> None:
        self.limits = limits
        self.dispatches = dispatches
        self.slices = slices
        self.ready_queue = ready_queue
        self.frame_bytes_max = frame_bytes_max
        self.memory = Memory()
        self.open: set[OpenConnection] = set()
        self.closing: dict[OpenConnection, float] = {}
        self.slow: set[OpenConnection] = set()
        self.unsent_bytes = 0
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self.held = HeldRequests(held_bytes_max)
        self.abandoned_bytes = 0
        self.throttled = 0
        self.call_later = call_later
        self.is_draining = False
        self.guard: Callable[[asyncio.Transport], asyncio.Transport] | None = None

    def guarded(self, transport: asyncio.Transport) -> asyncio.Transport:
        """The transport of a new connection as the connection sees it."""
        return transport if self.guard is None else self.guard(transport)

    @property
    def routes(self) -> list[Route]:
        """The routes in use so far, of all brokers."""
        return [route for dispatch in self.dispatches.values() for route in dispatch.used]

    @property
    def accepted(self) -> int:
        """How many connections have been accepted so far, by all brokers."""
        return sum(limits.accepted for limits in self.limits.values())

    def fetch_bytes_left(self) -> int:
        """How many bytes of records the next Fetch response may have, so that clients that do not read share one bound."""
        return max(self.unsent_bytes_max - self.unsent_bytes, FETCH_BYTES_ALWAYS)

    def is_overfull(self) -> bool:
        """Whether unsent replies take twice their bound, also after a new look at all of them."""
        if self.unsent_bytes > 2 * self.unsent_bytes_max:
            for connection in list(self.slow):
                connection.check_progress()
        return self.unsent_bytes > 2 * self.unsent_bytes_max

    def close_idle(self, now: float, idle_seconds_max: float) -> None:
        """
        Close the connections that were idle for longer than `idle_seconds_max` at the time `now`.

        Called periodically. A connection only sets a flag when it is used, which is cheaper than reading the clock. The replies
        of an idle connection that its client has not taken are dropped, as in Kafka.
        """
        for connection in list(self.slow):
            connection.check_progress()
        for connection in list(self.open):
            if connection.was_used:
                connection.was_used = False
                connection.used_at = now
            elif now - connection.used_at > idle_seconds_max:
                connection.close_idle()
        for limits in self.limits.values():
            if limits.excess:
                self._close_excess(limits)
        self._abort_stalled(now)
        self.held.abort_stalled(now)
        for connection, since in list(self.closing.items()):
            if not since:
                self.closing[connection] = now
            elif now - since > CLOSING_SECONDS_MAX:
                connection.abort()

    def _close_excess(self, limits: ConnectionLimits) -> None:
        """Close connections beyond a limit that was lowered, those first that were unused longest."""
        excess = limits.excess - sum(each.endpoint.limits.of_broker is limits for each in self.closing)
        own = [each for each in self.open if each.endpoint.limits.of_broker is limits]
        for connection in sorted(own, key=lambda each: each.used_at)[: max(excess, 0)]:
            connection.close_idle()

    def _abort_stalled(self, now: float) -> None:
        """Make room for replies: abort connections whose clients do not read, those with the most unsent bytes first."""
        for connection in sorted(self.slow, key=lambda each: each.unsent_bytes, reverse=True):
            if self.unsent_bytes <= self.unsent_bytes_max:
                return
            if now - connection.used_at > STALLED_SECONDS_MAX:
                connection.abort_stalled()

    def drain(self) -> None:
        """Take no further requests, before the node stops. Requests that have begun are answered."""
        self.is_draining = True
        for connection in list(self.open):
            connection.drain()

    @property
    def has_begun_requests(self) -> bool:
        """Whether requests have begun that end by themselves: requests that wait for other members of a group do not count."""
        return any(connection.has_begun_requests for connection in self.open)

    def abort_all(self) -> None:
        for connection in [*self.open, *self.closing]:
            connection.abort()
