"""
A hanging transaction made on purpose, for tests of monitoring and of recovery.

A transactional batch is produced to a partition, or an offset is committed for a group, that no coordinator has in a
transaction. The leader accepts it if it does not verify transactions: see `verification`. Produce goes up to version 11, and
TxnOffsetCommit up to version 4, because later versions add the partition at the coordinator (KIP-890).
"""

from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from kohort.cli.transactions.ending import init_producer_id
from kohort.cli.transactions.producers import describe_producers, find_replicas
from kohort.client.cluster import RETRIABLE_COORDINATOR_ERRORS, Client
from kohort.client.commits import NO_GENERATION
from kohort.client.connection import Versions, refusal
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

UNKNOWN_ID = "kohort-hanging"
"""The transactional id in the request of a producer without one. The broker demands some id."""

_UNVERIFIED = Versions(3, 11)
"""Versions of Produce that do not add the partition to the transaction."""
_UNVERIFIED_OFFSETS = Versions(3, 4)
"""Versions of TxnOffsetCommit with members of groups that do not add the partition to the transaction."""

_ACKS_ALL = -1
_STILL_VERIFIED = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE}
)
"""Errors of a broker that has not yet applied the changed configuration."""
_VERIFIES = "the broker still verified transactions"
_NOT_READY = RETRIABLE_COORDINATOR_ERRORS | {ErrorCode.CONCURRENT_TRANSACTIONS}


class MadeTransaction(NamedTuple):
    """A hanging transaction that was made: its partition, its producer, and the offset of its first record."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int


def produce_hanging(
    client: Client, partition: TopicPartition, count: int, timestamp_ms: int, transactional_id: str | None
) -> MadeTransaction:
    """
    Produce the records of a hanging transaction. The leader must not verify transactions.

    Args:
        count: of the records; all have the timestamp.
        transactional_id: the transactional id of the producer, whose coordinator then knows the producer without this
            transaction; None for a producer that no coordinator knows.

    Raises:
        ConfigError: the topic or partition does not exist.
        CoordinatorError: a broker refused, for example because it verifies.
    """
    from kohort.wire.batches import encode_batch  # imported late: `--help` needs no codec

    producer_id, producer_epoch = _new_producer(client, transactional_id)
    records = encode_batch(
        [(f"hanging-{number}".encode(), b"a record of a hanging transaction") for number in range(count)],
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )
    topic, index = partition
    request = messages.ProduceRequest(
        transactional_id=transactional_id or UNKNOWN_ID,
        acks=_ACKS_ALL,
        timeout_ms=int(client.timeout_s * 1000),
        topic_data=[
            messages.ProduceRequestTopicProduceData(
                name=topic,
                partition_data=[messages.ProduceRequestPartitionProduceData(index=index, records=bytes(records))],
            )
        ],
    )

    def send() -> Any:
        return client.send_to_leader(partition, ApiKey.PRODUCE, request, error_code=_produce_code, within=_UNVERIFIED)

    response = _repeated(client, send, _produce_code, _STILL_VERIFIED, _VERIFIES)
    (produced,) = response.responses[0].partition_responses
    if produced.error_code:
        raise refusal(produced.error_code, f"records for {partition}", produced.error_message)
    return MadeTransaction(partition, producer_id, producer_epoch, produced.base_offset)


def commit_hanging(
    client: Client, group_id: str, partition: TopicPartition, transactional_id: str | None
) -> MadeTransaction:
    """
    Commit the offset 0 in a hanging transaction. The broker of the group's coordinator must not verify transactions.

    Args:
        transactional_id: as for `produce_hanging`.

    Raises:
        CoordinatorError: a broker refused, for example because it verifies.
    """
    producer_id, producer_epoch = _new_producer(client, transactional_id)
    topic, index = partition
    request = messages.TxnOffsetCommitRequest(
        transactional_id=transactional_id or UNKNOWN_ID,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        group_instance_id=None,
        topics=[
            messages.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    messages.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=0, committed_metadata=""
                    )
                ],
            )
        ],
    )

    def send() -> Any:
        return client.send_to_coordinator(
            group_id, ApiKey.TXN_OFFSET_COMMIT, request, error_code=_commit_code, within=_UNVERIFIED_OFFSETS
        )

    code = _commit_code(_repeated(client, send, _commit_code, _STILL_VERIFIED, _VERIFIES))
    if code:
        raise refusal(code, f"the offset of group {group_id}")
    committed, start_offset = _committed_at(client, producer_id)
    return MadeTransaction(committed, producer_id, producer_epoch, start_offset)


def _committed_at(client: Client, producer_id: int) -> tuple[TopicPartition, int]:
    """Find the open transaction of a producer in `__consumer_offsets`."""
    described = describe_producers(client, find_replicas(client, [CONSUMER_OFFSETS]))
    for partition, producers in described.producers.items():
        for producer in producers:
            if producer.producer_id == producer_id and producer.start_offset is not None:
                return partition, producer.start_offset
    raise ConfigError(f"the transaction of producer {producer_id} is not in {CONSUMER_OFFSETS}")


def _repeated(
    client: Client,
    send: Callable[[], Any],
    error_code: Callable[[Any], int],
    retriable: Collection[ErrorCode],
    failure: str,
) -> Any:
    """Repeat a request while the answer has one of some errors, and return the answer."""

    def once() -> Any:
        response = send()
        code = error_code(response)
        if code in retriable:
            raise CoordinatorError(ErrorCode(code))
        return response

    return client.retried(once, retriable, failure)


def _new_producer(client: Client, transactional_id: str | None) -> tuple[int, int]:
    send = partial(init_producer_id, client, transactional_id)
    response = _repeated(client, send, attrgetter("error_code"), _NOT_READY, "no producer id was allocated")
    if response.error_code:
        raise refusal(response.error_code, "a producer id")
    return response.producer_id, response.producer_epoch


def _commit_code(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


def _produce_code(response: Any) -> int:
    return int(response.responses[0].partition_responses[0].error_code)
