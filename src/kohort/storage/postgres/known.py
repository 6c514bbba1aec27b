"""
What a node knows of its database from before: a file beside no other one, by which a restored backup is noticed at a start.

The file is `$XDG_STATE_HOME/kohort/stores/CLUSTER.json` (`~/.local/state` without that variable). It has the identity of the
database, how many starts of nodes it has counted, how far its log was written before the last of them was committed, and how
far the catalog was. All of these rise; a database with a smaller one is an older copy. A standby that was promoted has another
timeline, and is right if nothing is smaller: the commit of the start was on the standby, and with it all that was before.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.files.checkpoint_formats import write_atomically
from kohort.storage.postgres.connect import Connection, identity_of, written_log_bytes

_log = logging.getLogger("kohort.storage")

_STARTS: Final = b"SELECT starts FROM store WHERE id = 1"
_COUNT_START: Final = b"UPDATE store SET starts = starts + 1 WHERE id = 1 RETURNING starts"
_CATALOG: Final = b"SELECT next_offset FROM log WHERE topic = $1 AND partition = $2 AND state = 0"


class Known(msgspec.Struct, frozen=True):
    """
    Attributes:
        system_identifier, timeline: -1 if the database does not tell.
        starts: of nodes on the store.
        written_log_bytes: the end of the database's own log; -1 if it does not tell.
        catalog_offset: the next offset of the catalog.
    """

    system_identifier: int
    timeline: int
    starts: int
    written_log_bytes: int
    catalog_offset: int

    def is_older(self, known: "Known") -> str:
        """What shows that this is an older copy of what is known; empty if nothing does."""
        for name, now, before in (
            ("it has counted {} starts of nodes", self.starts, known.starts),
            ("its own log ends at {}", self.written_log_bytes, known.written_log_bytes),
            ("its catalog ends at offset {}", self.catalog_offset, known.catalog_offset),
        ):
            if 0 <= now < before:
                return f"{name.format(now)}, and had {before}"
        return ""


def state_directory() -> Path:
    """The directory of the files. Source: XDG Base Directory Specification."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "kohort" / "stores"


class KnownDatabase:
    """
    What this node knows of its database.

    Args:
        catalog: the partition of the catalog.
        directory: of the file.
    """

    def __init__(self, catalog: TopicPartition, directory: Path | None = None) -> None:
        self.catalog: Final = catalog
        self._directory: Final = directory or state_directory()
        self._thread: Final = BackgroundThread("kohort-known")
        self._path = self._directory
        self._known: Known | None = None

    def start(self, connection: Connection, cluster_id: str, shown: str) -> None:
        """
        Compare the database with what is known of it, count this start, and keep what is known now.

        Raises:
            ConfigError: it is another database, or an older copy.
        """
        self._path = self._directory / f"{cluster_id}.json"
        known, found = self._read(), self._look(connection)
        if known is not None:
            reason = found.is_older(known)
            if not reason and found.system_identifier != known.system_identifier:
                reason = f"its system identifier is {found.system_identifier}, and was {known.system_identifier}"
            if reason:
                raise ConfigError(
                    f"{shown} is an older copy of the database that was used here, or another one: {reason}. Acknowledged "
                    "records may be lost. Correct the address; or, to go on with what it has, run "
                    f"`kohort store accept {quote(shown)}` here"
                )
            if found.timeline != known.timeline:
                _log.warning("store.timeline_changed before=%d now=%d", known.timeline, found.timeline)
        row = connection.execute(_COUNT_START).fetchone()
        self._keep(msgspec.structs.replace(found, starts=found.starts if row is None else row[0]))

    def accept(self, connection: Connection, cluster_id: str) -> Path:
        """Keep what the database is now, whatever it was; returns the file."""
        self._path = self._directory / f"{cluster_id}.json"
        self._keep(self._look(connection))
        return self._path

    def on_catalog(self, offset: int) -> None:
        """Keep how far the catalog is, later. Called from time to time."""
        if self._known is not None and offset > self._known.catalog_offset:
            self._known = msgspec.structs.replace(self._known, catalog_offset=offset)
            self._thread.submit(self._writer(self._known))

    def stop(self, timeout_s: float) -> None:
        self._thread.stop(timeout_s)

    def _look(self, connection: Connection) -> Known:
        identity = identity_of(connection)
        starts = connection.execute(_STARTS).fetchone()
        catalog = connection.execute(_CATALOG, self.catalog).fetchone()
        return Known(
            -1 if identity is None else identity.system_identifier,
            -1 if identity is None else identity.timeline,
            0 if starts is None else starts[0],
            written_log_bytes(connection),
            0 if catalog is None else catalog[0],
        )

    def _read(self) -> Known | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Known)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("store.known_unreadable path=%s error=%r", self._path, str(error))
            return None

    def _keep(self, known: Known) -> None:
        self._known = known
        self._writer(known)()

    def _writer(self, known: Known) -> Callable[[], None]:
        def write() -> None:
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path, msgspec.json.encode(known).decode())
            except OSError as error:
                _log.warning("store.known_not_written path=%s error=%r", self._path, str(error))

        return write
