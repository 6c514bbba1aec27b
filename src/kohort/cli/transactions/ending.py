"""
Ends of transactions: an abort marker in one partition, and the fencing of a transactional id.

Source: KIP-664, KIP-939, KIP-360; Kafka AbortTransactionHandler, FenceProducersHandler.
"""

from typing import Any, NamedTuple

from kohort.cli.transactions.queries import NO_TIMEOUT_MS, Transaction, describe_transaction
from kohort.client.cluster import Client, CoordinatorKind
from kohort.client.connection import refusal
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCE_TIMEOUT_MS = 60_000
"""The timeout in a fencing request about a transaction without one. Source: the default of `transaction.timeout.ms`."""

_IN_PROGRESS = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})


class ProducerKey(NamedTuple):
    """The producer of a transaction, and the epoch of the coordinator that a partition saw last."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def init_producer_id(client: Client, transactional_id: str | None, timeout_ms: int = FENCE_TIMEOUT_MS) -> Any:
    """
    Send InitProducerId for a new producer, and return the response, which may have an error.

    Args:
        transactional_id: an open transaction of the id is aborted by the request; None for a producer without one.
    """
    request = messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
    if transactional_id is None:
        return client.send(ApiKey.INIT_PRODUCER_ID, request)
    return client.send_to_coordinator(
        transactional_id,
        ApiKey.INIT_PRODUCER_ID,
        request,
        error_code=lambda response: response.error_code,
        kind=CoordinatorKind.TRANSACTION,
    )


def write_abort_marker(client: Client, partition: TopicPartition, producer: ProducerKey) -> None:
    """
    End the transaction of a producer in one partition.

    Raises:
        ConfigError: the topic or partition does not exist.
        CoordinatorError: the partition refused the marker.
    """
    marker = messages.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[
            messages.WriteTxnMarkersRequestWritableTxnMarkerTopic(
                name=partition.topic, partition_indexes=(partition.partition,)
            )
        ],
        coordinator_epoch=producer.coordinator_epoch,
        # With version 2 the marker would need a higher producer epoch than the data.
        transaction_version=0,
    )
    request = messages.WriteTxnMarkersRequest(markers=[marker])
    response = client.send_to_leader(partition, ApiKey.WRITE_TXN_MARKERS, request, error_code=_marker_code)
    code = _marker_code(response)
    if code:
        what = f"the transaction of producer {producer.producer_id} in {partition} cannot be aborted"
        raise refusal(code, what, _REASONS.get(code))


def force_terminate(client: Client, transactional_id: str) -> Transaction:
    """
    Abort the open transaction of a transactional id, and fence its producer. Returns the state afterwards.

    InitProducerId without an epoch makes the coordinator abort the transaction with the next epoch, and answer
    CONCURRENT_TRANSACTIONS. Kafka's admin client repeats the request until it succeeds, which raises the epoch once more and
    sets another timeout. This function describes the transactional id until the transaction has ended.

    Raises:
        ConfigError: the transactional id does not exist, has no open transaction, or its markers are not written in time.
        CoordinatorError: the coordinator refused.
    """
    before = describe_transaction(client, transactional_id)
    if not before.is_open:
        raise ConfigError(f"transactional id {transactional_id} has no open transaction: its state is {before.state}")
    if before.state in ("PrepareCommit", "PrepareAbort"):
        return _ended(client, before)
    timeout_ms = FENCE_TIMEOUT_MS if before.timeout_ms == NO_TIMEOUT_MS else before.timeout_ms
    response = init_producer_id(client, transactional_id, timeout_ms)
    if response.error_code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
        raise refusal(response.error_code, f"the transaction of {transactional_id} cannot be terminated")
    return _ended(client, before)


def _ended(client: Client, before: Transaction) -> Transaction:
    """Wait until the markers of a transaction are written."""

    def once() -> Transaction:
        now = describe_transaction(client, before.transactional_id)
        if now.is_open and now.start_ms == before.start_ms:
            raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return now

    what = f"the markers of {before.transactional_id} were not written"
    return client.retried(once, _IN_PROGRESS, what)


def _marker_code(response: Any) -> int:
    """Return the error code of the only partition of the only marker."""
    codes = [
        partition.error_code for marker in response.markers for topic in marker.topics for partition in topic.partitions
    ]
    return int(codes[0]) if codes else int(ErrorCode.UNKNOWN_SERVER_ERROR)


_REASONS: dict[int, str] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the partition knows a newer epoch of the producer",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "the partition has a marker of a newer coordinator epoch",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this needs the right to alter the cluster",
}
