"""
A model of the database: rows, and statements that compare and change them as those of `kohort.storage.postgres` do.

A statement takes effect at one moment. The database may restart, which breaks all connections, or be replaced by its standby,
which is another one for the nodes, and may lack what was committed while it did not follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID
from kohort.model.ids import TopicPartition
from kohort.storage.shared import NO_NODE, CatalogRow, Claim, NodeRow, NodeState, Registration, Renewal
from kohort_lab.nodes.history import NodeGuaranteeError

LIVE: Final = 0
STRAY: Final = 1
DELETED: Final = 2


@dataclass(slots=True)
class LogRow:
    """
    The row of a log, and its batches.

    Attributes:
        batches: last offset and bytes of each.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    leader_id: int = NO_NODE
    leader_epoch: int = -1
    next_offset: int = 0
    attempt: int = 0
    state: int = LIVE
    batches: list[tuple[int, bytes]] = field(default_factory=list)

    def copy(self) -> LogRow:
        return replace(self, batches=self.batches.copy())


class Write(Protocol):
    """An append as its statement has it."""

    @property
    def process(self) -> str: ...
    @property
    def key(self) -> tuple[TopicPartition, UUID]: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def batches(self) -> Sequence[tuple[int, bytes]]: ...


class Database:
    """
    Attributes:
        identity: another one after the standby was promoted.
        connections: rises when all connections break.
        changes: counts the statements that have changed something.
        is_frozen: whether the standby follows no more, so that each wait for it is cancelled.
        writers: the process that has written in each leader epoch of each log.
    """

    def __init__(self) -> None:
        self.identity = 0
        self.connections = 0
        self.changes = 0
        self.nodes: dict[int, NodeRow] = {}
        self.logs: dict[tuple[TopicPartition, UUID], LogRow] = {}
        self.gone: list[LogRow] = []
        self.writers: dict[tuple[TopicPartition, UUID, int], str] = {}
        self._standby: tuple[dict[int, NodeRow], list[LogRow], dict[tuple[TopicPartition, UUID, int], str]] | None = (
            None
        )

    # -- faults ------------------------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        return self._standby is not None

    def freeze(self) -> None:
        """The standby follows no more."""
        if self._standby is None:
            self._standby = (
                dict(self.nodes),
                [row.copy() for row in (*self.logs.values(), *self.gone)],
                dict(self.writers),
            )

    def thaw(self) -> None:
        """The standby has followed again."""
        self._standby = None

    def restart(self) -> None:
        self.connections += 1

    def promote(self) -> None:
        """The standby takes the place of the primary. It has all that was acknowledged."""
        self.identity += 1
        self.connections += 1
        if self._standby is not None:
            nodes, logs, self.writers = self._standby
            self._standby = None
            self.nodes = nodes
            self.logs = {(row.topic_partition, row.topic_id): row for row in logs if row.state == LIVE}
            self.gone = [row for row in logs if row.state != LIVE]

    # -- rows of nodes -----------------------------------------------------------------------------------------

    def renew(self, renewal: Renewal) -> bool:
        row = self.nodes.get(renewal.node_id)
        if row is None or not self.may_renew(row, renewal):
            return False
        self._put(msgspec.structs.replace(row, counter=row.counter + 1, view=renewal.view, state=renewal.state))
        return True

    def join(self, renewal: Renewal, registration: Registration, replaced: NodeRow | None) -> bool:
        row = self.nodes.get(renewal.node_id)
        if row is not None and not self.may_join(row, replaced):
            return False
        counter, is_drained = (0, False) if row is None else (row.counter + 1, row.is_drained)
        self._put(
            NodeRow(
                renewal.node_id,
                renewal.incarnation,
                counter,
                NodeState.LIVE,
                renewal.view,
                registration,
                is_drained,
            )
        )
        return True

    def end_lease(self, seen: NodeRow) -> bool:
        row = self.nodes.get(seen.node_id)
        if row is None or not self.may_end(row, seen):
            return False
        self._put(msgspec.structs.replace(row, state=NodeState.ENDED))
        return True

    def mark_drained(self, node_id: int, *, is_drained: bool) -> None:
        """An operator wants a node to lead nothing, or to lead again."""
        if node_id in self.nodes:
            self._put(msgspec.structs.replace(self.nodes[node_id], is_drained=is_drained))

    def _put(self, row: NodeRow) -> None:
        self.changes += 1
        self.nodes[row.node_id] = row

    def may_renew(self, row: NodeRow, renewal: Renewal) -> bool:
        return row.incarnation == renewal.incarnation and row.state is not NodeState.ENDED

    def may_join(self, row: NodeRow, replaced: NodeRow | None) -> bool:
        return replaced is not None and (row.incarnation, row.counter) == (replaced.incarnation, replaced.counter)

    def may_end(self, row: NodeRow, seen: NodeRow) -> bool:
        return row.incarnation == seen.incarnation and (row.counter == seen.counter or row.state is NodeState.ENDED)

    # -- rows of logs ------------------------------------------------------------------------------------------

    def catalog(self) -> CatalogRow:
        row = self.logs.get((CATALOG, CATALOG_ID))
        return CatalogRow() if row is None else CatalogRow(row.leader_id, row.leader_epoch, row.next_offset)

    def claim(self, node_id: int, claims: Sequence[Claim]) -> list[LogRow | None]:
        found: list[LogRow | None] = []
        for claim in claims:
            key = claim.topic_partition, claim.topic_id
            row = self.logs.get(key)
            if row is None:
                self.changes += 1
                row = self.logs[key] = LogRow(*key)
            if not self.may_claim(row, claim, node_id):
                found.append(None)
                continue
            self.changes += 1
            row.leader_id, row.leader_epoch, row.attempt = node_id, claim.leader_epoch, self.next_attempt(row)
            found.append(row.copy())
        return found

    def may_claim(self, row: LogRow, claim: Claim, node_id: int) -> bool:
        return row.leader_epoch < claim.leader_epoch or (
            row.leader_epoch == claim.leader_epoch and row.leader_id == node_id
        )

    def next_attempt(self, row: LogRow) -> int:
        return row.attempt + 1

    def read_batches(self, place: TopicPartition, offset: int, up_to: int, batches_max: int) -> bytes:
        row = next((row for row in self.logs.values() if row.topic_partition == place), None)
        if row is None:
            return b""
        return b"".join([data for last, data in row.batches if offset <= last < up_to][:batches_max])

    def stored_epochs(self) -> dict[tuple[TopicPartition, UUID], int]:
        return {key: row.leader_epoch for key, row in self.logs.items()}

    def take_out(self, key: tuple[TopicPartition, UUID], state: int) -> None:
        row = self.logs.pop(key, None)
        if row is not None:
            self.changes += 1
            row.state = state
            self.gone.append(row)

    def remove_topic(self, name: str, topic_id: UUID) -> None:
        for key in [key for key in self.logs if key[0].topic == name and key[1] == topic_id]:
            self.take_out(key, DELETED)

    def append(self, writes: Sequence[Write]) -> list[Write]:
        """Append to logs, each as a whole; returns those that took it."""
        moved: list[Write] = []
        for write in writes:
            row = self.logs.get(write.key)
            if row is None or not self.may_append(row, write):
                continue
            self.changes += 1
            epoch = (*write.key, write.leader_epoch)
            if self.writers.setdefault(epoch, write.process) != write.process:
                raise NodeGuaranteeError(
                    f"{write.process} and {self.writers[epoch]} have written to {write.key[0]} in epoch {write.leader_epoch}"
                )
            row.batches += write.batches
            row.next_offset = write.next_offset
            moved.append(write)
        return moved

    def may_append(self, row: LogRow, write: Write) -> bool:
        return (row.attempt, row.leader_epoch, row.next_offset) == (
            write.attempt,
            write.leader_epoch,
            write.base_offset,
        )

    def raise_attempts(self, writes: Sequence[Write]) -> list[LogRow | None]:
        """Make final what became of writes; returns the rows."""
        found: list[LogRow | None] = []
        for write in writes:
            row = self.logs.get(write.key)
            if row is not None and row.leader_epoch <= write.leader_epoch:
                self.changes += 1
                row.attempt = self.next_attempt(row)
            found.append(None if row is None else row.copy())
        return found

    def read_rows(self, writes: Sequence[Write]) -> list[LogRow | None]:
        return [None if row is None else row.copy() for row in (self.logs.get(write.key) for write in writes)]
