"""The exporter beside a served broker: what a scrape says is what the broker's own APIs say."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.client.cluster import Client
from kohort.pipeline.exporter.definitions import COUNTER, DEFINITIONS, GAUGE, SCHEMES
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.exporter.follower import Cluster
from kohort.pipeline.exporter.metrics import Snapshot
from kohort.pipeline.exporter.source import FAILURES_MAX
from kohort.pipeline.exporter.state import decoder
from kohort.pipeline.sources.live import LiveLog
from kohort.testing.ports import free_ports
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.waiting import PATIENCE_S, wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "2",
}
ORDERS = [TopicPartition("orders", partition) for partition in (0, 1)]
OPENED_MS = 2_000_000
"""The timestamp of records in a transaction that is open."""
TIMES_MS = {"open": OPENED_MS, "abort": 1_500_000, "commit": 1_000_000}
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def produce(
    bootstrap: str, count: int, partition: int = 0, topic: str = "orders", *, first_ms: int = 1_000_000
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(count):
        await producer.send_and_wait(topic, b"%d" % number, partition=partition, timestamp_ms=first_ms + number)
    await producer.stop()


async def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Commit as a group without members."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.assign(list(offsets))
    await consumer.commit(offsets)
    await consumer.stop()


async def transact(bootstrap: str, name: str, *, count: int, end: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=600_000)
    await producer.start()
    await producer.begin_transaction()
    for number in range(count):
        at_ms = TIMES_MS[end]
        await producer.send_and_wait("orders", b"%d" % number, partition=1, timestamp_ms=at_ms)
    if end == "commit":
        await producer.commit_transaction()
    elif end == "abort":
        await producer.abort_transaction()
    return producer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedKohort]:
    with ServedKohort(tmp_path, SETTINGS) as served:
        yield served


@pytest.fixture
def exporter(broker: ServedKohort) -> Iterator[Exporter]:
    found = Exporter(f"kafka://{broker.bootstrap}", cluster_name="c")
    yield found
    found.close()


def values(exporter: Exporter) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in exporter.collect()
        for sample in family.samples
    }


def value(exporter: Exporter, name: str, **labels: str) -> float | None:
    return values(exporter).get((name, tuple(sorted(labels.items()))))


def test_lag_under_every_name(broker: ServedKohort, exporter: Exporter) -> None:
    asyncio.run(produce(broker.bootstrap, 9))
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 4}))
    now = exporter.poll()
    assert now.problems == ()
    place = {"topic": "orders", "partition": "0"}
    assert value(exporter, "kafka_consumergroup_lag", consumergroup="g", **place) == 5
    assert value(exporter, "kafka_consumergroup_current_offset", consumergroup="g", **place) == 4
    assert value(exporter, "kafka_topic_partition_current_offset", **place) == 9
    of_group = {"cluster_name": "c", "group": "g", "state": "", "is_simple_consumer": "true"}
    nobody = {"member_host": "", "consumer_id": "", "client_id": ""}
    waits = value(exporter, "kafka_consumergroup_group_lag_seconds", **of_group, **place, **nobody)
    # The record at offset 4 itself, in the middle of what was produced.
    assert waits == (now.at_ms - 1_000_004) / 1000
    assert value(exporter, "kafka_consumergroup_group_max_lag_seconds", **of_group) == waits
    kminion = {"group_id": "g", "topic_name": "orders", "partition_id": "0"}
    assert value(exporter, "kminion_kafka_consumer_group_topic_partition_lag", **kminion) == 5
    assert value(exporter, "burrow_kafka_consumer_partition_lag", cluster="c", consumer_group="g", **place) == 5
    assert value(exporter, "burrow_kafka_consumer_lag_total", cluster="c", consumer_group="g") == 5
    assert value(exporter, "kohort_group_commits_total", group="g") == 1
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 9}))
    exporter.poll()
    assert value(exporter, "kafka_consumergroup_lag", consumergroup="g", **place) == 0
    assert value(exporter, "kafka_consumergroup_group_lag_seconds", **of_group, **place, **nobody) == 0
    assert value(exporter, "kohort_group_verdict", group="g") == 0


def test_transactions(broker: ServedKohort, exporter: Exporter) -> None:
    """Aborted records wait for nobody; an open transaction does, and holds the others back."""

    async def story() -> None:
        producers = [
            await transact(broker.bootstrap, "first", count=2, end="abort"),
            await transact(broker.bootstrap, "second", count=3, end="open"),
        ]
        await commit(broker.bootstrap, "g", {ORDERS[1]: 0})
        wait_until(lambda: len(exporter.poll().transactions) == 1, what="the markers of the first transaction")
        assert value(exporter, "kohort_transactions_open") == 1
        assert value(exporter, "kohort_transactions_ended_total", outcome="aborted") == 1
        assert value(exporter, "kohort_partition_blocked_records", topic="orders", partition="1") == 3
        assert value(exporter, "kohort_hanging_transactions") == 0
        opened = {"transactional_id": "second", "state": "Ongoing"}
        assert value(exporter, "kohort_transaction_open_seconds", **opened) is not None
        # Two records and a marker were aborted: what waits is the first record of the open transaction.
        assert value(exporter, "kafka_consumergroup_lag", consumergroup="g", topic="orders", partition="1") == 6
        assert exporter.snapshot is not None
        waits = value(exporter, "kohort_group_lag_seconds", group="g")
        assert waits == (exporter.snapshot.at_ms - OPENED_MS) / 1000
        await producers[1].abort_transaction()
        wait_until(lambda: not exporter.poll().transactions, what="the markers")
        assert value(exporter, "kohort_group_lag_seconds", group="g") == 0
        assert value(exporter, "kohort_transactions_open") == 0
        for one in producers:
            await one.stop()

    asyncio.run(story())


def test_members_and_rebalances(broker: ServedKohort, exporter: Exporter) -> None:
    async def story() -> None:
        await produce(broker.bootstrap, 3)
        consumers = [AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap, group_id="g", client_id="first")]
        await consumers[0].start()
        exporter.poll()
        assert value(exporter, "kohort_group_members", group="g", type="classic") == 1
        assert value(exporter, "kohort_group_rebalances_total", group="g") == 1
        assert value(exporter, "kohort_group_rebalance_causes_total", group="g", cause="joined") == 1
        await consumers[0].commit({ORDERS[0]: 1})
        exporter.poll()
        (owned,) = [
            dict(labels)
            for name, labels in values(exporter)
            if name == "kafka_consumergroup_group_lag" and dict(labels)["partition"] == "0"
        ]
        assert (owned["state"], owned["client_id"], owned["is_simple_consumer"]) == ("Stable", "first", "false")
        assert owned["consumer_id"].startswith("first-")
        await consumers[0].stop()
        exporter.poll()
        # A group without members that has lag is STOP at once.
        assert value(exporter, "kohort_group_members", group="g", type="classic") == 0
        assert value(exporter, "kohort_group_verdict", group="g") == 2

    asyncio.run(story())


def test_a_broker_that_restarts_and_a_topic_that_is_recreated(broker: ServedKohort, exporter: Exporter) -> None:
    asyncio.run(produce(broker.bootstrap, 9))
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 4}))
    exporter.poll()
    broker.kill()
    failed = exporter.poll()
    assert failed.problems
    assert value(exporter, "kohort_exporter_up") == 0
    # The last known values stay, so that an alert on lag does not resolve itself while the broker is away.
    assert value(exporter, "kohort_group_lag", group="g") == 5
    broker.start()
    asyncio.run(produce(broker.bootstrap, 2))
    assert exporter.poll().problems == ()
    assert value(exporter, "kohort_group_lag", group="g") == 7
    with Client(broker.bootstrap) as client:
        orders = messages.DeleteTopicsRequestDeleteTopicState(name="orders")
        client.send(
            ApiKey.DELETE_TOPICS, messages.DeleteTopicsRequest(topic_names=["orders"], topics=[orders], timeout_ms=9000)
        )
    exporter.poll()
    assert value(exporter, "kohort_group_lag", group="g") is None
    asyncio.run(produce(broker.bootstrap, 1))
    exporter.poll()
    # The offset of the old topic is beyond the end of the new one, if it is still there.
    assert value(exporter, "kohort_group_verdict", group="g") in (None, 5)


def test_a_total_is_a_counter_except_burrows() -> None:
    kinds = {one.name: one.kind for one in DEFINITIONS.values()}
    assert kinds.pop("burrow_kafka_consumer_lag_total") == GAUGE
    assert {name for name, kind in kinds.items() if kind == COUNTER} == {
        name for name in kinds if name.endswith("_total")
    }


def test_the_endpoint(broker: ServedKohort, tmp_path: Path) -> None:
    """As it is started: no Spark, no Java; the output is Prometheus' format; SIGTERM ends it."""
    asyncio.run(produce(broker.bootstrap, 2))
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 1}))
    code = "import sys; from kohort.cli.pipeline.commands import app; app(sys.argv[1:], standalone_mode=False);"
    code += "print('pyspark' in sys.modules)"
    source = f"kafka://{broker.bootstrap}"
    command = [sys.executable, "-c", code, "export", source, "--port", "0", "--interval", "0.2", "--names", "kminion"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": "", "JAVA_HOME": "/nowhere"}
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    address = re.search(r"http://\S+", line)
    assert address is not None, line + process.stderr.read()
    with urlopen(address[0], timeout=30) as response:
        text = response.read().decode()
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "False\n")
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert "kminion_kafka_consumer_group_topic_partition_lag" in names
    assert not any(name.startswith(("kafka_consumergroup", "burrow")) for name in names)
    assert names <= set(DEFINITIONS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("export", "/var/lib"), "/var/lib holds no log of a group coordinator"),
        (
            ("export", "kafka://127.0.0.1:1", "--names", "datadog"),
            "'datadog' is no set of names; they are kafka_exporter,",
        ),
        (("export", "kafka://127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_meant(words: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2
    assert sentence in capfd.readouterr().err


def test_every_definition_has_a_set_of_names_and_a_meaning() -> None:
    assert {one.scheme for one in DEFINITIONS.values()} == set(SCHEMES)
    assert all(one.about.endswith(".") for one in DEFINITIONS.values())
    assert all(
        name.endswith("_total") == (one.kind == "counter") for name, one in DEFINITIONS.items() if "burrow" not in name
    )


def expressions(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, inner in found.items():
            if isinstance(inner, str) and (key == "expr" or inner.startswith("label_values(")):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(found, list):
        for inner in found:
            yield from expressions(inner)


def test_the_dashboard_names_what_is_exported() -> None:
    """Every metric is one of ours, with labels that it has."""
    dashboard = json.loads(CliRunner().invoke(app, ["dashboard"]).stdout)
    told = list(expressions(dashboard["panels"])) + list(expressions(dashboard["templating"]))
    assert len(told) > 20
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for expression in told:
        names = re.findall(r"\b(?:kohort|kafka|kminion|burrow)_\w+", expression)
        assert names, expression
        for name in names:
            assert name in DEFINITIONS, expression
        for name, inside in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|=|!=|!~)", inside))
            assert labels <= set(DEFINITIONS[name].labels), expression


def test_a_leader_that_fails_again_and_again_is_left_alone_until_the_next_poll() -> None:
    """A failure may take as long as a timeout; other leaders are asked."""
    (port,) = free_ports(1)
    down = [LiveLog("t", partition, 0, 5, "127.0.0.1", port) for partition in range(10)]
    cluster = Cluster(f"kafka://127.0.0.1:{port}")
    assert list(cluster.appended(down, decoder())) == []
    assert len(cluster.problems) == FAILURES_MAX
    assert cluster.is_down(down[0])
    assert not cluster.is_down(LiveLog("t", 0, 0, 5, "127.0.0.1", port + 1))
    cluster.begin()
    assert not cluster.is_down(down[0])
    assert cluster.problems == []


GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "monitor-groups.md"


def test_the_alerts_of_the_guide_name_what_is_exported() -> None:
    told = re.findall(r"^\s*expr: (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert len(told) == 5
    for expression in told:
        (name,) = re.findall(r"kohort_\w+", expression)
        assert name in DEFINITIONS


def produced_ms(now: Snapshot, topic: str, partition: int) -> int | None:
    """When the first unread record of the only group was produced."""
    (found,) = (one for one in now.partitions if (one.key.topic, one.key.partition) == (topic, partition))
    return None if found.time_lag_ms is None else now.at_ms - found.time_lag_ms


def test_the_age_of_a_record_that_was_deleted_is_forgotten(broker: ServedKohort, exporter: Exporter) -> None:
    """By retention, and with its topic, which is created again before the next poll."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asyncio.run(produce(broker.bootstrap, 9))
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 0}))
    assert produced_ms(exporter.poll(), "orders", 0) == 1_000_000
    below = Place("orders", 0, 5)
    admin.delete_records([below])[below].result(PATIENCE_S)
    assert produced_ms(exporter.poll(), "orders", 0) == 1_000_005
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 6}))
    assert produced_ms(exporter.poll(), "orders", 0) == 1_000_006
    admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
    admin.create_topics([NewTopic("orders", num_partitions=2)])["orders"].result(PATIENCE_S)
    asyncio.run(produce(broker.bootstrap, 12, first_ms=3_000_000))
    asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 6}))
    assert produced_ms(exporter.poll(), "orders", 0) == 3_000_006
