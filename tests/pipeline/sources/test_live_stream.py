"""A running cluster, followed while it is written to."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Records
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import published
from kohort.pipeline.runs.run import Run, Source
from kohort.pipeline.runs.state import RunRequest
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import read_task
from kohort.pipeline.sources.streams.limited import LimitedLogStreamReader
from kohort.testing.served import ServedKohort
from tests.clients.waiting import PATIENCE_S

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServedKohort(tmp_path_factory.mktemp("kohort"), {"offsets.topic.num.partitions": "2"}) as broker:
        asyncio.run(produced(broker.bootstrap))
        yield broker.bootstrap


async def produced(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    await producer.send_and_wait("orders", b"one", partition=0)
    await producer.stop()


def commit(bootstrap: str, group: str, *offsets: int) -> None:
    async def each() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition("orders", 0)])
        for offset in offsets:
            await consumer.commit({TopicPartition("orders", 0): offset})
        await consumer.stop()

    asyncio.run(each())


def reader(bootstrap: str, **options: str) -> LimitedLogStreamReader:
    return LimitedLogStreamReader(SourceOptions.parse({"path": f"kafka://{bootstrap}", **options}))


def offsets_of(stream: LimitedLogStreamReader, start: Any, end: Any, group: str) -> list[int]:
    found = [row for task in stream.partitions(start, end) for part in stream.read(task) for row in part.to_pylist()]
    return [row["offset"] for row in found if row["group"] == group and row["kind"] == "offset_commit"]


def test_what_is_committed_comes_once(bootstrap: str) -> None:
    commit(bootstrap, "tail", 1, 2)
    stream = reader(bootstrap)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ALL)
    commit(bootstrap, "tail", 3)
    second = stream.latestOffset(first, ALL)
    assert offsets_of(stream, start, first, "tail") == [1, 2]
    assert offsets_of(stream, first, second, "tail") == [3]
    assert stream.partitions(second, second) == []


def test_a_stream_begins_at_the_end_and_keeps_its_limit(bootstrap: str) -> None:
    stream = reader(bootstrap, startingOffsets="latest")
    at = stream.initialOffset()
    commit(bootstrap, "limited", *range(10))
    stream.prepareForTriggerAvailableNow()
    commit(bootstrap, "limited", 99)
    parts = []
    while (end := stream.latestOffset(at, ReadMaxRows(4))) != at:
        parts.append(offsets_of(stream, at, end, "limited"))
        at = end
    assert [offset for part in parts for offset in part] == list(range(10))
    assert len(parts) > 2
    assert all(len(part) <= 5 for part in parts)


def test_a_topic_that_was_created_again(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create() -> None:
        admin.create_topics([NewTopic("again", num_partitions=1)])["again"].result(PATIENCE_S)

    def produce(count: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(count):
            producer.produce("again", b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def log_offsets(start: Any, end: Any) -> list[int]:
        found = [part for task in lenient.partitions(start, end) for part in lenient.read(task)]
        return [next_offset for part in found for next_offset in part["next_offset"].to_pylist()]

    options = {"topics": "again", "kinds": "batch"}
    careful, lenient = reader(bootstrap, **options), reader(bootstrap, **options, failOnDataLoss="false")
    create()
    produce(20)
    at = lenient.latestOffset(lenient.initialOffset(), ALL)
    admin.delete_topics(["again"])["again"].result(PATIENCE_S)
    create()
    produce(25)
    with pytest.raises(ConfigError, match=r"topic again was deleted and created again .topic id"):
        careful.latestOffset(at, ALL)
    following = lenient.latestOffset(at, ALL)
    assert log_offsets(at, following)[-1] == 25
    assert following["again"]["id"] != at["again"]["id"]
    produce(10)
    assert log_offsets(following, lenient.latestOffset(following, ALL))[-1] == 35


def test_records_that_go_between_the_plan_and_the_read(bootstrap: str) -> None:
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), "vanishing"
    producer = Producer({"bootstrap.servers": bootstrap})

    def produce(count: int) -> None:
        admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(PATIENCE_S)
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
            assert producer.flush(PATIENCE_S) == 0

    def planned(stream: LimitedLogStreamReader) -> list[Any]:
        return stream.partitions(start, end)

    def read(stream: LimitedLogStreamReader, tasks: list[Any]) -> list[dict[str, Any]]:
        return [row for task in tasks for part in stream.read(task) for row in part.to_pylist()]

    options = {"topics": topic, "kinds": "batch,damage"}
    careful, lenient = reader(bootstrap, **options), reader(bootstrap, **options, failOnDataLoss="false")
    produce(20)
    start = lenient.initialOffset()
    end = lenient.latestOffset(start, ALL)
    plans = planned(careful), planned(lenient), planned(lenient)
    admin.delete_records([Records(topic, 0, 8)])[Records(topic, 0)].result(PATIENCE_S)
    with pytest.raises(ConfigError, match=r"vanishing-0 cannot be read: OFFSET_OUT_OF_RANGE"):
        read(careful, plans[0])
    damage, *rows = read(lenient, plans[1])
    assert damage["problem"].startswith("offsets 0 to 8 were deleted before they were read")
    assert [row["next_offset"] for row in rows] == list(range(9, 21))
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    produce(30)
    # Fetch by name would return the records of the new topic.
    with pytest.raises(ConfigError, match=r"UNKNOWN_TOPIC_ID .its topic was deleted, and maybe created again."):
        read(careful, plans[0])
    (damage,) = read(lenient, plans[2])
    assert damage["problem"].startswith("offsets 0 to 20 were deleted before they were read")


def test_the_log_start_may_lie_inside_a_batch(bootstrap: str) -> None:
    topic, admin = "begun", AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5_000})
    for _ in range(2):
        for number in range(6):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
    admin.delete_records([Records(topic, 0, 4)])[Records(topic, 0)].result(PATIENCE_S)
    stream = reader(bootstrap, topics=topic, kinds="batch")
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, ALL))
    options = SourceOptions.parse({"path": f"kafka://{bootstrap}", "topics": topic, "kinds": "batch"})
    for found in (
        [part for task in tasks for part in stream.read(task)],
        [part for task in tasks_of(options) for part in read_task(options, task)],
    ):
        assert [(row["log_offset"], row["next_offset"]) for part in found for row in part.to_pylist()] == [
            (0, 6),
            (6, 12),
        ]


def test_bytes_are_not_known_over_the_wire(bootstrap: str) -> None:
    stream = reader(bootstrap, maxBytesPerTrigger="5")
    with pytest.raises(ConfigError, match="use maxRecordsPerTrigger there"):
        stream.latestOffset({}, stream.getDefaultReadLimit())


@pytest.mark.spark
def test_runs_over_a_cluster(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    def once() -> int:
        wanted = RunRequest(tables=("offsets", "lag"))
        return Run(Source(f"kafka://{bootstrap}"), tmp_path, wanted, lambda _: nullcontext(spark)).once().version

    commit(bootstrap, "published", 0)
    assert once() == 1
    commit(bootstrap, "published", 1)
    assert (once(), once()) == (2, 2)
    (row,) = published.rows(tmp_path, "lag", where={"group": "published"})
    assert (row["offset"], row["end_offset"], row["lag"]) == (1, 1, 0)
