"""
The listener of clients: accepts connections within the limits of `connection_limits` and as long as there are file descriptors.

A quarter of the descriptors of the process is for segment files (`kohort.storage.segments.file_handles`), so clients cannot
take a partition offline. Clients beyond the rest wait in the listener's queue until another client disconnects.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kohort.model.limits import THROTTLED_SOCKETS_MAX
from kohort.server.connections.connection_limits import ListenerLimits
from kohort.storage.segments.file_handles import open_files_max

_log = logging.getLogger("kohort.server")

BACKLOG: Final = 1024
OTHER_FILES: Final = 64
"""Descriptors for the journal, checkpoints, directories and scrapes of metrics; a quarter of a small limit."""
CONNECTIONS_MIN: Final = 4
_NO_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_SECONDS: Final = 0.1
ACCEPTED_AT_ONCE: Final = 8
"""Connections that are accepted in one turn of the event loop."""


def connections_max() -> int:
    """How many connections the limit of open files leaves room for."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 30
    return max(soft - open_files_max() - min(OTHER_FILES, soft // 4), CONNECTIONS_MIN)


class Listener:
    """
    One listening socket of one broker.

    Args:
        limits: of the listener, within those of its broker.
        make_connection: makes the connection of a client, given its address.
        throttle_ms: after how many milliseconds a new connection of an address is closed, because of its quota; 0 if it is not.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bound: socket.socket,
        limits: ListenerLimits,
        make_connection: Callable[[str], asyncio.Protocol],
        throttle_ms: Callable[[str], int] = lambda _host: 0,
    ) -> None:
        self._throttle_ms = throttle_ms
        self._throttled: set[socket.socket] = set()
        self._loop = loop
        self._socket = bound
        self._limits = limits
        self._make_connection = make_connection
        self._has_room = asyncio.Event()
        limits.of_broker.descriptors.when_room.append(self._has_room.set)
        self._task: asyncio.Task[None] | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def start(self) -> None:
        self._socket.listen(BACKLOG)
        self._task = self._loop.create_task(self._accept_all(), name="kohort-listener")

    def abort(self) -> None:
        """Close a listener that was not started."""
        self._limits.of_broker.descriptors.when_room.remove(self._has_room.set)
        self._socket.close()

    async def close(self) -> None:
        """Stop accepting; clients in the queue are refused."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await asyncio.gather(*self._connecting)
        self.abort()
        for accepted in list(self._throttled):
            self._close_throttled(accepted)

    async def _accept_all(self) -> None:
        while True:
            await self._wait_for_room()
            try:
                accepted, peer = await self._loop.sock_accept(self._socket)
                delay = self._take(accepted, peer)
                # The event loop accepts one connection in a turn, and a turn may be long: take the others that wait.
                for _ in range(ACCEPTED_AT_ONCE - 1):
                    if delay or not self._limits.has_room:
                        break
                    delay = self._take(*self._socket.accept())
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno not in _NO_RESOURCES:  # the client has gone
                    continue
                _log.warning("listener.paused error=%r", str(error), extra={"client": ""})
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if delay:
                _log.info("listener.throttled seconds=%.3f", delay, extra={"client": ""})
                await asyncio.sleep(delay)

    def _take(self, accepted: socket.socket, peer: tuple[Any, ...]) -> float:
        """Admit an accepted connection, and return for how many seconds the listener has to pause."""
        accepted.setblocking(False)
        delay = self._limits.record_accepted()
        self._admit(accepted, str(peer[0]))
        return delay

    def _admit(self, accepted: socket.socket, host: str) -> None:
        """Begin a connection, or close it if its address has too many."""
        throttle_ms = self._throttle_ms(host)
        if throttle_ms:
            self._close_later(accepted, throttle_ms)
            return
        limits = self._limits
        if not limits.enter(host):
            _log.info(
                "connection.rejected client=%s limit=%d", host, limits.of_broker.host_max(host), extra={"client": host}
            )
            accepted.close()
            return
        # Not awaited: that takes some turns, and other clients are in the queue.
        connecting = self._loop.create_task(self._connect(accepted, host), name="kohort-connect")
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, host: str) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(partial(self._make_connection, host), accepted)
        except OSError:  # the client has gone
            self._limits.leave(host)
            accepted.close()

    def _close_later(self, accepted: socket.socket, throttle_ms: int) -> None:
        """Close a connection beyond the quota of its address after a time, so that the client does not try again at once."""
        if len(self._throttled) >= THROTTLED_SOCKETS_MAX:
            accepted.close()
            return
        self._throttled.add(accepted)
        self._loop.call_later(throttle_ms / 1_000, self._close_throttled, accepted)

    def _close_throttled(self, accepted: socket.socket) -> None:
        self._throttled.discard(accepted)
        accepted.close()

    async def _wait_for_room(self) -> None:
        limits = self._limits
        while not limits.has_room:
            _log.warning(
                "listener.paused connections=%d limit=%d", limits.count, limits.count_max, extra={"client": ""}
            )
            self._has_room.clear()
            await self._has_room.wait()


def bind(host: str, port: int) -> socket.socket:
    """
    Bind a socket. An empty host and `::` mean all addresses of both IP versions, if the system has both.

    Raises:
        OSError: the address is not available.
    """
    if host in ("", "::"):
        if socket.has_dualstack_ipv6():
            both = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
            both.setblocking(False)
            return both
        _log.warning(
            "listener.one_ip_version host=%r hint=%r",
            host or "0.0.0.0",
            f"the system has no sockets for both; clients reach it over IPv{6 if host else 4} only",
        )
    name = host or "0.0.0.0"
    family, kind, protocol, _, address = socket.getaddrinfo(
        name.encode() if name.isascii() else name,  # a text would load Python's codec of international names
        port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound
