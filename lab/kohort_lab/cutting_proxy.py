"""A proxy before a server that stalls and cuts connections: before a request has arrived, or instead of the answer."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

Cut = Literal["request", "answer"]


class CuttingProxy:
    """
    Attributes:
        cut: what is cut next, once; None for nothing.
        hits: how many times it has cut a connection, or held up what was sent.
    """

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self.hits = 0
        self._flows = threading.Event()
        self._flows.set()
        self._listeners: list[socket.socket] = []

    def stand_before(self, connect: Callable[[], socket.socket], listener: socket.socket) -> None:
        """
        Pass on the connections to a listener, which it takes over.

        Args:
            connect: makes a connection to the server. Raises OSError if it does not run.
        """
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(connect, listener), daemon=True).start()

    def stall(self) -> None:
        """Pass on nothing, and cut nothing, until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on everything from now on."""
        self.cut = None
        self._flows.set()

    def _accept(self, connect: Callable[[], socket.socket], listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = connect()
                except OSError:
                    client.close()
                    continue
                for what, source, target in (("request", client, server), ("answer", server, client)):
                    threading.Thread(target=self._pass_on, args=(what, source, target), daemon=True).start()

    def _pass_on(self, what: Cut, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if not self._flows.is_set():
                    self.hits += 1
                    self._flows.wait()
                if self.cut == what:
                    self.cut = None
                    self.hits += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self.flow()
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def listen_in(directory: Path) -> socket.socket:
    """Listen where a PostgreSQL server does that has its socket in a directory."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_socket_in(directory))
    listener.listen()
    return listener


def connect_in(directory: Path) -> socket.socket:
    """Connect to the PostgreSQL server that has its socket in a directory. Raises: OSError: it does not run."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(_socket_in(directory))
    except OSError:
        connection.close()
        raise
    return connection


def _socket_in(directory: Path) -> str:
    return str(directory / ".s.PGSQL.5432")
