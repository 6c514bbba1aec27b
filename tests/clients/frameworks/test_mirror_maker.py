"""MirrorMaker 2: records, settings and committed offsets of one Kohort on another one, by connectors of Kafka Connect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kohort.testing.kafka import UnavailableKafkaError
from kohort.testing.served import ServedKohort
from tests.clients.conftest import Broker, new_topic
from tests.clients.frameworks.connect import Worker
from tests.clients.transactions.consumers import high_watermark, with_librdkafka, write_end
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.java, pytest.mark.maven]

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
RECORDS = 100
READ = 60


@pytest.fixture
def worker(broker: Broker, tmp_path: Path) -> Iterator[Worker]:
    """A worker of Kafka Connect; its topics are on the target, as MirrorMaker wants it."""
    suffix = uuid4().hex[:8]
    names = {f"{name}.storage.topic": f"mirror-{name}-{suffix}" for name in ("config", "offset", "status")}
    try:
        worker = Worker(tmp_path / "worker", broker.bootstrap, group_id=f"mirror-{suffix}", **names)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with worker:
        yield worker


def test_records_settings_and_offsets_of_groups_are_mirrored(
    broker: Broker, own_broker: Callable[[], ServedKohort], worker: Worker, group: str
) -> None:
    """A group goes on at the target where it stopped at the source."""
    source = own_broker().bootstrap
    topic = new_topic(source, 1, {"retention.ms": "7200000"})
    write(source, topic, 0, RECORDS)
    commit(source, group, topic, READ)
    shared = {
        "source.cluster.alias": "old",
        "target.cluster.alias": "new",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": broker.bootstrap,
        "key.converter": BYTES,
        "value.converter": BYTES,
    }
    worker.ask(
        "PUT",
        "/connectors/records/config",
        {
            **shared,
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "topics": topic,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            # Each record may be the nearest one before a committed offset.
            "offset.lag.max": "0",
            "refresh.topics.interval.seconds": "1",
            "sync.topic.configs.interval.seconds": "1",
        },
    )
    mirrored = f"old.{topic}"
    wait_until(lambda: end_offset(broker.bootstrap, mirrored) >= RECORDS, what=f"{mirrored} has {RECORDS} records")
    worker.ask(
        "PUT",
        "/connectors/offsets/config",
        {
            **shared,
            "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
            "groups": group,
            "checkpoints.topic.replication.factor": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
        },
    )
    wait_until(
        lambda: committed(broker.bootstrap, group, mirrored) > 0,
        what=lambda: f"the offset of the group is mirrored; states: {worker.states('offsets')}",
    )
    # MirrorMaker knows some pairs of offsets, and chooses the last one before the group's: nothing is skipped.
    assert 0 < committed(broker.bootstrap, group, mirrored) <= READ
    write(source, topic, RECORDS, RECORDS + 10)
    wait_until(lambda: end_offset(broker.bootstrap, mirrored) >= RECORDS + 10, what="new records follow")
    commit(source, group, topic, RECORDS + 10)
    # The records come in transactions, whose markers have offsets as well: the last one is after the last record.
    wait_until(
        lambda: committed(broker.bootstrap, group, mirrored) == end_offset(broker.bootstrap, mirrored) - 1,
        what=lambda: f"the group's progress follows; it is at {committed(broker.bootstrap, group, mirrored)}",
    )
    wait_until(lambda: retention_ms(broker.bootstrap, mirrored) == "7200000", what="the topic's settings follow")
    for name in ("records", "offsets"):
        assert set(worker.states(name)) == {"RUNNING"}, name
    write_end(broker.bootstrap, mirrored, 0)
    assert with_librdkafka(broker.bootstrap, mirrored, 0, "read_committed") == [
        f"value {number}" for number in range(RECORDS + 10)
    ]


def write(bootstrap: str, topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, last):
        producer.produce(topic, f"value {number}", partition=0)
    assert producer.flush(PATIENCE_S) == 0


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """Return the committed offset of partition 0; -1 if there is none."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = answer.result(PATIENCE_S).topic_partitions
    return next((each.offset for each in found if each.topic == topic), -1)


def end_offset(bootstrap: str, topic: str) -> int:
    """Return the high watermark of partition 0; 0 as long as there is no such topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=PATIENCE_S).topics:
        return 0
    return high_watermark(bootstrap, topic)


def retention_ms(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(answer.result(PATIENCE_S)["retention.ms"].value)
