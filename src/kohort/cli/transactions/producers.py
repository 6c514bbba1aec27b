"""
The producer state of partitions: DescribeProducers to the leaders, or to one replica.

Source: KIP-664; Kafka DescribeProducersHandler, TransactionsCommand.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kohort.cli.topics import queries
from kohort.client.cluster import Client
from kohort.client.connection import error_name
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

PARTITIONS_MAX = 500
"""Partitions in one request, as in Kafka's tool."""

_NONE = -1


class ProducerState(NamedTuple):
    """
    A producer as a partition knows it.

    Attributes:
        coordinator_epoch: the epoch of the coordinator that wrote the last marker; None before the first marker.
        last_sequence: None if the last batch was a marker.
        last_timestamp_ms: the largest timestamp of the last batch.
        start_offset: the first offset of the open transaction; None if there is none.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp_ms: int
    start_offset: int | None


class Replica(NamedTuple):
    """A partition and the broker to ask about it."""

    partition: TopicPartition
    broker_id: int


class DescribedProducers(NamedTuple):
    """The producers of partitions, and for partitions without an answer the reason."""

    producers: Mapping[TopicPartition, list[ProducerState]]
    failures: Mapping[TopicPartition, str]


def find_replicas(
    client: Client, topics: Collection[str] | None, index: int | None = None, broker_id: int | None = None
) -> list[Replica]:
    """
    Find the partitions of topics, each with its leader or with one of its replicas.

    Args:
        topics: None for all topics.
        index: only this partition of each topic.
        broker_id: only partitions with a replica on this broker, which is then asked; None for the leaders.

    Raises:
        ConfigError: a topic, its partition, or the broker does not exist.
        CoordinatorError: the broker returned another error.
    """
    if broker_id is not None and broker_id not in client.brokers():
        raise ConfigError(f"there is no broker {broker_id}; the brokers are {_listed(client.brokers())}")
    found: list[Replica] = []
    for topic in queries.topics(client, topics):
        partitions = [each for each in topic.partitions if index in (None, each.partition_index)]
        if not partitions:
            raise ConfigError(f"topic {topic.name} has no partition {index}; it has {len(topic.partitions)}")
        found += [
            Replica(
                TopicPartition(topic.name, each.partition_index), each.leader_id if broker_id is None else broker_id
            )
            for each in partitions
            if broker_id is None or broker_id in each.replica_nodes
        ]
    return sorted(found)


def find_leaders(client: Client, partitions: Collection[TopicPartition]) -> list[Replica]:
    """Find the leaders of partitions. Partitions of topics that do not exist, or may not be seen, are left out."""
    topics = queries.existing_topics(client, {each.topic for each in partitions})
    leaders = {
        TopicPartition(topic.name, each.partition_index): each.leader_id
        for topic in topics
        for each in topic.partitions
    }
    return [Replica(each, leaders[each]) for each in partitions if each in leaders]


def describe_producers(client: Client, replicas: Iterable[Replica]) -> DescribedProducers:
    """Ask brokers for the producers of partitions. Partitions without a leader, and refused ones, are in `failures`."""
    by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, broker_id in replicas:
        by_broker[broker_id].append(partition)
    brokers = client.brokers()
    producers: dict[TopicPartition, list[ProducerState]] = {}
    failures: dict[TopicPartition, str] = {}
    for broker_id, partitions in sorted(by_broker.items()):
        if broker_id not in brokers:
            failures.update(dict.fromkeys(partitions, error_name(ErrorCode.LEADER_NOT_AVAILABLE)))
            continue
        for first in range(0, len(partitions), PARTITIONS_MAX):
            response = client.send(
                ApiKey.DESCRIBE_PRODUCERS, _request(partitions[first : first + PARTITIONS_MAX]), at=brokers[broker_id]
            )
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        failures[partition] = error_name(each.error_code)
                    else:
                        producers[partition] = sorted(_producer(state) for state in each.active_producers)
    return DescribedProducers(producers, failures)


def _request(partitions: Iterable[TopicPartition]) -> Any:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return messages.DescribeProducersRequest(
        topics=[
            messages.DescribeProducersRequestTopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]
    )


def _producer(state: Any) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator_epoch=None if state.coordinator_epoch == _NONE else state.coordinator_epoch,
        last_sequence=None if state.last_sequence == _NONE else state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        start_offset=None if state.current_txn_start_offset == _NONE else state.current_txn_start_offset,
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(each) for each in sorted(numbers))
