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
        Ask whether a producer's transaction is ongoing and includes a partition, or have the partition added to it
        (`Producer.adds_partition`). `verified(error)` is called once, now or later; None lets the producer append.

        The error has the coordinator's own code, which callers translate for their API and its version:
        INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH (for PRODUCER_FENCED), TRANSACTION_ABORTABLE (the partition is not
        part of an ongoing transaction), CONCURRENT_TRANSACTIONS, INVALID_REQUEST, UNSUPPORTED_VERSION, or an error of the
        coordinator's partition (NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE).

        Source: Kafka AddPartitionsToTxnManager, AddPartitionsToTxn version 4 and above; KIP-890.
        """


class ProducerIdGenerator(Protocol):
    """
    Ids of producers, none of which is ever given out twice.

    Source: Kafka ProducerIdManager.
    """

    def take(self) -> int | None:
        """Take an id; None if none is at hand."""

    def when_available(self, ready: Callable[[ErrorCode], None], /) -> None:
        """
        Call `ready(code)` once, now or later: with NONE when `take` has ids again, else with the error of the reservation.
        """
