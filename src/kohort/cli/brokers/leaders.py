"""Brokers, and moves of leaders: a reassignment that makes a broker the preferred leader, then a preferred election."""

from collections import Counter
from typing import Any, Final

from kohort.cli.topics.queries import topics
from kohort.client.cluster import Client, CoordinatorKind
from kohort.client.connection import error_name, refusal
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition, coordinator_partition
from kohort.model.suggestion import suggestion
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_PREFERRED: Final = 0
_TOPICS: Final = {CoordinatorKind.GROUP: CONSUMER_OFFSETS, CoordinatorKind.TRANSACTION: TRANSACTION_STATE}


def cluster_id(client: Client) -> str:
    """The id of the cluster."""
    return str(client.send(ApiKey.METADATA, m.MetadataRequest(topics=())).cluster_id)


def brokers(client: Client) -> list[dict[str, Any]]:
    """All brokers that the cluster knows, stopped ones included, with the partitions that they lead and have replicas of."""
    described = client.send(
        ApiKey.DESCRIBE_CLUSTER, m.DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
    )
    topics = client.send(ApiKey.METADATA, m.MetadataRequest(topics=None)).topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    leads = Counter(partition.leader_id for partition in partitions)
    replicas = Counter(replica for partition in partitions for replica in partition.replica_nodes)
    in_sync = Counter(replica for partition in partitions for replica in partition.isr_nodes)
    return [
        {
            "broker": broker.broker_id,
            "state": "stopped" if broker.is_fenced else "running",
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "leads": leads[broker.broker_id],
            "replicas": replicas[broker.broker_id],
            "in_sync": in_sync[broker.broker_id],
        }
        for broker in sorted(described.brokers, key=lambda broker: broker.broker_id)
    ]


def coordinator_place(client: Client, key: str, kind: CoordinatorKind) -> TopicPartition:
    """The partition whose leader coordinates a group or a transactional id."""
    client.coordinator(key, kind)  # creates the internal topic if there is none
    topic = _describe(client, _TOPICS[kind])
    return TopicPartition(_TOPICS[kind], coordinator_partition(key, len(topic.partitions)))


def move(client: Client, place: TopicPartition, broker: int) -> dict[str, Any]:
    """
    Make a broker the preferred and the present leader of a partition, and return the new leader.

    Raises:
        ConfigError: the partition does not exist, or the broker has no replica of it, or is not in sync.
        CoordinatorError: the cluster refused.
    """
    state = partition_of(client, place)
    if broker not in state.replica_nodes:
        replicas = ", ".join(map(str, state.replica_nodes))
        raise ConfigError(f"broker {broker} has no replica of {place}; its replicas are on {replicas}")
    if broker not in state.isr_nodes:
        raise ConfigError(f"broker {broker} is not in sync for {place}; start it first: kohort brokers start {broker}")
    if state.replica_nodes[0] != broker:
        order = (broker, *(replica for replica in state.replica_nodes if replica != broker))
        reassign(client, place, order)
    elect(client, place)
    state = partition_of(client, place)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "leader": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replica_nodes),
    }


def reassign(client: Client, place: TopicPartition, replicas: tuple[int, ...]) -> None:
    """Begin to move a partition. Raises: CoordinatorError: the cluster refused."""
    partition = m.AlterPartitionReassignmentsRequestReassignablePartition(
        partition_index=place.partition, replicas=replicas
    )
    topic = m.AlterPartitionReassignmentsRequestReassignableTopic(name=place.topic, partitions=[partition])
    request = m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=int(client.timeout_s * 1000))
    response = client.send(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    _check(response.error_code, place, response.error_message)
    for answer in response.responses:
        for result in answer.partitions:
            _check(result.error_code, place, result.error_message)


def elect(client: Client, place: TopicPartition) -> None:
    """Let the first replica lead. Raises: CoordinatorError: the cluster refused."""
    topic = m.ElectLeadersRequestTopicPartitions(topic=place.topic, partitions=[place.partition])
    request = m.ElectLeadersRequest(
        election_type=_PREFERRED, topic_partitions=[topic], timeout_ms=int(client.timeout_s * 1000)
    )
    response = client.send(ApiKey.ELECT_LEADERS, request)
    _check(response.error_code, place, None)
    for answer in response.replica_election_results:
        for result in answer.partition_result:
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                _check(result.error_code, place, result.error_message)


def _check(code: int, place: TopicPartition, message: str | None) -> None:
    if code:
        raise refusal(code, f"leader of {place}", message or error_name(code))


def _describe(client: Client, name: str) -> m.MetadataResponseTopic:
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = client.send(ApiKey.METADATA, request).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        near = suggestion(name, [each.name for each in topics(client)])
        raise ConfigError(f"topic {name!r} does not exist{near or '; see: kohort topics list'}")
    if topic.error_code:
        raise refusal(topic.error_code, f"topic {name}")
    found: m.MetadataResponseTopic = topic
    return found


def partition_of(client: Client, place: TopicPartition) -> m.MetadataResponsePartition:
    """A partition as Metadata has it. Raises: ConfigError: it does not exist."""
    partitions = {partition.partition_index: partition for partition in _describe(client, place.topic).partitions}
    if place.partition not in partitions:
        raise ConfigError(f"topic {place.topic} has no partition {place.partition}; it has {len(partitions)}")
    return partitions[place.partition]
