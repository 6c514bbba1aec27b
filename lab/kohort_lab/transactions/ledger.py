"""Transactions as their producers know them: the data that was sent and acknowledged, and the outcomes that were told."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final

import msgspec

TOOL: Final = "tool"
"""Stands for the transaction in values that are written outside of transactions."""


class Outcome(Enum):
    """How a transaction ends."""

    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionGuaranteeError(AssertionError):
    """A guarantee of transactions was broken."""


class SimulatedTransaction(msgspec.Struct):
    """
    One transaction of one producer.

    Attributes:
        name: unique, and part of each value that is written in the transaction.
        acknowledged: the values whose write was acknowledged.
        may_commit: whether a commit was requested.
        told: the outcome that EndTxn acknowledged; None if the producer does not know it.
    """

    name: str
    transactional_id: str
    acknowledged: set[str] = msgspec.field(default_factory=set)
    may_commit: bool = False
    told: Outcome | None = None


class Ledger:
    """
    The knowledge of all clients of a simulation.

    Attributes:
        counts: the number of acknowledged requests by kind, which shows how far the simulation reaches.
    """

    def __init__(self) -> None:
        self.transactions: dict[str, SimulatedTransaction] = {}
        self.counts: Counter[str] = Counter()
        self._broken: list[str] = []
        self._owners: dict[str, int] = {}
        """By transactional id: the number of the newest producer whose InitProducerId was acknowledged."""
        self._next_producer = 0
        self._next_value = 0

    def new_producer(self) -> int:
        """Return the number of a new producer."""
        self._next_producer += 1
        return self._next_producer

    def begin(self, transactional_id: str) -> SimulatedTransaction:
        name = f"t{len(self.transactions)}"
        transaction = self.transactions[name] = SimulatedTransaction(name, transactional_id)
        return transaction

    def next_number(self) -> int:
        self._next_value += 1
        return self._next_value

    def broken(self, guarantee: str) -> None:
        """Note a broken guarantee. The caller may be inside of the broker, which survives errors of its replies."""
        self._broken.append(guarantee)

    def check(self) -> None:
        """
        Raises:
            TransactionGuaranteeError: a guarantee was broken so far.
        """
        if self._broken:
            raise TransactionGuaranteeError("; ".join(self._broken))

    # Fencing

    def owner(self, transactional_id: str) -> int:
        """The number of the producer that has taken the id over last; 0 if there is none."""
        return self._owners.get(transactional_id, 0)

    def take_over(self, transactional_id: str, producer: int) -> None:
        self._owners[transactional_id] = producer

    def acknowledge(self, kind: str, transactional_id: str, producer: int, owner_when_sent: int) -> None:
        """Note a success. It is a broken guarantee if another producer had taken the id over before the request was sent."""
        self.counts[kind] += 1
        if owner_when_sent not in (0, producer):
            self.broken(
                f"{kind} of producer {producer} succeeded after producer {owner_when_sent} had taken over {transactional_id}"
            )
