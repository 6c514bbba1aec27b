"""
A store in a database as one of several nodes uses it: `kohort.storage.shared.SharedStore`.

One thread has the lease: its statements are short, and nothing else delays them. It listens to the hints of other nodes
between them. Another thread claims logs and reads the catalog.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar
from uuid import UUID, uuid4

import psycopg

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.log import Log
from kohort.storage.postgres import claims as sql
from kohort.storage.postgres.connect import Connection, Target, sentence
from kohort.storage.postgres.loading import LoadedLog, not_removed
from kohort.storage.postgres.log import PostgresLog
from kohort.storage.postgres.session import Session
from kohort.storage.postgres.store import PostgresStore
from kohort.storage.shared import Claim, Look, NodeRow, Registration, Renewal

T = TypeVar("T")

_log = logging.getLogger("kohort.storage")

_PAUSE_S_MAX: Final = 1.0
_READ_BYTES: Final = 1 << 20
_STATEMENT_S: Final = 5
"""A renewal that takes longer is of no use."""


class SharedDatabase:
    """
    Args:
        store: of this node, with `is_shared`.
        catalog: the partition of the catalog's log.
        acknowledged: by log, the high watermark that this process has known before it joined again.
        on_lost: called on the owner's thread with the reason, a sentence, if the database is another one than at the start.
    """

    def __init__(
        self,
        store: PostgresStore,
        catalog: TopicPartition,
        acknowledged: Mapping[tuple[TopicPartition, UUID], int],
        on_lost: Callable[[str], None],
    ) -> None:
        self.on_hint: Callable[[], None] = lambda: None
        self._store = store
        self._catalog = catalog
        self._acknowledged = acknowledged
        self._post = store.post
        self._on_lost = on_lost
        self._looks = _Looks(self)
        self._claims = BackgroundThread("kohort-claims")
        self._session: Session | None = None
        """Of the thread that claims."""
        self._stopping = threading.Event()
        self.problem = ""
        """Why the lease is not renewed now, a sentence; empty if it is."""

    def read_lease_ms(self) -> int:
        """The duration of leases. Raises: ConfigError: the database cannot be used."""
        try:
            session = self._open_session()
            try:
                return sql.lease_ms(session.connection)
            finally:
                session.connection.close()
        except psycopg.Error as error:
            raise ConfigError(f"the database {self._store.location} cannot be used: {sentence(error)}") from None

    def _open_session(self) -> Session:
        """Raises: psycopg.Error: the database cannot be reached. ConfigError: it cannot be used."""
        target = self._store.target
        return Session(Target(target.url, target.schema, f"kohort {uuid4()}"), None, self._store.identity)

    # Looks

    def look(self, renewal: Renewal | None, done: Callable[[Look | None], None], /) -> None:
        self._looks.submit(lambda connection: sql.look(connection, self._catalog, renewal), done)

    def join(
        self,
        renewal: Renewal,
        registration: Registration,
        replaced: NodeRow | None,
        done: Callable[[bool | None], None],
        /,
    ) -> None:
        self._looks.submit(lambda connection: sql.join(connection, renewal, registration, replaced), done)

    def end_lease(self, row: NodeRow, done: Callable[[bool], None], /) -> None:
        self._until_done(lambda connection: sql.end_lease(connection, row), done)

    # Claims

    def claim(self, node_id: int, claims: Sequence[Claim], done: Callable[[list[Log | None]], None], /) -> None:
        def begin(connection: Connection) -> list[Log | None]:
            found = sql.claim(connection, node_id, claims)
            logs: list[Log | None] = []
            for each in claims:
                loaded = found.get(each.topic_partition)
                logs.append(None if loaded is None else self._log_of(loaded))
            return logs

        self._until_done(begin, done)

    def _log_of(self, loaded: LoadedLog) -> PostgresLog:
        """A claimed log; it is refused if the database has lost records of it that this process has acknowledged."""
        log = self._store.log_of(loaded)
        known = self._acknowledged.get((loaded.topic_partition, loaded.topic_id), 0)
        if loaded.next_offset < known:
            log.fail(
                f"{loaded.topic_partition}: the database has lost acknowledged records: its next offset there is "
                f"{loaded.next_offset}, and was {known}. Bring the database back that has them, or start this node again to go "
                "on without them"
            )
        return log

    def read_catalog(self, offset: int, up_to: int, done: Callable[[bytes], None], /) -> None:
        self._until_done(
            lambda connection: sql.read_batches(connection, self._catalog, offset, up_to, _READ_BYTES), done
        )

    def stored_epochs(self, done: Callable[[dict[tuple[TopicPartition, UUID], int]], None], /) -> None:
        def read(connection: Connection) -> dict[tuple[TopicPartition, UUID], int]:
            rows = sql.stored_epochs(connection)
            return {(TopicPartition(topic, index), topic_id): epoch for topic, index, topic_id, epoch in rows}

        self._until_done(read, done)

    def set_aside(self, logs: Sequence[tuple[TopicPartition, UUID]], done: Callable[[None], None], /) -> None:
        def keep(connection: Connection) -> None:
            for topic_partition, topic_id in logs:
                sql.set_aside(connection, topic_partition, topic_id)

        self._until_done(keep, done)

    def lead(self, log: Log, /) -> None:
        assert isinstance(log, PostgresLog), "this store has claimed it"
        self._store.lead(log)
        if log.topic_partition == self._catalog:
            # The controller removes what other nodes have not finished to remove.
            self._until_done(not_removed, self._store.remove_batches)
            log.add_listener(lambda _: self._until_done(sql.hint, lambda _: None))

    def leave(self, topic_partition: TopicPartition, /) -> None:
        self._store.leave(topic_partition)

    def remove_topic(self, name: str, topic_id: UUID, /) -> None:
        self._until_done(lambda connection: sql.remove_topic(connection, name, topic_id), self._store.remove_batches)

    def _until_done(self, work: Callable[[Connection], T], done: Callable[[T], None]) -> None:
        """Run statements that may be repeated on the thread that claims, until they succeed."""
        self._claims.submit(partial(self._repeat, work, done))

    def _repeat(self, work: Callable[[Connection], T], done: Callable[[T], None]) -> None:
        pause_s = 0.01
        while not self._stopping.is_set():
            try:
                if self._session is None:
                    self._session = self._open_session()
                result = work(self._session.connection)
                if self._session.is_warned:
                    raise psycopg.OperationalError("the wait for a standby was cancelled")
            except psycopg.Error as error:
                _log.warning("store.claim_failed error=%r", sentence(error))
                self._drop()
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_S_MAX)
                continue
            except ConfigError as error:
                self._drop()
                self._post(partial(self._on_lost, str(error)))
                return
            self._post(partial(done, result))
            return

    def _drop(self) -> None:
        if self._session is not None:
            self._session.connection.close()
            self._session = None

    def close(self, timeout_s: float) -> None:
        """End the threads. Looks that were asked for are taken first."""
        self._looks.stop(timeout_s)
        self._stopping.set()
        self._claims.submit(self._drop)
        self._claims.stop(timeout_s)

    # For the thread of looks

    def on_looks_lost(self, reason: str) -> None:
        self._post(partial(self._on_lost, reason))

    def hint(self) -> None:
        self._post(self._on_hint)

    def _on_hint(self) -> None:
        self.on_hint()

    def post(self, action: Callable[[], None]) -> None:
        self._post(action)

    def open_listening(self) -> Session:
        """Raises: as `_open_session`."""
        session = self._open_session()
        session.connection.execute(f"SET statement_timeout = '{_STATEMENT_S}s'".encode())
        session.connection.execute(f'LISTEN "{sql.CHANNEL}"'.encode())
        return session


class _Looks:
    """The thread that has the lease. It waits for work, and for hints of the database."""

    def __init__(self, shared: SharedDatabase) -> None:
        self._shared = shared
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._session: Session | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="kohort-lease", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Connection], T], done: Callable[[T | None], None]) -> None:
        if not self._is_stopping:
            self._jobs.put(partial(self._do, work, done))
            self._wake()

    def _wake(self) -> None:
        os.write(self._wake_write, b"x")

    def stop(self, timeout_s: float) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._wake()
            os.close(self._wake_write)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 -- a thread that ends in silence would let the lease run out for ever
            _log.exception("store.lease_failed")
            self._shared.on_looks_lost(f"the thread of the lease has failed: {error}")

    def _work(self) -> None:
        while True:
            # Not `select`: a broker with many clients has higher numbers of files than it takes.
            waited = select.poll()
            waited.register(self._wake_read, select.POLLIN)
            if self._session is not None:
                waited.register(self._session.connection.fileno(), select.POLLIN)
            if self._wake_read in [file for file, _ in waited.poll()]:
                os.read(self._wake_read, 4096)
            while not self._jobs.empty():
                self._jobs.get()()
            self._take_hints()
            if self._is_stopping:
                self._drop()
                os.close(self._wake_read)
                return

    def _take_hints(self) -> None:
        """Take what the database has sent without being asked, or with the answer to a statement."""
        if self._session is None:
            return
        connection = self._session.connection
        try:
            if any(notice.pid != connection.info.backend_pid for notice in connection.notifies(timeout=0)):
                self._shared.hint()
        except psycopg.Error:
            self._drop()

    def _do(self, work: Callable[[Connection], T], done: Callable[[T | None], None]) -> None:
        result: T | None = None
        try:
            if self._session is None:
                self._session = self._shared.open_listening()
            result = work(self._session.connection)
            if self._session.is_warned:
                # Nobody knows whether the lease was renewed; it was not, then.
                self._drop()
                result = None
            self._shared.problem = ""
        except psycopg.Error as error:
            result = None
            self._drop()
            problem = f"The lease is not renewed: {sentence(error)}."
            if problem != self._shared.problem:
                _log.warning("store.lease_not_renewed error=%r", sentence(error))
            self._shared.problem = problem
        except ConfigError as error:
            self._drop()
            self._shared.on_looks_lost(str(error))
            return
        self._shared.post(partial(done, result))

    def _drop(self) -> None:
        if self._session is not None:
            self._session.connection.close()
            self._session = None
