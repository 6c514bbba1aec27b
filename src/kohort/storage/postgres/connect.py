"""Connections to the database: their settings, and what the database must promise."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from kohort.model.errors import ConfigError
from kohort.storage.postgres.schema import check_version, version_of
from kohort.storage.postgres.statements import register_arrays

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

VERSION_MIN: Final = 14
"""The oldest major version of PostgreSQL."""
CONNECT_SECONDS: Final = 5
SILENT_MS: Final = 10_000
"""The time that sent data may stay unacknowledged until the connection counts as lost."""

_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    # Without statistics of a young table the rest of a log was collected and sorted for each piece that was read of it.
    "enable_bitmapscan": "off",
    # The database ends a connection whose node is gone, and with it the lock of the store.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
_PREFIXES: Final = ("postgresql://", "postgres://")

_PROMISES: Final = b"""
SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('synchronous_commit'),
  current_setting('transaction_read_only'), pg_is_in_recovery()
"""
# The timeline that is written to: that of the last checkpoint is the old one for minutes after a promotion.
_IDENTITY: Final = b"""
SELECT (SELECT system_identifier FROM pg_control_system()),
  ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
"""
# What is on its disk: no crash of the database takes it back.
_WRITTEN_LOG: Final = b"SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint"
_COPYING: Final = b"SELECT copying FROM store WHERE id = 1"
_NODES: Final = b"""
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'kohort%' AND pid <> pg_backend_pid()
"""
_TRY_LOCK: Final = b"SELECT pg_try_advisory_lock($1)"
_END_OTHERS: Final = b"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()
"""


class Target(msgspec.Struct, frozen=True):
    """
    A store in a database.

    Attributes:
        url: as libpq takes it; it may have a password.
        schema: of the tables.
        name: the application name of the connections. That of a writer is its own, so that its lost connections are found.
    """

    url: str
    schema: str
    name: str = "kohort"

    @property
    def shown(self) -> str:
        return shown(self.url)


class Identity(msgspec.Struct, frozen=True):
    """The identity of a database: the identifier of its cluster, and the timeline, which changes when a standby is promoted."""

    system_identifier: int
    timeline: int


def shown(url: str, *, with_user: bool = True) -> str:
    """
    The address without passwords, for messages; without the user for clients.

    Raises:
        ConfigError: it is no address of a database.
    """
    if not url.startswith(_PREFIXES):
        raise ConfigError(
            "the address of a store in PostgreSQL begins with postgresql://, as postgresql://HOST/DATABASE"
        )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:  # what it says may have a part of the password
        raise ConfigError(
            "the address of the store cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, with "
            "special characters as %XX"
        ) from None
    user = f"{parts['user']}@" if with_user and parts.get("user") else ""
    database, host = parts.get("dbname") or "", str(parts.get("host") or "")
    if "/" in host:  # directories of sockets
        return f"postgresql://{user}/{database}?host={host}"
    ports = str(parts.get("port") or "").split(",")
    addresses = [
        f"{each}{f':{ports[min(index, len(ports) - 1)]}' if ports[0] else ''}"
        for index, each in enumerate(host.split(","))
    ]
    return f"postgresql://{user}{','.join(addresses)}/{database}"


def sentence(error: psycopg.Error) -> str:
    """The message of the database, in one line."""
    text = error.diag.message_primary or str(error).partition("\n\tIs the server running")[0]
    return " ".join(text.split()) or type(error).__name__


def connect(target: Target) -> Connection:
    """
    Connect with the settings of all connections.

    Raises:
        psycopg.Error: the database cannot be reached, or refuses.
    """
    connection: Connection = psycopg.connect(
        target.url,
        autocommit=True,
        cursor_factory=psycopg.RawCursor,
        application_name=target.name,
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=SILENT_MS,
    )
    try:
        register_arrays(connection)
        names = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())
        connection.execute(f"SELECT set_config('search_path', $1, false), {names}".encode(), (f'"{target.schema}"',))
    except BaseException:
        connection.close()
        raise
    return connection


