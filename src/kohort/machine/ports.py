"""
Ports between partitions, as coordinators and partition leaders see them. Within one node `broker` implements them with calls;
between nodes they would be requests.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

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


class SharePartitionKey(NamedTuple):
    """A share partition: a partition of a topic, as one share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """
    Offsets of a share partition that have one delivery state and count, both ends included.

    Attributes:
        delivery_state: 0 available, 2 acknowledged, 3 archiving, 4 archived.
        delivery_count: number of deliveries.

    Source: Kafka PersisterStateBatch.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionState(NamedTuple):
    """
    What the share coordinator keeps of a share partition.

    Attributes:
        start_offset: -1 if it is not known yet.
        delivery_complete_count: number of offsets from the start offset on that are acknowledged or archived; -1 if it is not
            known.

    Source: Kafka ShareGroupOffset.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()


class Persister(Protocol):
    """
    The share coordinators, as the group coordinator and leaders of partitions ask them. Every method calls `done` once, now or
    later, with an error of the protocol or None, or with the state. Errors that may pass are tried again before that.

    Source: Kafka DefaultStatePersister, PersisterStateManager.
    """

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        """Make the state anew. A start offset of -1 leaves the choice to the leader."""

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        done: Callable[[SharePartitionState | CoordinatorError], None],
        /,
    ) -> None:
        """Read the state at the leader of the partition, and fence leaders with an older epoch."""

    def write(
        self, key: SharePartitionKey, state: SharePartitionState, done: Callable[[CoordinatorError | None], None], /
    ) -> None:
        """Write the changes of a leader: the start offset, the count, and the changed batches."""

    def delete(self, key: SharePartitionKey, done: Callable[[CoordinatorError | None], None], /) -> None:
        """Delete the state. A state that does not exist is no error."""

    def summary(
        self, key: SharePartitionKey, done: Callable[[SharePartitionState | CoordinatorError], None], /
    ) -> None:
        """Read the state without its batches. A state that does not exist has -1 as start offset and count, and epochs 0."""


class LatestOffsets(Protocol):
    """The leaders of partitions, as coordinators ask them for the end of what a consumer may read."""

    def latest_offset(self, topic_partition: TopicPartition, done: Callable[[int | CoordinatorError], None], /) -> None:
        """
        Call `done` once, now or later, with the high watermark, or with the error of ListOffsets.

        Source: Kafka PartitionMetadataClient.listLatestOffsets.
        """
