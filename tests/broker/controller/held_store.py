"""A shared store whose statements take effect, and are answered, when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

from kohort.broker.catalog.catalog import CATALOG
from kohort.model.ids import TopicPartition
from kohort.storage.log import Log
from kohort.storage.shared import Claim, Look, NodeRow, Registration, Renewal
from kohort_lab.nodes.database import STRAY, Database
from kohort_lab.nodes.store import SimulatedLog


class Statement:
    """A statement that was sent."""

    def __init__(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.name = name
        self._work = work
        self._done = done
        self._result: Any = None

    def take_effect(self) -> Statement:
        self._result = self._work()
        return self

    def answer(self) -> None:
        self._done(self._result)

    def lose_answer(self) -> None:
        self._done(None)


class HeldStore:
    """Implements `SharedStore` over the model of the database."""

    def __init__(self, database: Database) -> None:
        self.on_hint: Callable[[], None] = lambda: None
        self.database = database
        self.sent: list[Statement] = []
        self.led: list[TopicPartition] = []
        self.left: list[TopicPartition] = []

    def next(self, name: str) -> Statement:
        """Take the first statement of a kind."""
        found = next(statement for statement in self.sent if statement.name == name)
        self.sent.remove(found)
        return found

    def run(self, *names: str) -> None:
        """Let statements of these kinds take effect and be answered, one after the other."""
        for name in names:
            self.next(name).take_effect().answer()

    @property
    def names(self) -> list[str]:
        return [statement.name for statement in self.sent]

    def _send(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.sent.append(Statement(name, work, done))

    def look(self, renewal: Renewal | None, done: Callable[[Look | None], None], /) -> None:
        def look() -> Look:
            is_renewed = renewal is not None and self.database.renew(renewal)
            return Look(dict(self.database.nodes), self.database.catalog(), is_renewed)

        self._send("look", look, done)

    def join(
        self,
        renewal: Renewal,
        registration: Registration,
        replaced: NodeRow | None,
        done: Callable[[bool | None], None],
        /,
    ) -> None:
        self._send("join", lambda: self.database.join(renewal, registration, replaced), done)

    def end_lease(self, row: NodeRow, done: Callable[[bool], None], /) -> None:
        self._send("end lease", lambda: self.database.end_lease(row), done)

    def read_catalog(self, offset: int, up_to: int, done: Callable[[bytes], None], /) -> None:
        self._send("read catalog", lambda: self.database.read_batches(CATALOG, offset, up_to, 100), done)

    def claim(self, node_id: int, claims: Sequence[Claim], done: Callable[[list[Log | None]], None], /) -> None:
        name = "claim catalog" if claims[0].topic_partition == CATALOG else "claim"
        self._send(name, lambda: self._claim(node_id, claims), done)

    def _claim(self, node_id: int, claims: Sequence[Claim]) -> list[Log | None]:
        rows = self.database.claim(node_id, claims)
        return [None if row is None else cast("Log", SimulatedLog(row, self._gather)) for row in rows]

    def _gather(self, log: SimulatedLog, base_offset: int, last_offset: int, data: bytes) -> None:
        """An append is in the row at once."""
        row = self.database.logs[log.topic_partition, log.topic_id]
        if (row.leader_epoch, row.next_offset) != (log.leader_epoch, base_offset):
            log.fail("another node leads it")
            return
        row.batches.append((last_offset, data))
        row.next_offset = last_offset + 1
        self._send("append", lambda: None, lambda _: log.advance(last_offset + 1))

    def stored_epochs(self, done: Callable[[dict[tuple[TopicPartition, UUID], int]], None], /) -> None:
        self._send("stored epochs", self.database.stored_epochs, done)

    def set_aside(self, logs: Sequence[tuple[TopicPartition, UUID]], done: Callable[[None], None], /) -> None:
        def keep() -> None:
            for key in logs:
                self.database.take_out(key, STRAY)

        self._send("set aside", keep, done)

    def lead(self, log: Log, /) -> None:
        self.led.append(log.topic_partition)

    def leave(self, topic_partition: TopicPartition, /) -> None:
        self.left.append(topic_partition)

    def remove_topic(self, name: str, topic_id: UUID, /) -> None:
        self._send("remove topic", lambda: self.database.remove_topic(name, topic_id), lambda _: None)
