"""The calls of administration clients: topics, configurations, offsets, groups, the cluster."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaNewTopic
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.clients.conftest import Broker
from tests.clients.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def librdkafka(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(scope="module")
def kafka_python(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def name() -> str:
    return f"topic-{uuid4().hex[:8]}"


def test_librdkafka_creates_describes_extends_and_deletes_a_topic(librdkafka: AdminClient, name: str) -> None:
    created = librdkafka.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})])
    assert created[name].result(PATIENCE_S) is None
    _refused(librdkafka.create_topics([NewTopic(name, 2, 1)])[name], KafkaError.TOPIC_ALREADY_EXISTS)

    described = librdkafka.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S)
    assert (described.name, described.is_internal) == (name, False)
    broker_ids = list(librdkafka.list_topics(timeout=PATIENCE_S).brokers)
    for number, partition in enumerate(described.partitions):
        replicas = [node.id for node in partition.replicas]
        assert (partition.id, partition.leader.id, replicas) == (number, broker_ids[0], broker_ids)

    assert librdkafka.create_partitions([NewPartitions(name, 3)])[name].result(PATIENCE_S) is None
    assert len(librdkafka.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S).partitions) == 3
    _refused(librdkafka.create_partitions([NewPartitions(name, 2)])[name], KafkaError.INVALID_PARTITIONS)

    assert librdkafka.delete_topics([name])[name].result(PATIENCE_S) is None
    wait_until(
        lambda: name not in librdkafka.list_topics(timeout=PATIENCE_S).topics,
        what="the topic is gone",
    )
    _refused(librdkafka.delete_topics([name])[name], KafkaError.UNKNOWN_TOPIC_OR_PART)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("not a name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("topic-no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("topic-many-replicas", 1, 100), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("topic-strange-config", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("topic-bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic if isinstance(value, NewTopic) else "",
)
def test_a_topic_that_cannot_be_is_refused(librdkafka: AdminClient, topic: NewTopic, code: int) -> None:
    _refused(librdkafka.create_topics([topic])[topic.topic], code)


def test_librdkafka_changes_and_reads_configurations(librdkafka: AdminClient, make_topic: Callable[..., str]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, make_topic(**{"retention.ms": "1000"}))
    before = _described(librdkafka, resource)
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("1000", False)
    assert (before["cleanup.policy"].value, before["cleanup.policy"].is_default) == ("delete", True)

    change = ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(change)
    assert librdkafka.incremental_alter_configs([resource])[resource].result(PATIENCE_S) is None
    after = wait_until(
        lambda: (found := _described(librdkafka, resource))["retention.ms"].value == "2000" and found,
        what="the configuration has changed",
    )
    assert {name for name in before if before[name].value != after[name].value} == {"retention.ms"}


def test_librdkafka_describes_the_cluster_and_a_broker(librdkafka: AdminClient) -> None:
    cluster = librdkafka.describe_cluster().result(PATIENCE_S)
    (node,) = cluster.nodes
    assert len(cluster.cluster_id) == 22
    assert cluster.controller.id == node.id
    configs = _described(librdkafka, ConfigResource(ResourceType.BROKER, str(node.id)))
    assert configs["offsets.topic.num.partitions"].value == "50"
    assert configs["group.initial.rebalance.delay.ms"].value == "100"


def test_librdkafka_lists_offsets(librdkafka: AdminClient, broker: Broker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for timestamp_ms in (1_000, 3_000, 2_000):
        producer.produce(topic, b"x", timestamp=timestamp_ms, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    partition = TopicPartition(topic, 0)
    specs = {
        "earliest": OffsetSpec.earliest(),
        "latest": OffsetSpec.latest(),
        "greatest timestamp": OffsetSpec.max_timestamp(),
        "timestamp 1500": OffsetSpec.for_timestamp(1_500),
        "timestamp 4000": OffsetSpec.for_timestamp(4_000),
    }
    found = {
        name: librdkafka.list_offsets({partition: spec})[partition].result(PATIENCE_S) for name, spec in specs.items()
    }
    assert {name: result.offset for name, result in found.items()} == {
        "earliest": 0,
        "latest": 3,
        "greatest timestamp": 1,
        "timestamp 1500": 1,
        "timestamp 4000": -1,
    }
    assert found["timestamp 1500"].timestamp == 3_000


def test_librdkafka_lists_describes_and_deletes_groups(
    librdkafka: AdminClient, broker: Broker, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader"})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the member is in the group")

    described = librdkafka.describe_consumer_groups([group])[group].result(PATIENCE_S)
    (member,) = described.members
    assert (described.group_id, described.state, described.partition_assignor) == (
        group,
        ConsumerGroupState.STABLE,
        "range",
    )
    assert (member.client_id, member.group_instance_id) == ("reader", None)
    assert sorted((each.topic, each.partition) for each in member.assignment.topic_partitions) == [
        (topic, 0),
        (topic, 1),
    ]
    _refused(librdkafka.delete_consumer_groups([group])[group], KafkaError.NON_EMPTY_GROUP)

    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    listed = librdkafka.list_consumer_groups().result(PATIENCE_S).valid
    assert [each.state for each in listed if each.group_id == group] == [ConsumerGroupState.EMPTY]
    assert librdkafka.delete_consumer_groups([group])[group].result(PATIENCE_S) is None
    assert group not in [each.group_id for each in librdkafka.list_consumer_groups().result(PATIENCE_S).valid]
    _refused(librdkafka.delete_consumer_groups([group])[group], KafkaError.GROUP_ID_NOT_FOUND)


def test_kafka_python_creates_describes_and_deletes_a_topic(kafka_python: KafkaAdminClient, name: str) -> None:
    kafka_python.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    (described,) = kafka_python.describe_topics([name])
    assert (described["name"], len(described["partitions"])) == (name, 2)
    offsets = kafka_python.list_partition_offsets({KafkaPythonTopicPartition(name, 1): -1})
    assert offsets[KafkaPythonTopicPartition(name, 1)].offset == 0
    kafka_python.delete_topics([name])
    wait_until(lambda: name not in kafka_python.list_topics(), what="the topic is gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        kafka_python.delete_topics([name])


def test_kafka_python_describes_the_cluster_and_its_apis(kafka_python: KafkaAdminClient) -> None:
    cluster = kafka_python.describe_cluster()
    (broker,) = cluster["brokers"]
    assert (broker["host"], cluster["controller_id"]) == ("127.0.0.1", broker["broker_id"])


def test_aiokafka_creates_describes_and_deletes_a_topic(broker: Broker, name: str) -> None:
    async def story() -> tuple[Any, list[Any], list[str]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        created = await admin.create_topics([AiokafkaNewTopic(name, 2, 1)])
        described = await admin.describe_topics([name])
        await admin.delete_topics([name])
        while name in await admin.list_topics():
            await asyncio.sleep(0.02)
        groups = await admin.list_consumer_groups()
        await admin.close()
        return created, described, [each[0] for each in groups]

    created, described, _ = asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
    assert [(topic, code) for topic, code, *_ in created.topic_errors] == [(name, 0)]
    assert [(each["topic"], len(each["partitions"])) for each in described] == [(name, 2)]


def _described(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    configs: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return configs


def _refused(future: Any, code: int) -> None:
    with pytest.raises(KafkaException) as raised:
        future.result(PATIENCE_S)
    assert raised.value.args[0].code() == code, raised.value
