"""Verification of transactions, unless the operator has switched it off."""

from collections.abc import Callable

from kohort.broker.configs.definitions import BrokerConfig
from kohort.machine.ports import Verification
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError
from kohort.model.ids import TopicPartition


class OptionalVerification:
    """
    A `kohort.machine.ports.Verification` that asks the transaction coordinator only to add a partition, if
    `transaction.partition.verification.enable` is false.

    Source: Kafka ReplicaManager.maybeSendPartitionsToTransactionCoordinator; seen on 4.2.1.
    """

    def __init__(self, verification: Verification, config: BrokerConfig) -> None:
        self._verification = verification
        self._config = config

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        if producer.adds_partition or self._config.get_bool("transaction.partition.verification.enable"):
            self._verification.verify(topic_partition, producer, verified)
        else:
            verified(None)
