"""Verification of transactions on a cluster without a transaction coordinator."""

from collections.abc import Callable

from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition


class NoTransactionCoordinator:
    """A `kohort.machine.ports.Verification` for which no transaction is ongoing."""

    def verify(
        self,
        _topic_partition: TopicPartition,
        _producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        verified(CoordinatorError(ErrorCode.INVALID_TXN_STATE))
