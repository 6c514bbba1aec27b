"""A connection of a node that writes, and what it has checked of the database."""

import time

from psycopg.errors import Diagnostic

from kohort.model.errors import ConfigError
from kohort.storage.postgres.connect import (
    Connection,
    Identity,
    Target,
    check_promises,
    check_schema,
    connect,
    end_other_connections,
    identity_of,
    try_lock,
)


class Session:
    """
    A connection of a node, and what it has checked of the database.

    Args:
        lock_s: how long to wait until the database has ended the connections of a node that is gone; None if other nodes may
            use the store.
        known: the database that it has to be.

    Raises:
        ConfigError: the database does not keep its promises, has no store of this version, or another node uses it.
        psycopg.Error: it cannot be reached.
    """

    def __init__(self, target: Target, lock_s: float | None, known: Identity | None = None) -> None:
        self.is_warned = False
        """Whether the database has warned: a wait for a synchronous standby was cancelled."""
        self.connection: Connection = connect(target)
        try:
            check_promises(self.connection, target.shown)
            self.cluster_id = check_schema(self.connection, target.shown)
            self.identity = identity_of(self.connection)
            if known is not None and self.identity != known:
                raise ConfigError(
                    f"{target.shown} is another database than at the start: {self.identity}, which was {known}. A standby was "
                    "promoted, or a backup was restored. Start again to load what it has"
                )
            end_other_connections(self.connection, target.name)
            if lock_s is not None:
                self._lock(target, lock_s)
        except BaseException:
            self.connection.close()
            raise
        self.connection.add_notice_handler(self._on_notice)

    def _lock(self, target: Target, lock_s: float) -> None:
        deadline = time.monotonic() + lock_s
        while not try_lock(self.connection, self.cluster_id):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"another node uses the store in {target.shown}, and a store has one node: stop the other one first"
                )
            time.sleep(0.02)

    def _on_notice(self, notice: Diagnostic) -> None:
        self.is_warned |= notice.severity_nonlocalized == "WARNING"
