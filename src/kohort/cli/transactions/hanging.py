"""
Hanging transactions: open in a partition, but in no transaction of a coordinator, so that nobody writes their marker.

Source: KIP-664; Kafka TransactionsCommand.FindHangingTransactionsCommand. Kafka's tool reports a transaction that ends
between its requests; here the partitions are asked again at the end.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kohort.cli.topics import queries as topic_queries
from kohort.cli.transactions.producers import ProducerState, Replica, describe_producers
from kohort.cli.transactions.queries import Filters, Transaction, find_transaction, list_transactions
from kohort.client.cluster import Client
from kohort.model.ids import TopicPartition


class HangingTransaction(NamedTuple):
    """
    A transaction that will not end by itself.

    Attributes:
        known: the transactional id of the producer; None if no coordinator knows the producer.
        blocked_records: offsets from the transaction's first record to the high watermark; None if it is unknown.
    """

    partition: TopicPartition
    producer: ProducerState
    known: Transaction | None
    blocked_records: int | None


def find_hanging(
    client: Client, replicas: Sequence[Replica], max_timeout_ms: int, now_ms: int
) -> tuple[list[HangingTransaction], Mapping[TopicPartition, str]]:
    """
    Search partitions for hanging transactions. Returns them, and the reasons of the partitions without an answer.

    Args:
        replicas: the partitions, and the brokers to ask about them.
        max_timeout_ms: transactions whose producer wrote more recently are left out. If no producer has a longer timeout,
            coordinators have ended the others.
    """
    described = describe_producers(client, replicas)
    candidates = [
        (partition, producer)
        for partition, producers in described.producers.items()
        for producer in producers
        if producer.start_offset is not None and now_ms - producer.last_timestamp_ms > max_timeout_ms
    ]
    known = known_transactions(client, {producer.producer_id for _, producer in candidates})
    found = [
        (partition, producer)
        for partition, producer in candidates
        if is_hanging(partition, known.get(producer.producer_id))
    ]
    hanging = _still_open(client, found, replicas)
    topics = topic_queries.existing_topics(client, {partition.topic for partition, _ in hanging})
    ends = topic_queries.offsets(client, topics, topic_queries.LATEST)
    return [
        HangingTransaction(
            partition, producer, known.get(producer.producer_id), _blocked(producer, ends.get(partition))
        )
        for partition, producer in sorted(hanging)
    ], described.failures


def known_transactions(client: Client, producer_ids: Collection[int]) -> dict[int, Transaction]:
    """Describe the transactional ids of producers, by producer id. Producers that no coordinator knows are left out."""
    if not producer_ids:
        return {}
    found: dict[int, Transaction] = {}
    for listed in list_transactions(client, Filters(producer_ids=producer_ids)):
        transaction = find_transaction(client, listed.transactional_id)
        if transaction is not None:
            found[listed.producer_id] = transaction
    return found


def is_hanging(partition: TopicPartition, known: Transaction | None) -> bool:
    """
    Tell whether no coordinator will end a transaction that is open in a partition.

    A coordinator shows the partitions of an ongoing transaction, and in PrepareCommit and PrepareAbort those that still wait
    for their marker.
    """
    return known is None or partition not in known.partitions


def _still_open(
    client: Client, found: Sequence[tuple[TopicPartition, ProducerState]], replicas: Iterable[Replica]
) -> list[tuple[TopicPartition, ProducerState]]:
    """Ask again for the partitions, and leave out transactions that have ended since."""
    partitions = {partition for partition, _ in found}
    again = describe_producers(client, [each for each in replicas if each.partition in partitions])
    still = {
        (partition, producer.producer_id, producer.start_offset)
        for partition, producers in again.producers.items()
        for producer in producers
    }
    return [
        (partition, producer)
        for partition, producer in found
        if (partition, producer.producer_id, producer.start_offset) in still
    ]


def _blocked(producer: ProducerState, end: int | None) -> int | None:
    return None if end is None or producer.start_offset is None else max(0, end - producer.start_offset)
