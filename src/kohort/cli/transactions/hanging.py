"""
Hanging transactions: open in a partition, but in no transaction of a coordinator, so that nobody writes their marker.

Source: KIP-664; Kafka TransactionsCommand.FindHangingTransactionsCommand. Kafka's tool reports a transaction that ends
between its requests; here the partitions are asked again at the end.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kohort.cli.topics import queries as topic_queries
from kohort.cli.transactions.producers import ProducerState, Replica, describe_producers
from kohort.cli.transactions.queries import Filters, Transaction, find_transaction, list_transactions
from kohort.client.cluster import Client
from kohort.model.ids import TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerState


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


class Search(NamedTuple):
    """The result of a search: hanging transactions, and the partitions without an answer with the reason."""

    hanging: list[HangingTransaction]
    failures: dict[TopicPartition, str]


def find_hanging(client: Client, replicas: Sequence[Replica], max_timeout_ms: int, now_ms: int) -> Search:
    """
    Search partitions for hanging transactions.

    Args:
        replicas: the partitions, and the brokers to ask about them.
        max_timeout_ms: transactions whose producer wrote more recently are left out. If no producer has a longer timeout,
            coordinators have ended the others.
    """
    described = describe_producers(client, replicas)
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producers in described.producers.items()
        for producer in producers
        if producer.start_offset is not None and now_ms - producer.last_timestamp_ms > max_timeout_ms
    ]
    known = known_transactions(client, {each.producer.producer_id for each in candidates})
    found = [each for each in candidates if is_hanging(each, known.get(each.producer.producer_id))]
    hanging = _still_open(client, found, replicas)
    ends = _end_offsets(client, {each.partition.topic for each in hanging})
    return Search(
        [
            HangingTransaction(
                partition, producer, known.get(producer.producer_id), _blocked(producer, ends.get(partition))
            )
            for partition, producer in sorted(hanging)
        ],
        dict(described.failures),
    )


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


def is_hanging(opened: OpenTransaction, known: Transaction | None) -> bool:
    """
    Tell whether no coordinator will end a transaction.

    A coordinator shows the partitions of an ongoing transaction, and in PrepareCommit and PrepareAbort those that still wait
    for their marker.
    """
    return known is None or opened.partition not in known.partitions


def _still_open(client: Client, found: Sequence[OpenTransaction], replicas: Iterable[Replica]) -> list[OpenTransaction]:
    """Ask again for the partitions, and leave out transactions that have ended since."""
    partitions = {each.partition for each in found}
    again = describe_producers(client, [each for each in replicas if each.partition in partitions])
    still = {
        (partition, producer.producer_id, producer.start_offset)
        for partition, producers in again.producers.items()
        for producer in producers
    }
    return [each for each in found if (each.partition, each.producer.producer_id, each.producer.start_offset) in still]


def _end_offsets(client: Client, topics: Collection[str]) -> dict[TopicPartition, int]:
    return topic_queries.offsets(client, topic_queries.existing_topics(client, topics), topic_queries.LATEST)


def _blocked(producer: ProducerState, end: int | None) -> int | None:
    return None if end is None or producer.start_offset is None else max(0, end - producer.start_offset)
