"""Groups, transactions, topics, records and events of `kohort.testing`, as clients see them."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kohort.testing import Broker, ControlError, Events, Scope, WaitTimeoutError


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as started:
        yield started


@pytest.fixture
def scope(broker: Broker) -> Iterator[Scope]:
    with broker.scope("test") as made:
        yield made


def test_records_are_written_and_read_without_a_client(scope: Scope) -> None:
    topic = scope.topic(partitions=2)
    assert scope.write(topic, "order 1", b"\xff\x00", {"key": "k", "value": "order 3", "headers": [{"key": "h"}]}) == [
        0,
        1,
        2,
    ]
    assert scope.write(topic, {"value": None, "key": "k", "partition": 1, "timestamp_ms": 7}) == [0]
    assert scope.values(topic, wait=3) == ["order 1", "\ufffd\x00", "order 3"]
    (last,) = scope.read(topic, offset=2)
    assert (last["key"], last["offset"], last["headers"]) == ("k", 2, [{"key": "h"}])
    assert scope.read(topic, limit=1, partition=1)[0]["timestamp_ms"] == 7
    assert scope.values(topic, partition=1) == [""]
    with pytest.raises(WaitTimeoutError, match="has 3 records and not 4"):
        scope.read(topic, wait=4, timeout=0)
    with pytest.raises(ControlError, match="there is no partition"):
        scope.read(topic, partition=2)


def test_topics_are_waited_for(scope: Scope) -> None:
    name = scope.unique("orders")
    with pytest.raises(WaitTimeoutError, match="is not there"):
        scope.wait_topic(name, timeout=0)
    made = scope.create_topic(name, partitions=2, configs={"retention.ms": 7}, replication_factor=1)
    assert [each["leader"] for each in made["partitions"]] == [1, 1]
    assert made["scope"] == scope.name
    scope.wait_topic(name)
    with pytest.raises(ControlError, match="already exists"):
        scope.create_topic(name)
    scope.delete_topic(name)
    scope.wait_topic(name, exists=False)


def test_a_group_is_waited_for(broker: Broker, scope: Scope) -> None:
    topic, group = scope.topic(partitions=2), scope.unique("workers")
    scope.write(topic, "order 1", "order 2")
    assert scope.group(group)["state"] == "absent"
    with pytest.raises(WaitTimeoutError, match="is absent with 0 members") as raised:
        scope.wait_group(group, stable=True, timeout=0)
    assert raised.value.state["state"] == "absent"
    reader = Consumer(
        {
            "bootstrap.servers": scope.bootstrap,
            "group.id": group,
            "client.id": "worker-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    assert reader.poll(60).value() == b"order 1"
    found = scope.wait_group(group, stable=True, members=1, topic=topic, member="worker-1")
    assert [each["client_id"] for each in found["members"]] == ["worker-1"]
    assert found["members"][0]["assignment"] == [{"topic": topic, "partitions": [0, 1]}]
    assert {"group": group, "kind": "classic", "state": "stable"} in scope.groups()
    reader.commit(asynchronous=False)
    found = scope.wait_group(group, topic=topic, offset=1)
    assert [each["lag"] for each in found["offsets"]] == [1]
    with pytest.raises(WaitTimeoutError):
        scope.wait_group(group, lag=0, timeout=0)
    assert reader.poll(60).value() == b"order 2"
    reader.commit(asynchronous=False)
    scope.wait_group(group, lag=0)
    reader.close()
    assert scope.wait_group(group, empty=True)["members"] == []


def test_a_transaction_is_waited_for(scope: Scope) -> None:
    topic, transactional_id = scope.topic(), scope.unique("billing")
    assert scope.transaction(transactional_id)["state"] == "absent"
    sender = Producer({"bootstrap.servers": scope.bootstrap, "transactional.id": transactional_id})
    sender.init_transactions(60)
    sender.begin_transaction()
    sender.produce(topic, "order 1")
    assert sender.flush(60) == 0
    found = scope.wait_transaction(transactional_id, "ongoing")
    assert found["partitions"] == [{"topic": topic, "partitions": [0]}]
    assert scope.values(topic) == ["order 1"]
    assert scope.values(topic, committed=True) == []
    with pytest.raises(WaitTimeoutError, match="is ongoing, not complete"):
        scope.wait_transaction(transactional_id, "complete", timeout=0)
    sender.commit_transaction(60)
    scope.wait_transaction(transactional_id, "complete")
    assert scope.values(topic, committed=True, wait=1) == ["order 1"]


def test_the_methods_of_events_are_those_of_the_api(broker: Broker) -> None:
    document = broker.control_client.get("openapi.json")
    paths = [path.removeprefix("/events/") for path in document["paths"] if path.startswith("/events/")]
    assert sorted(paths) == sorted(name for name in vars(Events) if not name.startswith("_"))
    for name in paths:
        schema = document["paths"][f"/events/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        fields = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
        # Loading and unloading take the fields of a move, and have no use for the broker.
        has_no_broker = name in ("load_coordinator", "unload_coordinator")
        wanted = {"self", *fields} - ({"broker"} if has_no_broker else set())
        assert inspect.signature(getattr(Events, name)).parameters.keys() == wanted, name


def test_events_happen(scope: Scope) -> None:
    topic, group, transactional_id = scope.topic(), scope.unique("workers"), scope.unique("billing")
    sender = Producer({"bootstrap.servers": scope.bootstrap, "transactional.id": transactional_id})
    sender.init_transactions(60)
    before = scope.transaction(transactional_id)["producer_epoch"]
    assert scope.events.fence_producer(transactional_id)["producer_epoch"] > before
    assert scope.events.raise_leader_epoch(topic)["leader_epoch"] == 1
    scope.events.hang_transaction(topic)
    assert len(scope.values(topic)) == 1
    assert scope.values(topic, committed=True) == []
    reader = Consumer({"bootstrap.servers": scope.bootstrap, "group.id": group, "client.id": "worker-1"})
    reader.subscribe([topic])
    while not scope.group(group)["members"]:
        reader.poll(0.05)
    member = scope.wait_group(group, stable=True)["members"][0]["member_id"]
    assert scope.events.expire_member(group, "worker-1")["member_id"] == member
    scope.events.move_coordinator(group=group)
    with pytest.raises(ControlError, match="nobody"):
        scope.events.remove_member(group, "nobody")
    reader.close()


def test_a_broker_is_stopped_and_started() -> None:
    with Broker(brokers=2, in_process=True) as broker:
        broker.create_topic("orders", replication_factor=2)
        broker.events.stop_broker(1)
        assert [each["leader"] for each in broker.control_client.get("topics", "orders")["partitions"]] == [2]
        broker.events.start_broker(1)
        assert broker.events.change_leader("orders", broker=1)["broker"] == 1


def test_time_goes_on_at_the_word_of_the_test() -> None:
    """A session of 45 seconds, a transaction of 60 and a retention of 7 days, with real clients."""
    with Broker(virtual_time=True, in_process=True) as broker:
        broker.create_topic("orders", configs={"segment.bytes": 1_048_576, "retention.ms": 7 * 86_400_000})
        sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
        sender.init_transactions(60)
        sender.begin_transaction()
        sender.produce("orders", "order 1")
        assert sender.flush(60) == 0
        assert any(timer["seconds"] > 0 for timer in broker.clock.timers())
        before_ms = broker.clock.now_ms
        broker.clock.advance(61, step=10)
        assert broker.clock.now_ms == before_ms + 61_000
        broker.wait_transaction("billing", "complete_abort")
        assert broker.values("orders", committed=True) == []
        ran = broker.clock.run_next()
        assert len(ran) >= 1
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "workers", "session.timeout.ms": 45_000})
        reader.subscribe(["orders"])
        while not broker.group("workers")["members"]:
            reader.poll(0.05)
        with broker.hold(api="Heartbeat"):
            ran = broker.clock.advance(50, step=50, pause=0)
            assert any("workers" in timer["owner"] for timer in ran), ran
            broker.wait_group("workers", members=0)
        reader.close()


def test_a_clock_of_its_own_has_no_advance(broker: Broker) -> None:
    assert broker.clock.now_ms > 0
    with pytest.raises(ControlError, match="--virtual-time"):
        broker.clock.advance(1)


def test_a_broker_goes_back_to_a_snapshot() -> None:
    with Broker(in_process=True) as broker:
        broker.create_topic("orders")
        broker.write("orders", "order 1")
        with broker.snapshot() as state:
            broker.write("orders", "order 2")
            broker.create_topic("bills")
            broker.restore(state)
            assert broker.values("orders") == ["order 1"]
            broker.wait_topic("bills", exists=False)
            state.restore()
        with pytest.raises(ControlError, match="there is no snapshot"):
            state.restore()
        broker.reset()
        broker.wait_topic("orders", exists=False)
        sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
        sender.init_transactions(60)


def test_faults_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text('[[faults]]\napi = "Metadata"\nobserve = true\nscope = "file"\n')
    with Broker(faults=tmp_path / "faults.toml", in_process=True) as broker:
        assert [each.state["scope"] for each in broker.faults()] == ["file"]