def connect_once(target: Target) -> Connection:
    """As `connect`. Raises: ConfigError: the database cannot be reached, or refuses."""
    try:
        return connect(target)
    except psycopg.Error as error:
        raise ConfigError(
            f"the database {target.shown} cannot be used: {sentence(error)}. Start it, or correct the address"
        ) from None


@contextmanager
def refused(target: Target) -> Iterator[None]:
    """Turn an error of the database into a sentence. Raises: ConfigError."""
    try:
        yield
    except psycopg.Error as error:
        raise ConfigError(f"the database {target.shown} refuses: {sentence(error)}") from None


def check_promises(connection: Connection, shown_url: str) -> None:
    """
    Check what acknowledged records depend on. Nothing is written.

    Raises:
        ConfigError: the database does not promise it.
    """
    row = connection.execute(_PROMISES).fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    version, fsync, synchronous_commit, read_only, is_standby = row
    if int(version) < VERSION_MIN * 10_000:
        raise ConfigError(
            f"{shown_url} is PostgreSQL {int(version) // 10_000}; a store needs PostgreSQL {VERSION_MIN} or newer"
        )
    if is_standby:
        raise ConfigError(f"{shown_url} is a standby, which takes no writes: give the address of its primary")
    if fsync != "on":
        raise ConfigError(f"{shown_url} has fsync off: a power failure can lose acknowledged records. Set fsync = on")
    if synchronous_commit == "off":
        raise ConfigError(
            f"{shown_url} has synchronous_commit off: a crash can lose acknowledged records. Set synchronous_commit = on"
        )
    if read_only != "off":
        raise ConfigError(f"{shown_url} is read-only for this user: set default_transaction_read_only = off")


def check_schema(connection: Connection, shown_url: str) -> str:
    """
    The id of the cluster in the store.

    Raises:
        ConfigError: there is no store, it has another version, or a copy into it was interrupted.
    """
    found = version_of(connection)
    check_version(found and found[0], shown_url)
    assert found is not None, "the version was there"
    copying = connection.execute(_COPYING).fetchone()
    if copying is not None and copying[0] is not None:
        raise ConfigError(
            f"a copy of {copying[0]} into the store in {shown_url} was interrupted: drop the schema kohort, "
            f"and run `kohort store init {quote(shown_url)}` and `kohort store copy` anew"
        )
    return found[1]


def identity_of(connection: Connection) -> Identity | None:
    """The identity of the database; None if it does not tell."""
    try:
        row = connection.execute(_IDENTITY).fetchone()
    except psycopg.Error:
        if connection.broken:
            raise
        return None
    return None if row is None else Identity(*row)


def written_log_bytes(connection: Connection) -> int:
    """The end of the database's own log, a number that only rises; -1 if it does not tell."""
    try:
        row = connection.execute(_WRITTEN_LOG).fetchone()
    except psycopg.Error:
        if connection.broken:
            raise
        return -1
    return -1 if row is None else int(row[0])


def try_lock(connection: Connection, cluster_id: str) -> bool:
    """
    Take the store for this connection. It is no fence, which the rows of the logs are: it keeps two nodes from serving the same
    logs until one of them is fenced.
    """
    key = int.from_bytes(hashlib.sha256(f"kohort {cluster_id}".encode()).digest()[:8], "big", signed=True)
    row = connection.execute(_TRY_LOCK, (key,)).fetchone()
    return row is not None and bool(row[0])


def end_other_connections(connection: Connection, name: str) -> None:
    """End connections of this process that the database has not found to be lost."""
    connection.execute(_END_OTHERS, (name,))


def check_stopped(connection: Connection, shown: str) -> None:
    """
    Raises:
        ConfigError: a node, or another command, is connected to the database.
    """
    row = connection.execute(_NODES).fetchone()
    if row is not None and row[0]:
        raise ConfigError(f"{row[0]} connections of Kohort use {shown}: stop every node first. Nothing was changed")
