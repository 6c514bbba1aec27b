"""
Groups of the consumer protocol (KIP-848): members share, leave, die and return; groups of mixed protocols; their conversion.

librdkafka, Apache Kafka's own consumer and franz-go.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kohort.client.cluster import Client
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import QUICK_REBALANCES, Broker
from tests.clients.crew import Crew, Member
from tests.clients.java_tools import CONSUMER_GROUPS, JavaTools
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import LONG, NIGHTLY

PARTITIONS = 6
CONSUMER = ("librdkafka", "group.protocol=consumer")
CLASSIC = ("librdkafka", "partition.assignment.strategy=range")
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUP_RESOURCE = 32


@pytest.fixture
def crew(broker: Broker, make_topic: Callable[..., str], group: str) -> Iterator[Crew]:
    with Crew(broker.bootstrap, group, make_topic(PARTITIONS), PARTITIONS) as crew:
        yield crew


def set_session(broker: Broker, group: str, timeout_ms: int) -> None:
    """Set the session timeout of the members, which the broker decides in this protocol."""
    config = m.IncrementalAlterConfigsRequestAlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value=str(timeout_ms)
    )
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    with Client(broker.bootstrap) as client:
        answer: Any = client.send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=[resource])
        )
    assert [each.error_code for each in answer.responses] == [0]


def produce(broker: Broker, crew: Crew, what: str, partitions: int = PARTITIONS) -> list[str]:
    """Ten records to each partition; returns their values."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    values = [f"{what} {partition} {number}" for partition in range(partitions) for number in range(10)]
    for value in values:
        producer.produce(crew.topic, value, partition=int(value.split()[-2]))
    assert producer.flush(PATIENCE_S) == 0
    return values


def wait_for_all(crew: Crew, produced: list[str]) -> None:
    wait_until(
        lambda: set(crew.values()) >= set(produced),
        what=lambda: f"{len(set(produced) - set(crew.values()))} records are missing; {crew}",
    )


def wait_for_commits(broker: Broker, crew: Crew, each: int) -> None:
    """Wait until this offset is committed for each partition."""

    def offsets() -> list[int]:
        return [row["offset"] for row in kohort_json("offsets", crew.group, bootstrap=broker.bootstrap)]

    wait_until(lambda: offsets() == [each] * PARTITIONS, what=lambda: f"offset {each} in {offsets()}")


def kind(broker: Broker, crew: Crew) -> str:
    (row,) = (row for row in kohort_json("groups", "list", bootstrap=broker.bootstrap) if row["group"] == crew.group)
    return str(row["type"])


@NIGHTLY
def test_three_members_share_and_one_leaves_one_joins_one_dies(broker: Broker, crew: Crew) -> None:
    set_session(broker, crew.group, 6_000)
    first, second, _ = (crew.join(*CONSUMER) for _ in range(3))
    crew.settle(2, 2, 2)
    produced = produce(broker, crew, "with three")
    crew.leave(second)
    crew.settle(3, 3)
    produced += produce(broker, crew, "with two")
    crew.join(*CONSUMER)
    crew.settle(2, 2, 2)
    crew.die(first)
    produced += produce(broker, crew, "while one is dead")
    crew.settle(3, 3)
    wait_for_all(crew, produced)
    wait_for_commits(broker, crew, 30)
    assert kind(broker, crew) == "consumer"


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(broker: Broker, crew: Crew) -> None:
    stays = crew.join(*CONSUMER, "group.instance.id=stays")
    restarts = crew.join(*CONSUMER, "group.instance.id=restarts")
    crew.settle(3, 3)
    before, owned = stays.assignments(), restarts.assigned()
    crew.leave(restarts)
    returned = crew.join(*CONSUMER, "group.instance.id=restarts")
    crew.settle(3, 3)
    assert returned.assigned() == owned
    assert stays.assignments() == before


