"""Apache Kafka's Java clients, unmodified, meet the faults of the control port; see `test_fault_reactions`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kohort.testing import Broker
from tests.clients.jvm import Jvm
from tests.clients.test_fault_reactions import values
from tests.clients.waiting import PATIENCE_S, wait_until

QUICK = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "20", "reconnect.backoff.ms": "5"}
TEXTS = "org.apache.kafka.common.serialization.String"


class Java:
    """The Java clients of one test; closed at the end."""

    def __init__(self, jvm: Jvm, kit: Broker, topic: str) -> None:
        self._kit = kit
        self._jvm = jvm
        self._kafka = jvm.classes.org.apache.kafka
        self._time = jvm.classes.java.time.Duration
        self._opened: list[Any] = []
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.transactional_id = f"id-of-{topic}"

    def close(self) -> None:
        for each in self._opened:
            each.close(self._time.ofMillis(0))

    def _settings(self, own: dict[str, str], more: dict[str, str]) -> Any:
        settings = {"bootstrap.servers": self._kit.bootstrap, **QUICK, **own}
        settings |= {name.replace("_", "."): value for name, value in more.items()}
        return self._jvm.properties(**settings)

    def producer(self, **more: str) -> Any:
        texts = {"key.serializer": f"{TEXTS}Serializer", "value.serializer": f"{TEXTS}Serializer"}
        own = {**texts, "linger.ms": "0", "max.block.ms": str(PATIENCE_S * 1_000)}
        self._opened.append(self._kafka.clients.producer.KafkaProducer(self._settings(own, more)))
        return self._opened[-1]

    def transactional(self) -> Any:
        return self.producer(transactional_id=self.transactional_id)

    def send(self, writer: Any, value: str) -> Any:
        return writer.send(self._kafka.clients.producer.ProducerRecord(self.topic, value))

    def reader(self, **more: str) -> Any:
        """A consumer that is subscribed to the topic."""
        own = {
            "key.deserializer": f"{TEXTS}Deserializer",
            "value.deserializer": f"{TEXTS}Deserializer",
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "fetch.max.wait.ms": "50",
        }
        if "group_protocol" not in more:
            own |= {"heartbeat.interval.ms": "50", "session.timeout.ms": "1000"}
        reader = self._kafka.clients.consumer.KafkaConsumer(self._settings(own, more))
        self._opened.append(reader)
        reader.subscribe([self.topic])
        return reader

    def poll(self, reader: Any) -> list[str]:
        records = reader.poll(self._time.ofMillis(20)).iterator()
        found = []
        while records.hasNext():
            found.append(str(records.next().value()))
        return found

    def polled(self, reader: Any, count: int) -> list[str]:
        found: list[str] = []

        def has_all() -> bool:
            found.extend(self.poll(reader))
            return len(found) >= count

        wait_until(has_all, what=lambda: f"the consumer reads {count} records; it has {found}", interval_s=0)
        return found

    def polled_until(self, reader: Any, is_true: Callable[[], bool], what: str) -> None:
        wait_until(lambda: self.poll(reader) is not None and is_true(), what=what, interval_s=0)

    def offset(self, offset: int) -> dict[Any, Any]:
        where = self._kafka.common.TopicPartition(self.topic, 0)
        return {where: self._kafka.clients.consumer.OffsetAndMetadata(offset)}


@contextmanager
def raises(text: str) -> Iterator[None]:
    """A Java exception with this text, such as its name, is thrown, or is the cause of one."""
    with pytest.raises(Py4JJavaError) as raised:
        yield
    exception, told = raised.value.java_exception, ""
    while exception is not None:
        told += f"{exception.toString()}\n"
        exception = exception.getCause()
    assert text in told


@pytest.fixture
def java_clients(jvm: Jvm, kit: Broker, topic: str) -> Iterator[Java]:
    made = Java(jvm, kit, topic)
    yield made
    made.close()


@pytest.fixture
def written(kit: Broker, topic: str) -> str:
    """A topic with the record "x"."""
    kit.control_client.post("topics", topic, "records", body={"records": [{"value": "x"}]})
    return topic


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "CORRUPT_MESSAGE"])
def test_the_producer_sends_a_batch_again(kit: Broker, java_clients: Java, error: str) -> None:
    fault = kit.fault(api="Produce", topic=java_clients.topic, error=error, times=2)
    java_clients.send(java_clients.producer(), "x").get()
    assert (fault.hits, values(kit, java_clients.topic)) == (2, ["x"])


@pytest.mark.parametrize(
    ("error", "exception"),
    [
        ("MESSAGE_TOO_LARGE", "RecordTooLargeException"),
        ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
        ("INVALID_RECORD", "InvalidRecordException"),
    ],
)
def test_the_producer_gives_a_batch_up(kit: Broker, java_clients: Java, error: str, exception: str) -> None:
    fault = kit.fault(api="Produce", topic=java_clients.topic, error=error)
    with raises(exception):
        java_clients.send(java_clients.producer(), "x").get()
    assert (fault.hits, values(kit, java_clients.topic)) == (1, [])


@pytest.mark.parametrize(("is_idempotent", "found"), [("true", ["x"]), ("false", ["x", "x"])])
def test_the_producer_sends_a_batch_again_whose_answer_was_lost(
    kit: Broker, java_clients: Java, is_idempotent: str, found: list[str]
) -> None:
    fault = kit.fault(api="Produce", topic=java_clients.topic, disconnect="after")
    java_clients.send(java_clients.producer(enable_idempotence=is_idempotent), "x").get()
    assert (fault.hits, values(kit, java_clients.topic)) == (1, found)


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"])
def test_the_producer_asks_again_for_its_id(kit: Broker, java_clients: Java, error: str) -> None:
    fault = kit.fault(api="InitProducerId", transactional_id=java_clients.transactional_id, error=error)
    java_clients.transactional().initTransactions()
    assert fault.hits == 1


def test_a_transaction_whose_answer_was_lost_is_committed(kit: Broker, java_clients: Java) -> None:
    writer = java_clients.transactional()
    writer.initTransactions()
    writer.beginTransaction()
    java_clients.send(writer, "x")
    fault = kit.fault(api="EndTxn", transactional_id=java_clients.transactional_id, disconnect="after")
    writer.commitTransaction()
    assert (fault.hits, values(kit, java_clients.topic)) == (1, ["x"])


@pytest.mark.parametrize(("api", "error"), [("EndTxn", "PRODUCER_FENCED"), ("EndTxn", "INVALID_PRODUCER_EPOCH")])
def test_the_producer_is_fenced(kit: Broker, java_clients: Java, api: str, error: str) -> None:
    writer = java_clients.transactional()
    writer.initTransactions()
    writer.beginTransaction()
    java_clients.send(writer, "x").get()
    kit.fault(api=api, transactional_id=java_clients.transactional_id, error=error)
    with raises("ProducerFencedException"):
        writer.commitTransaction()
    assert values(kit, java_clients.topic) == []


def test_the_producer_sends_its_offsets_again(kit: Broker, java_clients: Java, jvm: Jvm) -> None:
    writer = java_clients.transactional()
    writer.initTransactions()
    writer.beginTransaction()
    fault = kit.fault(api="TxnOffsetCommit", group=java_clients.group, error="COORDINATOR_LOAD_IN_PROGRESS")
    metadata = jvm.classes.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(java_clients.group)
    writer.sendOffsetsToTransaction(java_clients.offset(1), metadata)
    writer.commitTransaction()
    assert fault.hits == 1
    assert kit.wait_group(java_clients.group, topic=java_clients.topic, offset=1)


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_the_consumer_commits_again(kit: Broker, java_clients: Java, written: str, error: str) -> None:
    reader = java_clients.reader()
    assert java_clients.polled(reader, 1) == ["x"]
    fault = kit.fault(api="OffsetCommit", group=java_clients.group, error=error)
    reader.commitSync()
    assert fault.hits == 1
    assert kit.wait_group(java_clients.group, topic=written, offset=1)


@pytest.mark.parametrize(
    ("error", "exception"),
    [
        ("ILLEGAL_GENERATION", "CommitFailedException"),
        ("UNKNOWN_MEMBER_ID", "CommitFailedException"),
        ("REBALANCE_IN_PROGRESS", "RebalanceInProgressException"),
    ],
)
def test_the_consumer_tells_that_a_commit_failed(
    kit: Broker, java_clients: Java, written: str, error: str, exception: str
) -> None:
    reader = java_clients.reader()
    assert java_clients.polled(reader, 1) == ["x"]
    kit.fault(api="OffsetCommit", group=java_clients.group, error=error)
    with raises(exception):
        reader.commitSync()
    assert written == java_clients.topic


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"])
def test_the_consumer_joins_again(kit: Broker, java_clients: Java, error: str) -> None:
    reader = java_clients.reader()
    java_clients.polled_until(reader, lambda: not reader.assignment().isEmpty(), "an assignment")
    joins = kit.fault(api="JoinGroup", group=java_clients.group, observe=True)
    fault = kit.fault(api="Heartbeat", group=java_clients.group, error=error)
    java_clients.polled_until(reader, lambda: joins.hits > 0, "a JoinGroup")
    assert fault.hits == 1
    java_clients.polled_until(reader, lambda: not reader.assignment().isEmpty(), "an assignment again")


def test_the_consumer_of_kip_848_joins_again_when_it_is_fenced(kit: Broker, java_clients: Java) -> None:
    reader = java_clients.reader(group_protocol="consumer")
    java_clients.polled_until(reader, lambda: not reader.assignment().isEmpty(), "an assignment")
    fault = kit.fault(api="ConsumerGroupHeartbeat", group=java_clients.group, error="FENCED_MEMBER_EPOCH")
    next_one = kit.fault(api="ConsumerGroupHeartbeat", group=java_clients.group, observe=True, after_fault=fault.id)
    java_clients.polled_until(reader, lambda: next_one.hits > 0, "a heartbeat after the fault")
    beats = kit.requests(api="ConsumerGroupHeartbeat", group=java_clients.group)
    (place,) = [place for place, beat in enumerate(beats) if beat.get("fault") == fault.id]
    fenced, again = (beat["request"]["member_epoch"] for beat in beats[place : place + 2])
    assert fenced > again == 0
    java_clients.polled_until(reader, lambda: not reader.assignment().isEmpty(), "an assignment again")


def test_the_consumer_begins_anew_where_its_offset_is_gone(kit: Broker, java_clients: Java, written: str) -> None:
    reader = java_clients.reader()
    assert java_clients.polled(reader, 1) == ["x"]
    fault = kit.fault(api="Fetch", topic=written, error="OFFSET_OUT_OF_RANGE")
    assert java_clients.polled(reader, 1) == ["x"]
    assert fault.hits == 1


def test_the_consumer_tells_of_a_corrupt_batch_and_reads_it_after_a_seek(
    kit: Broker, java_clients: Java, written: str
) -> None:
    fault = kit.fault(api="Fetch", topic=written, corrupt=True)
    reader = java_clients.reader()
    with raises("Record is corrupt"):
        java_clients.polled(reader, 1)
    reader.seekToBeginning(reader.assignment())
    assert java_clients.polled(reader, 1) == ["x"]
    assert fault.hits == 1


def test_the_consumer_tells_that_a_group_is_forbidden(kit: Broker, java_clients: Java) -> None:
    kit.fault(api="JoinGroup", group=java_clients.group, error="GROUP_AUTHORIZATION_FAILED")
    reader = java_clients.reader()
    with raises("GroupAuthorizationException"):
        java_clients.polled(reader, 1)


def test_the_consumer_looks_for_its_coordinator_again(kit: Broker, java_clients: Java) -> None:
    fault = kit.fault(api="FindCoordinator", group=java_clients.group, error="COORDINATOR_NOT_AVAILABLE", times=2)
    reader = java_clients.reader()
    java_clients.polled_until(reader, lambda: not reader.assignment().isEmpty(), "an assignment")
    assert fault.hits == 2
