"""
The thread that writes to the database.

It takes what the owner's thread has gathered, and writes it in statements, each of which is committed when it ends. A
statement that fails is repeated by halves, so that the log whose fault it is fails alone. One that fails because of the
database is repeated until it succeeds. The outcome of a statement is not known if the connection broke, or if the wait for a
standby was cancelled. Then a write to the rows of its logs makes it final (`raise_attempts`), and what was not written is
written again: nothing is acknowledged before, and nothing is written twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, groupby
from typing import Final, TypeVar

import psycopg

from kohort.model.errors import ConfigError
from kohort.storage.postgres import statements as sql
from kohort.storage.postgres.connect import Connection, Target, sentence
from kohort.storage.postgres.schema import DELETED, LIVE, STRAY
from kohort.storage.postgres.session import Session
from kohort.storage.postgres.writes import Item, LogWrite, NewStart, Removal, WrittenLog, statements

T = TypeVar("T")

_log = logging.getLogger("kohort.storage")

_PAUSE_S_MAX: Final = 1.0
_LOCKED_S: Final = 0.05
"""When logs whose rows were locked are looked at again."""
_OF_ONE_LOG: Final = ("22", "23")
"""Classes of errors that are the fault of what is written, not of the database: data exceptions, violated constraints."""


class _LostError(Exception):
    """The outcome of a statement is not known."""


class _StoppedError(Exception):
    """The writer is to end, and the database cannot be reached."""


class Writer:
    """
    The writer of one store. `give`, `take_back` and `wait_until_idle` are for the owner's thread.

    Args:
        session: from the start.
        lock_s: as for `Session`.
        is_shared: whether other nodes use the store, so that leader epochs tell nodes apart, not attempts.
        post: lets the owner's thread call something.
        on_written: called on the owner's thread with writes that are committed.
        on_failed: called on the owner's thread with a write that the database will never take, the reason, a sentence, and
            whether another node leads the log now, which is no fault.
        on_offline: called on the owner's thread with the reason, a sentence, when this node must not write any more.
        on_removal: called on the writer's thread with the id of a log and the offset before which its batches go, None for all
            of it, and with what is to be called with the bytes that have gone.

    Attributes:
        problem: why nothing is written now, a sentence; empty if it is.
        statements, statement_seconds: how many appends of a turn were committed, and the time that they took.
        batches: the record batches in them.
        fenced: how many appends were refused because another node leads the log.
    """

    def __init__(
        self,
        target: Target,
        session: Session,
        *,
        lock_s: float | None,
        is_shared: bool,
        post: Callable[[Callable[[], None]], None],
        on_written: Callable[[list[LogWrite]], None],
        on_failed: Callable[[LogWrite, str, bool], None],
        on_offline: Callable[[str], None],
        on_removal: Callable[[int, int | None, Callable[[int], None]], None],
    ) -> None:
        self._target: Final = target
        self._session: Session | None = session
        self._lock_s: Final = lock_s
        self._is_shared: Final = is_shared
        self._identity: Final = session.identity
        self._post: Final = post
        self._on_written: Final = on_written
        self._on_failed: Final = on_failed
        self._on_offline: Final = on_offline
        self._on_removal: Final = on_removal
        self._condition: Final = threading.Condition()
        self._ready: list[Item] = []
        self._is_busy = False
        self._is_stopping = False
        self._is_offline = False
        self._failed: dict[WrittenLog, str] = {}
        """Logs that have failed, and why: what was appended to them later goes nowhere."""
        self._locked: dict[WrittenLog, list[Item]] = {}
        """Writes to logs whose rows another one has locked."""
        self.problem = ""
        self.statements = 0
        self.statement_seconds = 0.0
        self.batches = 0
        self.fenced = 0
        self._thread: Final = threading.Thread(target=self._run, name="kohort-postgres", daemon=True)
        self._thread.start()

    # On the owner's thread

    def give(self, items: list[Item]) -> None:
        with self._condition:
            self._ready = items
            self._condition.notify_all()

    def take_back(self) -> list[Item]:
        with self._condition:
            items, self._ready = self._ready, []
        return items

    @property
    def is_idle(self) -> bool:
        """Whether everything that was given is written."""
        with self._condition:
            return not self._ready and not self._is_busy

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until everything that was given is written; False if it takes longer, or is never written."""
        with self._condition:
            is_done = self._condition.wait_for(
                lambda: (not self._ready and not self._is_busy) or self._is_offline, timeout_s
            )
            return is_done and not self._is_offline

    def stop(self, timeout_s: float) -> None:
        """End the thread; what was given and is not written stays unwritten if the database does not answer."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._thread.join(timeout_s)

    # On the writer's thread

    def _run(self) -> None:
        try:
            while (items := self._take()) is not None:
                self._write(items)
        except _StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 -- a writer that ends in silence would let every request wait
            _log.exception("store.writer_failed")
            self._go_offline(f"the writer to {self._target.shown} has failed: {error}")
        finally:
            if self._session is not None:
                self._session.connection.close()

    def _take(self) -> list[Item] | None:
        """The writes that were given, behind those that waited for locks; None at the end."""
        locked, self._locked = self._locked, {}
        with self._condition:
            self._is_busy = bool(locked)
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._ready or self._is_stopping, _LOCKED_S if locked else None)
            if self._is_stopping and not self._ready:
                return None
            items, self._ready = self._ready, []
            self._is_busy = True
        return [*chain.from_iterable(locked.values()), *items]

    def _write(self, items: Iterable[Item]) -> None:
        for is_write, group in groupby(items, lambda item: isinstance(item, LogWrite)):
            if is_write:
                self._append_all([item for item in group if isinstance(item, LogWrite)])
                continue
            for item in group:
                is_done = item.log not in self._locked
                if is_done and isinstance(item, NewStart):
                    is_done = self._move_start(item)
                elif is_done and isinstance(item, Removal):
                    is_done = self._remove(item)
                if not is_done:
                    self._locked.setdefault(item.log, []).append(item)

    def _append_all(self, writes: list[LogWrite]) -> None:
        for taken in statements(writes):
            left = []
            for write in taken:
                reason = self._failed.get(write.log)
                if reason is not None:
                    self._post(partial(self._on_failed, write, reason, False))
                elif write.log in self._locked:
                    self._locked[write.log].append(write)
                else:
                    left.append(write)
            if left:
                self._append(left)

    def _append(self, writes: list[LogWrite]) -> None:
        """Write these in one statement, and settle what became of each."""
        new = [write for write in writes if write.log.log_id < 0]
        if new:
            self._until_done(lambda connection: sql.make_rows(connection, new))
        try:
            moved = self._try(lambda connection: sql.append(connection, writes))
        except _LostError:
            self._resolve(writes)
            return
        except psycopg.Error as error:
            if len(writes) > 1:
                middle = len(writes) // 2
                self._append(writes[:middle])
                self._append(writes[middle:])
            else:
                self._fail(writes[0], f"the database refuses its records: {sentence(error)}")
            return
        self._done([write for write in writes if write.log.log_id in moved])
        for write in writes:
            if write.log.log_id not in moved:
                self._look_at_row(write)

    def _look_at_row(self, write: LogWrite) -> None:
        """Tell a row that another one has locked, whose log is written to later, from one that another one has changed."""
        log = write.log
        row = self._until_done(lambda connection: sql.read_row(connection, log.log_id))
        expected = (LIVE, write.stored_epoch, write.base_offset)
        if row is None or (row.state, row.leader_epoch, row.next_offset) != expected:
            self._refuse(write, row)
        elif row.attempt != log.attempt and self._is_shared:
            # A claim, or a write whose answer was lost, has taken effect late: no other node has this leader epoch.
            self._resolve([write])
        elif row.attempt == log.attempt:
            self._locked.setdefault(log, []).append(write)
        else:
            self._refuse(write, row)

    def _resolve(self, writes: list[LogWrite]) -> None:
        """Find out, by a write, what became of a statement whose outcome is not known; write again what was not written."""
        found = self._until_done(lambda connection: sql.raise_attempts(connection, writes))
        _log.warning("store.outcome_resolved logs=%d", len(writes))
        done, again = [], []
        for write in writes:
            row, batch = found.get(write.log.log_id, (None, None))
            if row is not None:
                write.log.attempt = row.attempt
            if row is None or row.state != LIVE:
                self._refuse(write, row)
            elif (row.next_offset, row.leader_epoch) == (write.next_offset, write.leader_epoch) and (
                not write.batches or batch == write.batches[0][3]
            ):
                done.append(write)
            elif (row.next_offset, row.leader_epoch) == (write.base_offset, write.stored_epoch):
                again.append(write)
            else:
                self._refuse(write, row)
        self._done(done)
        if again:
            self._append(again)

    def _done(self, writes: list[LogWrite]) -> None:
        if writes:
            self.batches += sum(len(write.batches) for write in writes)
            self._post(partial(self._on_written, writes))

    def _refuse(self, write: LogWrite, row: sql.Row | None) -> None:
        """Fail a write that the row of its log does not allow."""
        is_fenced = row is not None and row.leader_epoch > write.stored_epoch
        self.fenced += is_fenced
        self._fail(write, _difference(write, row), is_led_elsewhere=is_fenced and self._is_shared)

    def _fail(self, write: LogWrite, reason: str, *, is_led_elsewhere: bool = False) -> None:
        reason = self._failed[write.log] = f"{write.log.topic_partition}: {reason}"
        self._post(partial(self._on_failed, write, reason, is_led_elsewhere))

    def _move_start(self, item: NewStart) -> bool:
        """Raise a log start; False if the row of the log is locked."""
        log = item.log
        if log.log_id < 0:
            self._post(item.done)
            return True
        if not self._until_done(lambda connection: sql.move_start(connection, log.log_id, item.offset)):
            return self._until_done(lambda connection: sql.read_row(connection, log.log_id)) is None
        base_offset = self._until_done(lambda connection: sql.base_of(connection, log.log_id, item.offset))
        if base_offset is not None:
            self._post(partial(log.on_start_moved, item.offset, base_offset))
        self._post(item.done)
        self._on_removal(log.log_id, item.offset, lambda size: self._post(partial(log.on_removed, size)))
        return True

    def _remove(self, item: Removal) -> bool:
        """Take a log out of the store; False if its row is locked."""
        log_id, state = item.log.log_id, STRAY if item.is_stray else DELETED
        if log_id < 0:
            return True
        if not self._until_done(lambda connection: sql.set_state(connection, log_id, state)):
            row = self._until_done(lambda connection: sql.read_row(connection, log_id))
            if row is not None and row.state == LIVE:
                return False
        if not item.is_stray:
            self._on_removal(log_id, None, lambda _size: None)
        return True

    # Statements

    def _try(self, statement: Callable[[Connection], set[int]]) -> set[int]:
        """
        Run a statement that must not be repeated blindly. While the database cannot do it, it is repeated.

        Raises:
            _LostError: its outcome is not known.
            psycopg.Error: it is the fault of what is written; nothing was.
        """
        pause_s = 0.01
        while True:
            session = self._connected()
            started = time.perf_counter()
            try:
                result = statement(session.connection)
            except psycopg.Error as error:
                if session.connection.broken:
                    self._lose(session, sentence(error))
                    raise _LostError from None
                if (error.sqlstate or "")[:2] in _OF_ONE_LOG:
                    raise
                pause_s = self._pause(sentence(error), pause_s)
                continue
            if session.is_warned:
                self._lose(session, "the wait for a standby was cancelled")
                raise _LostError
            self._note(time.perf_counter() - started)
            return result

    def _until_done(self, statement: Callable[[Connection], T]) -> T:
        """Run statements that may be repeated, until they succeed."""
        pause_s = 0.01
        while True:
            session = self._connected()
            try:
                result = statement(session.connection)
            except psycopg.Error as error:
                if session.connection.broken:
                    self._lose(session, sentence(error))
                else:
                    pause_s = self._pause(sentence(error), pause_s)
                continue
            if session.is_warned:
                self._lose(session, "the wait for a standby was cancelled")
                continue
            self._set_problem("")
            return result

    # The database

    def _connected(self) -> Session:
        """
        The session; a new one if the last one was lost.

        Raises:
            _StoppedError: the writer is to end, or this node must not write any more.
        """
        pause_s = 0.01
        while self._session is None:
            try:
                self._session = Session(self._target, self._lock_s, self._identity)
            except psycopg.Error as error:
                pause_s = self._pause(sentence(error), pause_s)
            except ConfigError as error:
                self._go_offline(str(error))
                raise _StoppedError from None
            else:
                _log.info("store.connected database=%s", self._target.shown)
        return self._session

    def _lose(self, session: Session, reason: str) -> None:
        _log.warning("store.connection_lost database=%s error=%r", self._target.shown, reason)
        session.connection.close()
        self._session = None

    def _pause(self, reason: str, pause_s: float) -> float:
        """
        Wait until the database may be able to do it; returns the next pause.

        Raises:
            _StoppedError: the writer is to end.
        """
        self._set_problem(f"The database {self._target.shown} takes no records: {reason}.")
        with self._condition:
            if self._condition.wait_for(lambda: self._is_stopping, pause_s):
                raise _StoppedError
        return min(pause_s * 2, _PAUSE_S_MAX)

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("store.database_refuses error=%r", problem)
        self.problem = problem

    def _note(self, seconds: float) -> None:
        self._set_problem("")
        self.statements += 1
        self.statement_seconds += seconds

    def _go_offline(self, reason: str) -> None:
        with self._condition:
            self._is_offline = True
            self._condition.notify_all()
        self._post(partial(self._on_offline, reason))


def _difference(write: LogWrite, row: sql.Row | None) -> str:
    """The unexpected value in the row of a log, a sentence."""
    if row is None or row.state != LIVE:
        return "it was deleted from the database by another node"
    if row.leader_epoch > write.stored_epoch:
        return (
            f"another node leads it: its leader epoch in the database is {row.leader_epoch}, not {write.stored_epoch}"
        )
    if row.next_offset < write.base_offset:
        return (
            f"the database has lost acknowledged records: its next offset there is {row.next_offset}, not {write.base_offset}. "
            "It is an older copy"
        )
    return (
        f"another node has written to it: its next offset in the database is {row.next_offset}, not {write.base_offset}"
    )
