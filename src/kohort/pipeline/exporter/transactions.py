"""
Transactions, replayed from `__transaction_state` as it grows, and the hanging ones.

The coordinator's log has every transactional id with its state. A hanging transaction is open in a partition's log, but in no
transaction of a coordinator (KIP-664); the leaders of partitions tell which transactions are open there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.model.ids import TopicPartition
from kohort.model.limits import EXPORTED_TRANSACTIONAL_IDS_MAX

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_OUTCOMES = {"CompleteCommit": "committed", "CompleteAbort": "aborted"}


class Transaction(NamedTuple):
    """The state of one transactional id. `start_ms` is -1 without a transaction."""

    log_partition: int
    state: str
    producer_id: int
    start_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition, as the leader tells it; `last_ms` is its last record."""

    partition: TopicPartition
    producer_id: int
    last_ms: int


@dataclass(slots=True)
class Transactions:
    """
    All transactional ids.

    Attributes:
        found: by transactional id.
        ended: completed transactions by outcome.
        dropped: records of ids beyond `EXPORTED_TRANSACTIONAL_IDS_MAX`.
    """

    found: dict[str, Transaction] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    dropped: int = 0

    def replay(self, row: Mapping[str, Any]) -> None:
        """Apply one row (`transactions.INPUT_COLUMNS`), in the order of the log."""
        name, value = row["transactional_id"], row["transaction"]
        if value is None:
            self.found.pop(name, None)
            return
        if name not in self.found and len(self.found) >= EXPORTED_TRANSACTIONAL_IDS_MAX:
            self.dropped += 1
            return
        if value["state"] in _OUTCOMES:
            self.ended[_OUTCOMES[value["state"]]] += 1
        self.found[name] = Transaction(
            row["log_partition"],
            value["state"],
            value["producer_id"],
            value["start_ms"],
            value["timeout_ms"],
            frozenset(TopicPartition(one["topic"], one["partition"]) for one in value["partitions"]),
        )

    def forget(self, log_partition: int) -> None:
        """Forget everything that was read from one partition of the log: it began again."""
        for name in [name for name, one in self.found.items() if one.log_partition == log_partition]:
            del self.found[name]

    def open(self) -> Iterator[tuple[str, Transaction]]:
        """Yield the open transactions."""
        return ((name, one) for name, one in self.found.items() if one.is_open)

    def hanging(self, opened: Iterable[OpenProducer], *, now_ms: int, grace_ms: int) -> Iterator[OpenProducer]:
        """
        Yield the hanging ones of some open transactions.

        Args:
            grace_ms: a producer that wrote more recently is left out: its coordinator's record may not be read yet.
        """
        known = {(one.producer_id, place) for _, one in self.open() for place in one.partitions}
        for one in opened:
            if (one.producer_id, one.partition) not in known and now_ms - one.last_ms > grace_ms:
                yield one
