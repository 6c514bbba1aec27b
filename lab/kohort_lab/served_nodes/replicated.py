"""A database with a synchronous standby that takes its place when it is lost."""

import signal
from pathlib import Path
from typing import Final

from kohort_lab.database import Database, url_of

SPACE_MIB: Final = 256


class ReplicatedDatabase:
    """
    A store in a primary whose commits a standby confirms. Its tables are in a small table space, if one can be mounted.

    While there is no standby, no commit is confirmed.
    """

    def __init__(self, lease_ms: int) -> None:
        self._servers: list[Database] = []
        try:
            self._servers.append(_server())
            self.primary = self._servers[0]
            self.primary.make_space()
            self._servers.append(_server(self.primary))
            self.primary.make_store(lease_ms)
        except BaseException:
            self.close()
            raise

    @property
    def directories(self) -> list[Path]:
        """Of the two servers; the primary is either."""
        return [server.directory for server in self._servers]

    @property
    def url(self) -> str:
        return url_of(*self.directories)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the primary, as `Database.stop`."""
        self.primary.stop(how)

    def start(self) -> None:
        self.primary.start()

    def promote(self) -> None:
        """Let the standby take the place of a primary that was killed, and make another standby."""
        lost = self._servers.index(self.primary)
        self.primary = self._servers[1 - lost]
        self.primary.promote()
        self._servers[lost].close()
        self._servers[lost] = _server(self.primary)

    def close(self) -> None:
        for server in self._servers:
            server.close()


def _server(standby_of: Database | None = None) -> Database:
    return Database(
        standby_of=standby_of,
        space_mib=SPACE_MIB,
        synchronous_standby_names="standby",
        wal_retrieve_retry_interval="100ms",  # A standby looks for its primary again at once.
    )
