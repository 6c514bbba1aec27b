"""
The tables of a store, in numbered migrations.

What is PostgreSQL's own, and no other database of its protocol has, is here and in `connect.py`: storage parameters, settings.
"""

from shlex import quote
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kohort.model.errors import ConfigError
from kohort.model.ids import uuid_text
from kohort.model.leases import LEASE_MS

if TYPE_CHECKING:
    from psycopg import Connection

SCHEMA: Final = "kohort"
"""The schema of the tables in the database."""

LIVE: Final = 0
STRAY: Final = 1
DELETED: Final = 2
"""States of a log: in use; of no topic, and kept; deleted, its batches are being removed."""

_FIRST: Final = """
CREATE TABLE store (
  id smallint PRIMARY KEY CHECK (id = 1),
  version integer NOT NULL,
  cluster_id text NOT NULL
);
-- What moves has no index, and pages have room for the next versions of a row: an update touches one page.
CREATE TABLE log (
  log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL,
  partition integer NOT NULL,
  topic_id uuid NOT NULL,
  state smallint NOT NULL DEFAULT 0,
  leader_epoch integer NOT NULL DEFAULT -1,
  next_offset bigint NOT NULL DEFAULT 0,
  start_offset bigint NOT NULL DEFAULT 0,
  attempt bigint NOT NULL DEFAULT 0,
  size_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX log_of_topic ON log (topic, partition, topic_id) WHERE state = 0;
CREATE TABLE batch (
  log_id bigint NOT NULL,
  last_offset bigint NOT NULL,
  base_offset bigint NOT NULL,
  max_timestamp bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (log_id, last_offset)
);
-- Producers compress batches; to try it again costs time.
ALTER TABLE batch ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE epoch (
  log_id bigint NOT NULL,
  start_offset bigint NOT NULL,
  leader_epoch integer NOT NULL,
  PRIMARY KEY (log_id, start_offset)
);
CREATE TABLE producer (
  log_id bigint NOT NULL,
  producer_id bigint NOT NULL,
  state bytea NOT NULL,
  PRIMARY KEY (log_id, producer_id)
) WITH (fillfactor = 70);
CREATE TABLE aborted (
  log_id bigint NOT NULL,
  last_offset bigint NOT NULL,
  producer_id bigint NOT NULL,
  first_offset bigint NOT NULL,
  last_stable_offset bigint NOT NULL,
  PRIMARY KEY (log_id, last_offset)
);
"""

_COMPACTION: Final = """
ALTER TABLE log ADD COLUMN clean_offset bigint NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN starts bigint NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN copying text;
"""
"""The offset below which a log is compacted; the starts of nodes on the store; what is copied into it, until all is there."""

_NODES: Final = """
ALTER TABLE store ADD COLUMN lease_ms integer NOT NULL DEFAULT 6000;
ALTER TABLE log ADD COLUMN leader_id integer NOT NULL DEFAULT -1;
CREATE TABLE node (
  node_id integer PRIMARY KEY,
  incarnation uuid NOT NULL,
  counter bigint NOT NULL,
  state smallint NOT NULL,
  view bigint NOT NULL,
  registration bytea NOT NULL,
  drained boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
"""

MIGRATIONS: Final = (_FIRST, _COMPACTION, _NODES)
"""Migration n makes version n of the version before it."""
VERSION: Final = len(MIGRATIONS)


def version_of(connection: "Connection") -> tuple[int, str] | None:
    """The version of the schema, and the id of the cluster; None if there is no store. Nothing is written."""
    found = connection.execute("SELECT to_regclass('store')").fetchone()
    if found is None or found[0] is None:
        return None
    row = connection.execute("SELECT version, cluster_id FROM store WHERE id = 1").fetchone()
    return None if row is None else (row[0], row[1])


def check_version(version: int | None, shown: str) -> None:
    """
    Raises:
        ConfigError: there is no store, or the schema has another version.
    """
    if version is None:
        raise ConfigError(f"{shown} has no store of Kohort; make one with `kohort store init {quote(shown)}`")
    if version < VERSION:
        raise ConfigError(
            f"the store in {shown} has version {version}, and this Kohort needs {VERSION}: stop every node, and run "
            f"`kohort store upgrade {quote(shown)}`"
        )
    if version > VERSION:
        raise ConfigError(
            f"the store in {shown} has version {version}; this Kohort knows versions up to {VERSION}: install a newer one"
        )


def init(connection: "Connection", schema: str, shown: str, lease_ms: int = LEASE_MS) -> str:
    """
    Make a store, and return the id of its cluster.

    Raises:
        ConfigError: there is one.
    """
    with connection.transaction():
        if version_of(connection) is not None:
            raise ConfigError(f"{shown} has a store of Kohort already; nothing was changed")
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
        for migration in MIGRATIONS:
            connection.execute(migration.encode())
        cluster_id = uuid_text(uuid4())
        values = (VERSION, cluster_id, lease_ms)
        connection.execute("INSERT INTO store (id, version, cluster_id, lease_ms) VALUES (1, $1, $2, $3)", values)
    return cluster_id


def upgrade(connection: "Connection", shown: str) -> tuple[int, int]:
    """
    Bring the schema to the version of this Kohort; return the versions before and after.

    Raises:
        ConfigError: there is no store, or a newer Kohort has made it.
    """
    with connection.transaction():
        found = version_of(connection)
        if found is None or found[0] > VERSION:
            check_version(found and found[0], shown)
        version = connection.execute("SELECT version FROM store WHERE id = 1 FOR UPDATE").fetchone()
        assert version is not None, "the row was there"
        for migration in MIGRATIONS[version[0] :]:
            connection.execute(migration.encode())
        connection.execute("UPDATE store SET version = $1 WHERE id = 1", (VERSION,))
    return version[0], VERSION
