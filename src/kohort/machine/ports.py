"""
Ports between partitions, as coordinators and partition leaders see them. Within one node `broker` implements them with calls;
between nodes they would be requests.
"""

from collections.abc import Callable
from typing import Protocol

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition


class Markers(Protocol):
    """A writer of transaction markers to partitions of any topic."""

    def write(self, topic_partition: TopicPartition, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        """
        Write one marker. `done(code)` is called once, now or later: with NONE when the marker is durable, else with the code
        that WriteTxnMarkers answers for the partition.

        Source: Kafka TransactionMarkerChannelManager, KafkaApis.handleWriteTxnMarkersRequest.
        """


class Verification(Protocol):
    """The transaction coordinator, as leaders of other partitions ask it about ongoing transactions."""

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        """
        Ask whether a producer's transaction is ongoing and includes a partition. `verified(error)` is called once, now or
        later; None lets the producer append.

        Source: Kafka AddPartitionsToTxnManager, AddPartitionsToTxn version 4 and above; KIP-890.
        """
