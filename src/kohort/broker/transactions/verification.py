"""Verification of transactions by the coordinator that this node hosts."""

from collections.abc import Callable

from kohort.broker.ports import CoordinatorDirectory
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition


class LocalVerification:
    """The `kohort.machine.ports.Verification` of one node. Without a transaction coordinator no transaction is ongoing."""

    def __init__(self, coordinators: CoordinatorDirectory) -> None:
        self._coordinators = coordinators

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        coordinator = self._coordinators.verification
        if coordinator is None:
            verified(CoordinatorError(ErrorCode.INVALID_TXN_STATE))
        else:
            coordinator.verify(topic_partition, producer, verified)
