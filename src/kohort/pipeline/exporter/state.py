"""The state of groups and transactions, from the rows of coordinators' logs in the order in which they were appended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.exporter.commits import Commits, newest_rows
from kohort.pipeline.exporter.memberships import Memberships
from kohort.pipeline.exporter.shares import Shares
from kohort.pipeline.exporter.transactions import Transactions
from kohort.pipeline.tables.groups import group_history
from kohort.pipeline.tables.offsets.offset_commits import FATE_COLUMNS
from kohort.pipeline.tables.shares import share_history
from kohort.pipeline.tables.transactions import transactions

TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""The logs that the state is made of."""
_COLUMNS_OF: Mapping[str, Sequence[str]] = {
    schemas.OFFSET_COMMIT: FATE_COLUMNS,
    schemas.MARKER: FATE_COLUMNS,
    schemas.GROUP_METADATA: group_history.INPUT_COLUMNS,
    schemas.COORDINATOR: group_history.INPUT_COLUMNS,
    schemas.TRANSACTION: transactions.INPUT_COLUMNS,
}
THINNED_ROWS = 2_000
"""Rows of a batch from which on only the newest ones of each key become Python objects."""


def decoder() -> Decoder:
    """Return a decoder of the rows and columns that the state needs."""
    columns = dict.fromkeys(name for names in (*_COLUMNS_OF.values(), share_history.INPUT_COLUMNS) for name in names)
    return Decoder(tuple(_COLUMNS_OF), schemas.subset(tuple(columns)))


@dataclass(slots=True)
class CoordinatorState:
    """
    The state of all coordinators of a cluster.

    Attributes:
        records: rows that were applied.
    """

    commits: Commits = field(default_factory=Commits)
    memberships: Memberships = field(default_factory=Memberships)
    transactions: Transactions = field(default_factory=Transactions)
    shares: Shares = field(default_factory=Shares)
    records: int = 0

    @property
    def dropped(self) -> int:
        """Return the number of records beyond the limits."""
        return self.commits.dropped + self.memberships.dropped + self.transactions.dropped + self.shares.dropped

    def forget(self, topic: str, partition: int) -> None:
        """Forget everything that was read from a log: it began again."""
        if topic == CONSUMER_OFFSETS:
            self.commits.forget(partition)
            self.memberships.forget(partition)
            self.shares.forget_initialised(partition)
        elif topic == TRANSACTION_STATE:
            self.transactions.forget(partition)
        else:
            self.shares.forget(partition)

    def apply(
        self, topic: str, batches: Iterable[pa.RecordBatch], ends: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """
        Apply rows of `decoder` of the next batches of a log.

        Args:
            ends: log end offsets before these records, by topic and partition; see `Commits.replay`.
        """
        for row in self._rows(topic, batches):
            if topic == SHARE_GROUP_STATE:
                self.shares.replay(row)
            elif row["kind"] == schemas.TRANSACTION:
                self.transactions.replay(row)
            elif row["kind"] in (schemas.OFFSET_COMMIT, schemas.MARKER):
                self.commits.replay((row,), ends or {})
            else:
                self.memberships.replay(row)
                if row["kind"] == schemas.COORDINATOR:
                    self.shares.initialise(row)

    def _rows(self, topic: str, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        """Return rows in the order of the log. The decoder gives rows of different kinds in different batches."""
        found: list[dict[str, Any]] = []
        for batch in batches:
            if not batch.num_rows:
                continue
            self.records += batch.num_rows
            kind = batch.column("kind")[0].as_py()
            if topic != CONSUMER_OFFSETS and kind == schemas.MARKER:
                continue
            some = batch.select(share_history.INPUT_COLUMNS if topic == SHARE_GROUP_STATE else _COLUMNS_OF[kind])
            if kind == schemas.OFFSET_COMMIT and batch.num_rows > THINNED_ROWS:
                found += newest_rows(some, self.commits.counts)
            else:
                found += some.to_pylist()
        found.sort(key=lambda row: row["log_offset"])
        return found
