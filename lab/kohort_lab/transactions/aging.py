"""Transactional ids whose producer epochs come to their end, as after 32 000 transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Result
from kohort.model.ids import TRANSACTION_STATE, coordinator_partition
from kohort.transaction.context import HasContext
from kohort.transaction.states import EMPTY, is_unfinished
from kohort.transaction.transaction import EPOCH_EXHAUSTED, NO_PARTITIONS, NO_TIMESTAMP, Transaction
from kohort_lab.transactions.broker import PARTITIONS, SimulatedBroker

STEPS_LEFT_MAX: Final = 4


def age(broker: SimulatedBroker, transactional_id: str, steps_left: int, aged: Callable[[], None]) -> None:
    """
    Let a transactional id have `steps_left` epochs before the last one: other clients have taken it over many times.

    Args:
        aged: called when that is durable; not called for an unknown id, or one with a transaction.
    """

    def operation(shard: HasContext, now_ms: int) -> Result[Any, bool]:
        found = shard.context.transactions.get(transactional_id)
        epoch = EPOCH_EXHAUSTED - steps_left
        if found is None or is_unfinished(found.state) or found.producer_epoch >= epoch:
            return Result(response=False)
        old = Transaction(
            transactional_id,
            found.producer_id,
            epoch,
            found.timeout_ms,
            EMPTY,
            NO_PARTITIONS,
            NO_TIMESTAMP,
            now_ms,
            found.client_version,
            found.producer_id,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
        )
        return Result([old], True)

    def answered(is_aged: bool) -> None:
        if is_aged:
            aged()

    response = broker.runtime(TRANSACTION_STATE).write(
        _partition(transactional_id), operation, answered, lambda _: False
    )
    if response is not None:
        answered(response)


def is_exhausted(broker: SimulatedBroker, transactional_id: str) -> bool:
    """Whether the id is at one of its last two epochs, where Kafka answers UNKNOWN_SERVER_ERROR to some requests."""

    def query(shard: HasContext, _offset: int) -> bool:
        found = shard.context.transactions.get(transactional_id)
        return found is not None and found.is_epoch_exhausted

    return broker.runtime(TRANSACTION_STATE).read(_partition(transactional_id), query, lambda _: False)


def _partition(transactional_id: str) -> int:
    return coordinator_partition(transactional_id, PARTITIONS[TRANSACTION_STATE])
