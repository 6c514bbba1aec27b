"""
Unmodified clients meet the faults of the control port, and react as their documents say: they ask again, join again, begin
anew, or tell the application.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from kohort.testing import Broker
from tests.clients.waiting import PATIENCE_S

QUICK = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "topic.metadata.refresh.sparse": False,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "log_level": 0,
}


def values(kit: Broker, topic: str, isolation: str = "read_committed") -> list[str]:
    found = kit.control_client.get("topics", topic, "records", isolation=isolation)
    return [each["value"] for each in found["records"]]


# -- librdkafka --------------------------------------------------------------------------------------------------


def producer(kit: Broker, **more: Any) -> Producer:
    settings = {"bootstrap.servers": kit.bootstrap, "linger.ms": 0, **QUICK}
    return Producer(settings | {name.replace("_", "."): value for name, value in more.items()})


def consumer(kit: Broker, topic: str, **more: Any) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": kit.bootstrap,
        "group.id": f"group-of-{topic}",
        "client.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 1_000,
        "fetch.wait.max.ms": 50,
        **QUICK,
    }
    found = Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})
    found.subscribe([topic])
    return found


def consumed(reader: Consumer, count: int) -> list[str]:
    found: list[str] = []
    deadline = monotonic() + PATIENCE_S
    while len(found) < count and monotonic() < deadline:
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
    return found


def polled_until(reader: Consumer, is_true: Callable[[], bool]) -> bool:
    deadline = monotonic() + PATIENCE_S
    while not is_true() and monotonic() < deadline:
        reader.poll(0.02)
    return is_true()


def sent(writer: Producer, topic: str, value: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    writer.produce(topic, value, on_delivery=lambda error, _message: told.append(error))
    assert writer.flush(PATIENCE_S) == 0
    return told[0]


@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_ENOUGH_REPLICAS",
        "REQUEST_TIMED_OUT",
        "CORRUPT_MESSAGE",
    ],
)
def test_librdkafka_sends_a_batch_again(kit: Broker, topic: str, error: str) -> None:
    fault = kit.fault(api="Produce", topic=topic, error=error, times=2)
    assert sent(producer(kit, enable_idempotence=True), topic, "x") is None
    assert (fault.hits, values(kit, topic)) == (2, ["x"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("MESSAGE_TOO_LARGE", KafkaError.MSG_SIZE_TOO_LARGE),
        ("TOPIC_AUTHORIZATION_FAILED", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("INVALID_REQUIRED_ACKS", KafkaError.INVALID_REQUIRED_ACKS),
    ],
)
def test_librdkafka_gives_a_batch_up(kit: Broker, topic: str, error: str, code: int) -> None:
    fault = kit.fault(api="Produce", topic=topic, error=error)
    told = sent(producer(kit), topic, "x")
    assert told is not None
    assert (told.code(), fault.hits, values(kit, topic)) == (code, 1, [])


@pytest.mark.parametrize(("is_idempotent", "written"), [(True, ["x"]), (False, ["x", "x"])])
def test_librdkafka_sends_a_batch_again_whose_answer_was_lost(
    kit: Broker, topic: str, is_idempotent: bool, written: list[str]
) -> None:
    fault = kit.fault(api="Produce", topic=topic, disconnect="after")
    assert sent(producer(kit, enable_idempotence=is_idempotent), topic, "x") is None
    assert (fault.hits, values(kit, topic)) == (1, written)


def test_librdkafka_looks_for_the_leader_again(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="Metadata", topic=topic, error="LEADER_NOT_AVAILABLE", times=2)
    assert sent(producer(kit), topic, "x") is None
    assert fault.hits == 2


def test_librdkafka_reads_on_after_a_corrupt_batch(kit: Broker, topic: str) -> None:
    sent(producer(kit), topic, "x")
    fault = kit.fault(api="Fetch", topic=topic, corrupt=True)
    reader = consumer(kit, topic, check_crcs=True)
    assert consumed(reader, 1) == ["x"]
    assert fault.hits == 1
    reader.close()


def test_librdkafka_begins_anew_where_its_offset_is_gone(kit: Broker, topic: str) -> None:
    sent(producer(kit), topic, "x")
    reader = consumer(kit, topic)
    assert consumed(reader, 1) == ["x"]
    fault = kit.fault(api="Fetch", topic=topic, error="OFFSET_OUT_OF_RANGE")
    assert consumed(reader, 1) == ["x"]
    assert fault.hits == 1
    reader.close()


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_librdkafka_commits_again(kit: Broker, topic: str, error: str) -> None:
    sent(producer(kit), topic, "x")
    reader = consumer(kit, topic)
    consumed(reader, 1)
    fault = kit.fault(api="OffsetCommit", group=f"group-of-{topic}", error=error)
    deadline = monotonic() + PATIENCE_S
    committed = None
    while committed is None and monotonic() < deadline:
        try:
            committed = reader.commit(asynchronous=False)
        except KafkaException:
            continue
    assert committed is not None
    assert (fault.hits, committed[0].offset) == (1, 1)
    reader.close()


@pytest.mark.parametrize("error", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "OFFSET_METADATA_TOO_LARGE"])
def test_librdkafka_tells_the_application_that_a_commit_failed(kit: Broker, topic: str, error: str) -> None:
    sent(producer(kit), topic, "x")
    reader = consumer(kit, topic)
    consumed(reader, 1)
    fault = kit.fault(api="OffsetCommit", group=f"group-of-{topic}", error=error)
    with pytest.raises(KafkaException) as raised:
        reader.commit(asynchronous=False)
    assert raised.value.args[0].code() == getattr(KafkaError, error)
    assert fault.hits == 1
    reader.close()


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"])
def test_librdkafka_joins_again(kit: Broker, topic: str, error: str) -> None:
    reader = consumer(kit, topic)
    assert polled_until(reader, lambda: bool(reader.assignment()))
    joins = kit.fault(api="JoinGroup", group=f"group-of-{topic}", observe=True)
    fault = kit.fault(api="Heartbeat", group=f"group-of-{topic}", error=error)
    assert polled_until(reader, lambda: joins.hits > 0)
    assert fault.hits == 1
    assert polled_until(reader, lambda: bool(reader.assignment()))
    reader.close()


def test_librdkafka_looks_for_the_coordinator_again(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="FindCoordinator", group=f"group-of-{topic}", error="COORDINATOR_NOT_AVAILABLE", times=2)
    reader = consumer(kit, topic)
    assert polled_until(reader, lambda: bool(reader.assignment()))
    assert fault.hits == 2
    reader.close()


def test_librdkafka_tells_that_a_group_is_forbidden(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="JoinGroup", group=f"group-of-{topic}", error="GROUP_AUTHORIZATION_FAILED", always=True)
    reader = consumer(kit, topic)
    told: list[int] = []

    def is_told() -> bool:
        message = reader.poll(0.02)
        if message is not None and message.error() is not None:
            told.append(message.error().code())
        return KafkaError.GROUP_AUTHORIZATION_FAILED in told

    assert polled_until(reader, is_told)
    fault.remove()
    reader.close()


def transactional(kit: Broker, topic: str) -> Producer:
    return producer(kit, transactional_id=f"id-of-{topic}")


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"])
def test_librdkafka_asks_again_for_its_producer_id(kit: Broker, topic: str, error: str) -> None:
    fault = kit.fault(api="InitProducerId", transactional_id=f"id-of-{topic}", error=error)
    transactional(kit, topic).init_transactions(PATIENCE_S)
    assert fault.hits == 1


def test_librdkafka_ends_a_transaction_whose_answer_was_lost(kit: Broker, topic: str) -> None:
    writer = transactional(kit, topic)
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(topic, "x")
    fault = kit.fault(api="EndTxn", transactional_id=f"id-of-{topic}", disconnect="after")
    writer.commit_transaction(PATIENCE_S)
    assert (fault.hits, values(kit, topic)) == (1, ["x"])


def test_librdkafka_is_fenced(kit: Broker, topic: str) -> None:
    writer = transactional(kit, topic)
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(topic, "x")
    writer.flush(PATIENCE_S)
    kit.fault(api="EndTxn", transactional_id=f"id-of-{topic}", error="PRODUCER_FENCED")
    with pytest.raises(KafkaException) as raised:
        writer.commit_transaction(PATIENCE_S)
    assert raised.value.args[0].fatal()
    assert values(kit, topic) == []


def test_librdkafka_tells_that_a_topic_cannot_be_made(kit: Broker, topic: str) -> None:
    kit.fault(api="CreateTopics", topic=f"{topic}-2", error="POLICY_VIOLATION", message="not here")
    admin = AdminClient({"bootstrap.servers": kit.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(f"{topic}-2", 1)])
    with pytest.raises(KafkaException, match="not here"):
        made[f"{topic}-2"].result(PATIENCE_S)


# -- aiokafka ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"])
def test_aiokafka_sends_a_batch_again(kit: Broker, topic: str, error: str) -> None:
    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kit.bootstrap, retry_backoff_ms=5) as writer:
            fault = kit.fault(api="Produce", topic=topic, error=error)
            await writer.send_and_wait(topic, b"x")
            assert fault.hits == 1

    asyncio.run(story())
    assert values(kit, topic) == ["x"]


def test_aiokafka_tells_that_its_commit_failed(kit: Broker, topic: str) -> None:
    async def story() -> None:
        reader = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kit.bootstrap,
            group_id=f"group-of-{topic}",
            enable_auto_commit=False,
            session_timeout_ms=500,
            heartbeat_interval_ms=50,
        )
        async with reader:
            kit.fault(api="OffsetCommit", group=f"group-of-{topic}", error="ILLEGAL_GENERATION")
            with pytest.raises(CommitFailedError):
                await reader.commit({TopicPartition(topic, 0): 1})

    asyncio.run(story())


def test_aiokafka_joins_again(kit: Broker, topic: str) -> None:
    async def story() -> None:
        reader = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kit.bootstrap,
            group_id=f"group-of-{topic}",
            heartbeat_interval_ms=50,
            session_timeout_ms=500,
        )
        async with reader:
            joins = kit.fault(api="JoinGroup", group=f"group-of-{topic}", observe=True)
            kit.fault(api="Heartbeat", group=f"group-of-{topic}", error="UNKNOWN_MEMBER_ID")
            await asyncio.to_thread(joins.wait, 1, timeout=PATIENCE_S)

    asyncio.run(story())


# -- kafka-python ------------------------------------------------------------------------------------------------


def test_kafka_python_sends_a_batch_again(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER")
    writer = KafkaProducer(bootstrap_servers=kit.bootstrap, retries=5, retry_backoff_ms=5)
    writer.send(topic, b"x").get(PATIENCE_S)
    writer.close()
    assert (fault.hits, values(kit, topic)) == (1, ["x"])


def test_kafka_python_begins_anew_where_its_offset_is_gone(kit: Broker, topic: str) -> None:
    kit.control_client.post("topics", topic, "records", body={"records": [{"value": "x"}]})
    fault = kit.fault(api="Fetch", topic=topic, error="OFFSET_OUT_OF_RANGE")
    reader = KafkaConsumer(
        topic,
        bootstrap_servers=kit.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE_S * 1_000),
    )
    assert next(reader).value == b"x"
    reader.close()
    assert fault.hits == 1
