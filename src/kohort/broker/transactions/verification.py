"""Verification of transactions by the coordinator that this node hosts, unless the operator has switched it off."""

from collections.abc import Callable

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import CoordinatorDirectory
from kohort.machine.ports import Verification
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


class OptionalVerification:
    """
    A `kohort.machine.ports.Verification` that asks the transaction coordinator only to add a partition, if
    `transaction.partition.verification.enable` is false.

    Source: Kafka ReplicaManager.maybeSendPartitionsToTransactionCoordinator; seen on 4.2.1.
    """

    def __init__(self, verification: Verification, config: BrokerConfig) -> None:
        self._verification = verification
        self._config = config
        self._is_enabled = True
        config.watch(self._look)
        self._look(frozenset())

    def _look(self, _changed: frozenset[str]) -> None:
        self._is_enabled = self._config.get_bool("transaction.partition.verification.enable")

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        if producer.adds_partition or self._is_enabled:
            self._verification.verify(topic_partition, producer, verified)
        else:
            verified(None)
