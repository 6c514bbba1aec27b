"""
The store of a node over the model of the database: `kohort.storage.shared.SharedStore`, and logs whose appends are fenced.

As in `kohort.storage.postgres`, one connection has the lease, one claims, and one writes. A statement is under way until its
answer arrives; if the answer is lost, nobody knows whether it took effect, and it may still do so later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from kohort.broker.catalog.catalog import CATALOG
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import Span
from kohort.storage.epochs import EpochCache
from kohort.storage.log import Log, LogConfig
from kohort.storage.logs.base import LogBase
from kohort.storage.logs.retention import LogSegment
from kohort.storage.shared import Claim, Look, NodeRow, Registration, Renewal
from kohort_lab.nodes.database import STRAY, Database, LogRow
from kohort_lab.nodes.world import Process

Statement: TypeAlias = Callable[[Database], Generator[None, None, Any]]
"""Parts of which each takes effect at one moment; others may come between them."""

_PAUSE_S_MAX: Final = 1.0
_BATCHES_MAX: Final = 5
_CONFIG: Final = LogConfig(max_message_bytes=(1 << 31) - 1)


class _Failed:
    """The answer to a statement whose outcome is not known."""


_FAILED: Final = _Failed()


class _Connection:
    """
    A connection of a node to the database, and the thread that uses it: one statement at a time.

    Args:
        on_other_database: called when the database is another one than at the start.

    Attributes:
        delay_s: of each statement, at most, beside that of all messages.
    """

    def __init__(
        self, process: Process, database: Database, loss: Callable[[], float], on_other_database: Callable[[], None]
    ) -> None:
        self._process = process
        self._world = process.world
        self._database = database
        self._loss = loss
        self._on_other_database = on_other_database
        self._identity = database.identity
        self._connected = -1
        self.delay_s = 0.0
        self._jobs: deque[tuple[Statement, Callable[[Any], None]]] = deque()
        self._is_busy = False
        self._is_stopped = False

    def stop(self) -> None:
        """Send nothing more. What is under way goes on; nobody is told."""
        self._is_stopped = True

    def submit(self, statement: Statement, done: Callable[[Any], None]) -> None:
        """Run a statement once; `done` gets `_FAILED` if its outcome is not known."""
        self._jobs.append((statement, done))
        self._next()

    def until_done(self, statement: Statement, done: Callable[[Any], None], pause_s: float = 0.01) -> None:
        """Repeat a statement until it succeeds; others wait."""

        def answered(result: Any) -> None:
            if result is not _FAILED:
                done(result)
                return
            self._is_busy = True
            again = partial(self._again, statement, done, min(pause_s * 2, _PAUSE_S_MAX))
            self._process.call_later(round(pause_s * 1000), again)

        self.submit(statement, answered)

    def _again(self, statement: Statement, done: Callable[[Any], None], pause_s: float) -> None:
        rest, self._jobs = self._jobs, deque()
        self._is_busy = False
        self.until_done(statement, done, pause_s)
        self._jobs += rest

    def _next(self) -> None:
        if self._is_busy or self._is_stopped or not self._jobs:
            return
        self._is_busy = True
        statement, done = self._jobs.popleft()
        world, database = self._world, self._database
        if self._connected != database.connections:
            self._connected = database.connections
            if self._identity != database.identity:
                self._process.defer(self._lose)
                return
        run = _Running(self, statement(database), done, database.connections)
        loss = self._loss()
        if not world.is_calm and world.chance.random() < loss:
            kind = world.chance.choice(("before", "after", "late"))
            if kind == "late":
                delay_s = world.chance.uniform(0, world.chance.choice((0.03, 1, 12)))
                world.after(world.late_s(delay_s), run.step)
            elif kind == "after":
                world.after(world.latency_s(), run.step)
            world.after(world.latency_s() + world.chance.uniform(0, 0.05), partial(self._answer, run, _FAILED))
        else:
            run.is_awaited = True
            delay_s = 0.0 if world.is_calm or self.delay_s == 0.0 else world.chance.uniform(0, self.delay_s)
            world.after(world.late_s(delay_s) + world.latency_s(), run.step)

    def _lose(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._on_other_database()

    def answer(self, run: _Running, result: Any) -> None:
        self._world.after(self._world.latency_s(), partial(self._answer, run, result))

    def _answer(self, run: _Running, result: Any) -> None:
        self._process.post(partial(self._on_answer, run, result))

    def _on_answer(self, run: _Running, result: Any) -> None:
        if self._is_stopped:
            return
        self._is_busy = False
        if run.connected != self._database.connections and self._world.chance.random() < 0.5:
            result = _FAILED
        run.done(result)
        self._next()


@dataclass(slots=True)
class _Running:
    """A statement under way."""

    connection: _Connection
    parts: Generator[None, None, Any]
    done: Callable[[Any], None]
    connected: int
    is_awaited: bool = False
    is_warned: bool = False

    def step(self) -> None:
        """Let the next part take effect, unless the connection has broken."""
        connection = self.connection
        database, world = connection._database, connection._world
        if database.connections != self.connected:
            if self.is_awaited:
                connection.answer(self, _FAILED)
            return
        changes = database.changes
        try:
            next(self.parts)
        except StopIteration as end:
            result = end.value
        else:
            world.after(world.latency_s(), self.step)
            result = None
        self.is_warned |= database.is_frozen and database.changes != changes
        if result is not None and self.is_awaited:
            connection.answer(self, _FAILED if self.is_warned else result[0])


def _once(work: Callable[[Database], Any]) -> Statement:
    def statement(database: Database) -> Generator[None, None, Any]:
        yield from ()
        return (work(database),)

    return statement


def _look(renewal: Renewal | None) -> Statement:
    def statement(database: Database) -> Generator[None, None, Any]:
        is_renewed = False
        if renewal is not None:
            is_renewed = database.renew(renewal)
            yield
        nodes = dict(database.nodes)
        yield
        return (Look(nodes, database.catalog(), is_renewed),)

    return statement


class SimulatedLog(LogBase):
    """
    The log of a partition that this node has claimed.

    Attributes:
        values: of a partition of clients: what was appended, by offset.
        has_failed: whether an append was refused: what was appended later goes nowhere.
    """

    def __init__(self, row: LogRow, gather: Callable[[SimulatedLog, int, int, bytes], None]) -> None:
        epochs = EpochCache()
        epochs.assign(row.leader_epoch, row.next_offset)
        super().__init__(row.topic_partition, row.topic_id, _CONFIG, epochs=epochs, end_offset=row.next_offset)
        self.attempt = row.attempt
        self.values = [data for _, data in row.batches] if row.topic_partition != CATALOG else []
        self.places = {value: offset for offset, value in enumerate(self.values)}
        self.has_failed = False
        self._gather = gather

    def append_value(self, value: bytes) -> int:
        """Append a record; returns its offset."""
        offset = self.end_offset
        self.values.append(value)
        self.places[value] = offset
        self.end_offset += 1
        self._gather(self, offset, offset, value)
        return offset

    def _write(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        whole = b"".join((data, rest))
        for start, size, base_offset, last_offset, _ in spans:
            self.end_offset = last_offset + 1
            self._gather(self, base_offset, last_offset, whole[start : start + size])

    def fail(self, reason: str) -> None:
        self.has_failed = True
        if self.refusal is None:
            self._refuse(reason)
        else:
            self.end_leave()

    def read(self, _offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        raise NotImplementedError

    @property
    def segments(self) -> Sequence[LogSegment]:
        return ()

    def _batches_at_least(self, _timestamp_ms: int) -> Any:
        raise NotImplementedError

    def _newest(self) -> tuple[int, int]:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class LogWrite:
    """
    What was appended to one log since its last statement.

    Attributes:
        attempt: of the log, when the statement was sent.
    """

    process: str
    log: SimulatedLog
    leader_epoch: int
    base_offset: int
    attempt: int = 0
    next_offset: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def key(self) -> tuple[TopicPartition, UUID]:
        return self.log.topic_partition, self.log.topic_id


class _Writer:
    """Writes what turns have appended. An unknown outcome is made final by a write, as in `kohort.storage.postgres.writer`."""

    def __init__(self, name: str, process: Process, connection: _Connection) -> None:
        self._name = name
        self._process = process
        self._connection = connection
        self._gathered: dict[SimulatedLog, LogWrite] = {}
        self._is_busy = False

    @property
    def is_idle(self) -> bool:
        return not self._is_busy and not self._gathered

    def gather(self, log: SimulatedLog, base_offset: int, last_offset: int, data: bytes) -> None:
        if not self._gathered:
            self._process.defer(self._begin)
        write = self._gathered.get(log)
        if write is None:
            write = self._gathered[log] = LogWrite(self._name, log, log.leader_epoch, base_offset)
        write.batches.append((last_offset, data))
        write.next_offset = last_offset + 1

    def _begin(self) -> None:
        if not self._is_busy and self._gathered:
            writes, self._gathered = list(self._gathered.values()), {}
            self._is_busy = True
            self._append(writes)

    def _append(self, writes: list[LogWrite]) -> None:
        open_writes = [write for write in writes if not write.log.has_failed]
        if not open_writes:
            self._end()
            return
        sent = [replace(write, attempt=write.log.attempt) for write in open_writes]
        self._connection.submit(_once(lambda database: database.append(sent)), partial(self._on_appended, sent))

    def _on_appended(self, writes: list[LogWrite], moved: Any) -> None:
        if moved is _FAILED:
            self._resolve(writes)
            return
        left = [write for write in writes if write not in moved]
        for write in moved:
            write.log.advance(write.next_offset)
        if left:
            self._connection.until_done(_once(lambda database: database.read_rows(left)), partial(self._on_rows, left))
        else:
            self._end()

    def _on_rows(self, writes: list[LogWrite], rows: list[LogRow | None]) -> None:
        """Tell rows that a late statement of this node has changed from those that another node has."""
        changed: list[LogWrite] = []
        for write, row in zip(writes, rows, strict=True):
            if row is not None and (row.leader_epoch, row.next_offset) == (write.leader_epoch, write.base_offset):
                changed.append(write)
            else:
                write.log.fail("another node has written to it, or leads it")
        if changed:
            self._resolve(changed)
        else:
            self._end()

    def _resolve(self, writes: list[LogWrite]) -> None:
        self._connection.until_done(
            _once(lambda database: database.raise_attempts(writes)), partial(self._on_resolved, writes)
        )

    def _on_resolved(self, writes: list[LogWrite], rows: list[LogRow | None]) -> None:
        again: list[LogWrite] = []
        for write, row in zip(writes, rows, strict=True):
            if row is not None:
                write.log.attempt = row.attempt
            found = None if row is None else (row.next_offset, row.leader_epoch)
            is_there = row is not None and write.batches[0] in row.batches
            if found == (write.next_offset, write.leader_epoch) and is_there:
                write.log.advance(write.next_offset)
            elif found == (write.base_offset, write.leader_epoch):
                again.append(write)
            else:
                write.log.fail("another node leads it")
        self._append(again)

    def _end(self) -> None:
        self._is_busy = False
        self._begin()


class SimulatedStore:
    """
    Implements `SharedStore`.

    Args:
        name: of the node's incarnation.
        notify: tells the other nodes that the catalog has changed.
        on_taken: called with a row that is about to be taken from another process.

    Attributes:
        loss: the share of statements whose answer is lost.
        logs: those that this node leads.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        database: Database,
        notify: Callable[[], None],
        on_taken: Callable[[NodeRow], None],
        on_other_database: Callable[[], None],
        loss: float,
    ) -> None:
        self.on_hint: Callable[[], None] = lambda: None
        self.loss = loss
        self.logs: dict[TopicPartition, SimulatedLog] = {}
        self._notify = notify
        self._on_taken = on_taken
        connect = partial(_Connection, process, database, lambda: self.loss, on_other_database)
        self.connections = self._looks, self._claims, writes = connect(), connect(), connect()
        self._writer = _Writer(name, process, writes)

    def close(self) -> None:
        """Send nothing more but the looks that were asked for."""
        self._claims.stop()
        self.connections[2].stop()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was appended is written."""
        return self._writer.is_idle

    def look(self, renewal: Renewal | None, done: Callable[[Look | None], None], /) -> None:
        self._looks.submit(_look(renewal), lambda result: done(None if result is _FAILED else result))

    def join(
        self,
        renewal: Renewal,
        registration: Registration,
        replaced: NodeRow | None,
        done: Callable[[bool | None], None],
        /,
    ) -> None:
        if replaced is not None:
            self._on_taken(replaced)
        statement = _once(lambda database: database.join(renewal, registration, replaced))
        self._looks.submit(statement, lambda result: done(None if result is _FAILED else result))

    def end_lease(self, row: NodeRow, done: Callable[[bool], None], /) -> None:
        self._on_taken(row)
        self._claims.until_done(_once(lambda database: database.end_lease(row)), done)

    def read_catalog(self, offset: int, up_to: int, done: Callable[[bytes], None], /) -> None:
        self._claims.until_done(
            _once(lambda database: database.read_batches(CATALOG, offset, up_to, _BATCHES_MAX)), done
        )

    def claim(self, node_id: int, claims: Sequence[Claim], done: Callable[[list[Log | None]], None], /) -> None:
        def claimed(rows: list[LogRow | None]) -> None:
            done([None if row is None else cast("Log", SimulatedLog(row, self._writer.gather)) for row in rows])

        self._claims.until_done(_once(lambda database: database.claim(node_id, claims)), claimed)

    def stored_epochs(self, done: Callable[[dict[tuple[TopicPartition, UUID], int]], None], /) -> None:
        self._claims.until_done(_once(lambda database: database.stored_epochs()), done)

    def set_aside(self, logs: Sequence[tuple[TopicPartition, UUID]], done: Callable[[None], None], /) -> None:
        def keep(database: Database) -> None:
            for key in logs:
                database.take_out(key, STRAY)

        self._claims.until_done(_once(keep), done)

    def lead(self, log: Log, /) -> None:
        assert isinstance(log, SimulatedLog), "this store has claimed it"
        self.logs[log.topic_partition] = log
        if log.topic_partition == CATALOG:
            log.add_listener(lambda _: self._notify())

    def leave(self, topic_partition: TopicPartition, /) -> None:
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            log.leave(f"another node leads {topic_partition}")

    def remove_topic(self, name: str, topic_id: UUID, /) -> None:
        self._claims.until_done(_once(lambda database: database.remove_topic(name, topic_id)), lambda _: None)
