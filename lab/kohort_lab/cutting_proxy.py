"""A proxy before a database that stalls and cuts connections: before a request has arrived, or instead of the answer."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kohort_lab.database import USER, Database

Cut = Literal["request", "answer"]


class CuttingProxy:
    """
    Attributes:
        cut: what is cut next, once; None for nothing.
        cuts: how many connections were cut.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self.cut: Cut | None = None
        self.cuts = 0
        self._flows = threading.Event()
        self._flows.set()
        self._server = str(database.directory / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen()
        self.url = f"postgresql://{USER}@/postgres?host={directory}"
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Pass on nothing, and cut nothing, until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._server)
                except OSError:  # the database is being restarted
                    client.close()
                    server.close()
                    continue
                for what, source, target in (("request", client, server), ("answer", server, client)):
                    threading.Thread(target=self._pass_on, args=(what, source, target), daemon=True).start()

    def _pass_on(self, what: Cut, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                self._flows.wait()
                if self.cut == what:
                    self.cut = None
                    self.cuts += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._flows.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