def test_members_find_topics_by_a_pattern_and_new_partitions(
    broker: Broker, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    with Crew(broker.bootstrap, group, f"^{topic[:-1]}[{topic[-1]}]$", 2) as crew:
        crew.topic = topic
        crew.join(*CONSUMER)
        crew.settle(2)
        produced = produce(broker, crew, "two partitions", 2)
        wait_for_all(crew, produced)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(PATIENCE_S)
        crew.partitions = PARTITIONS
        crew.settle(PARTITIONS)
        wait_for_all(crew, produced + produce(broker, crew, "six partitions"))


def test_a_group_is_upgraded_member_by_member_and_downgraded_again(broker: Broker, crew: Crew) -> None:
    """Every partition has one reader after each step, and all records are read and committed."""
    for _ in range(3):
        crew.join(*CLASSIC)
    crew.settle(2, 2, 2)
    produced = produce(broker, crew, "classic")
    assert kind(broker, crew) == "classic"
    for protocol, kinds in ((CONSUMER, ["consumer"] * 3), (CLASSIC, ["consumer", "consumer", "classic"])):
        for expected in kinds:
            crew.leave(crew.members[0])
            crew.join(*protocol)
            crew.settle(2, 2, 2)
            produced += produce(broker, crew, f"{protocol} {len(produced)}")
            assert kind(broker, crew) == expected
    wait_for_all(crew, produced)
    wait_for_commits(broker, crew, len(produced) // PARTITIONS)


def test_the_command_shows_what_members_have_and_wait_for(broker: Broker, crew: Crew) -> None:
    """Either member may come first, also before the first generation of the other one."""
    members = [crew.join(*CONSUMER), crew.join(*CLASSIC)]
    crew.settle(3, 3)
    shown = kohort("groups", "describe", crew.group, bootstrap=broker.bootstrap).stdout
    assert "Stable" in shown
    (described,) = kohort_json("groups", "describe", crew.group, bootstrap=broker.bootstrap)
    assert described["type"] == "consumer", json.dumps(described)
    assert len(described["members"]) == len(members)


def test_a_member_that_comes_before_the_first_generation_of_a_classic_group_waits_for_it(tmp_path: Path) -> None:
    """Both live: the heartbeat is answered with an error that clients retry, and the classic member keeps waiting."""
    configs = QUICK_REBALANCES | {"group.initial.rebalance.delay.ms": "3000"}
    with ServedKohort(tmp_path, configs) as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(PATIENCE_S)
        with Crew(served.bootstrap, "early", "orders", 2) as crew:
            crew.join(*CLASSIC)
            wait_until(
                lambda: "rebalance.started group_id='early'" in served.log.read_text(), what="the classic member"
            )
            settings = {"bootstrap.servers": served.bootstrap, "group.id": "early", "group.protocol": "consumer"}
            consumer = Consumer(settings)
            try:
                consumer.subscribe(["orders"])
                wait_until(lambda: consumer.poll(0.01) or consumer.assignment(), what=lambda: f"a partition; {crew}")
                wait_until(lambda: len(crew.members[0].assigned()) == 1, what=lambda: f"a partition each; {crew}")
            finally:
                consumer.close()
        lines = served.log.read_text()
        assert "error=COORDINATOR_LOAD_IN_PROGRESS" in lines
        assert lines.index("error=COORDINATOR_LOAD_IN_PROGRESS") < lines.index("generation.started group_id='early'")
        assert lines.index("generation.started group_id='early'") < lines.index("group.converted group_id='early'")


@NIGHTLY
def test_consumers_that_subscribe_again_while_they_leave_hear_no_fatal_error(broker: Broker, rng: Random) -> None:
    """
    librdkafka tells the change of a subscription at epoch 0 then. One in ten groups had a consumer that ended.

    A consumer that subscribes between its leaving and the answer may never join (librdkafka 2.16): it is not waited for.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"again-{rng.getrandbits(32)}-{number}" for number in range(3)]
    for done in admin.create_topics([NewTopic(name, 4) for name in names]).values():
        done.result(PATIENCE_S)
    fatal: list[str] = []

    def live(group: str, own: Random) -> None:
        def note(error: KafkaError) -> None:
            if error.fatal():
                fatal.append(f"{group}: {error}")

        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": "consumer"}
        consumer = Consumer({**settings, "error_cb": note})

        def poll_for(seconds: float) -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                consumer.poll(0)

        for _ in range(own.randint(1, 4)):
            consumer.subscribe(own.sample(names, own.randint(1, 3)))
            poll_for(own.random() * 0.02)
            consumer.unsubscribe()
            poll_for(own.random() * 0.02)
        consumer.subscribe(names)
        for _ in range(20):
            consumer.poll(0.05)
        consumer.close()

    for number in range(100 if LONG else 5):
        group = f"again-{rng.getrandbits(32)}-{number}"
        with ThreadPoolExecutor(8) as threads:
            for lived in [threads.submit(live, group, Random(rng.getrandbits(32))) for _ in range(8)]:
                lived.result(PATIENCE_S)
    assert fatal == []


@contextmanager
def java_consumers(java: JavaTools, broker: Broker, crew: Crew, *protocols: str) -> Iterator[None]:
    """Apache Kafka's console consumers in the group."""
    words = ("--bootstrap-server", broker.bootstrap, "--topic", crew.topic, "--group", crew.group)
    started = [
        java.start(CONSOLE_CONSUMER, *words, "--consumer-property", f"group.protocol={protocol}")
        for protocol in protocols
    ]
    try:
        yield
    finally:
        for consumer in started:
            consumer.kill()
            consumer.communicate()


def test_javas_consumer_shares_a_group_with_others_of_either_protocol(
    broker: Broker, java: JavaTools, crew: Crew
) -> None:
    def shares(*options: str) -> list[list[str]]:
        tool = ("--bootstrap-server", broker.bootstrap, "--group", crew.group, "--describe", "--members", *options)
        lines = java.run(CONSUMER_GROUPS, *tool).splitlines()
        return [line.split() for line in lines if crew.group in line.split()[:1]]

    def state() -> str:
        tool = ("--bootstrap-server", broker.bootstrap, "--group", crew.group, "--describe", "--state", "--verbose")
        return java.run(CONSUMER_GROUPS, *tool)

    def has_settled(members: list[Member]) -> bool:
        return [len(member.assigned()) for member in members] == [2] * len(members)

    with java_consumers(java, broker, crew, "consumer"):
        members = [crew.join(*CONSUMER), crew.join(*CLASSIC)]
        wait_until(lambda: has_settled(members), what=lambda: f"two partitions each; {crew}")
        wait_until(lambda: len(shares()) == 3, what="three members in the tool's answer")
        # A member says with its next heartbeat that it has what it was assigned.
        wait_until(lambda: "Stable" in state(), what="a stable group in the tool's answer")


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The member with franz-go; skips without Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    member = tmp_path_factory.mktemp("franz-go") / "member"
    command = (go, "build", "-buildvcs=false", "-o", str(member), ".")
    subprocess.run(command, cwd=Path(__file__).with_name("franz_go"), check=True, timeout=PATIENCE_S)
    return str(member)


@NIGHTLY
def test_franz_go_upgrades_a_group_and_shares_it(broker: Broker, crew: Crew, franz_go: str) -> None:
    where = (broker.bootstrap, crew.group, crew.topic)
    crew.join_as("franz-go, classic", (franz_go, "-classic", *where))
    crew.settle(6)
    produced = produce(broker, crew, "classic")
    crew.join_as("franz-go", (franz_go, *where))
    crew.settle(3, 3)
    crew.join(*CONSUMER)
    crew.settle(2, 2, 2)
    produced += produce(broker, crew, "mixed")
    crew.leave(crew.members[0])
    crew.settle(3, 3)
    produced += produce(broker, crew, "consumer")
    wait_for_all(crew, produced)
    assert kind(broker, crew) == "consumer"
