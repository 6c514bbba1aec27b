"""
Events in the life of transactional ids, for a log. The core emits them; a sink outside of the core writes them down.

An event is emitted when the record that it describes is committed. Transactions that begin and end by request emit nothing.

Source: the log lines of Kafka's TransactionCoordinator and TransactionMarkerChannelManager.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from kohort.model.errors import ErrorCode


class TransactionEvent(msgspec.Struct, frozen=True):
    """Something that happened to one transactional id."""

    transactional_id: str


class TransactionTimedOut(TransactionEvent, frozen=True):
    """An ongoing transaction was aborted because its timeout passed. `producer_epoch` is the one that fences the producer."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int


class TransactionFenced(TransactionEvent, frozen=True):
    """An ongoing transaction was aborted because another producer began to use the transactional id."""

    producer_id: int
    producer_epoch: int


class TransactionalIdExpired(TransactionEvent, frozen=True):
    """A transactional id was forgotten: it was not used for `transactional.id.expiration.ms`."""


class MarkerRefused(TransactionEvent, frozen=True):
    """
    A partition refused the marker of a transaction.

    Attributes:
        code: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED end the attempts: the transaction stays prepared until
            the coordinator is loaded again. After any other code the marker is sent again.
    """

    partition: str
    code: ErrorCode
    is_final: bool


TransactionEvents: TypeAlias = Callable[[TransactionEvent], None]
"""A sink of events; it may not raise."""


def no_events(_event: TransactionEvent) -> None:
    """Ignore events."""
