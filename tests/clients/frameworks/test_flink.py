"""Flink's connector for Kafka: a bounded source, and a sink that commits its transactions with Flink's checkpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kohort.testing.kafka import ROOT, UnavailableKafkaError, maven_jars
from tests.clients.conftest import Broker
from tests.clients.jvm import Jvm
from tests.clients.transactions.consumers import with_librdkafka, write_end
from tests.clients.waiting import PATIENCE_S
from tests.conftest import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.java, pytest.mark.maven]

POM = Path(__file__).with_name("flink.xml")
FLAGS = (
    "-Xmx1g",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.util", "java.lang", "java.util.concurrent")),
)
SETTINGS = {
    "parallelism.default": "1",
    "execution.checkpointing.interval": "100 ms",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.numberOfTaskSlots": "1",
}
LINES = 200


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    """A `TableEnvironment`, which runs each job in a cluster within the virtual machine."""
    try:
        jars = maven_jars(POM, ROOT / "build" / "flink")
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with Jvm(jars, FLAGS) as jvm:
        api = jvm.classes.org.apache.flink.table.api
        settings = api.EnvironmentSettings.newInstance().inStreamingMode().build()
        made = api.TableEnvironment.create(settings)
        for name, value in SETTINGS.items():
            made.getConfig().set(name, value)
        yield made


def test_lines_are_copied_exactly_once(tables: Any, broker: Broker, make_topic: Callable[..., str]) -> None:
    source, sink = make_topic(2), make_topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(LINES):
        producer.produce(source, f"line {number}", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    both = {"connector": "kafka", "properties.bootstrap.servers": broker.bootstrap, "format": "raw"}
    bounds = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
    exactly_once = {
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": f"flink-{uuid4().hex[:8]}",
        "properties.transaction.timeout.ms": "60000",
    }
    _create(tables, "lines", {**both, **bounds, "topic": source, "properties.group.id": f"flink-{source}"})
    _create(tables, "copies", {**both, **exactly_once, "topic": sink})
    getattr(tables.executeSql("INSERT INTO copies SELECT UPPER(line) FROM `lines`"), "await")()
    write_end(broker.bootstrap, sink, 0)
    copied = with_librdkafka(broker.bootstrap, sink, 0, "read_committed")
    assert sorted(copied) == sorted(f"LINE {number}" for number in range(LINES))


def _create(tables: Any, name: str, options: dict[str, str]) -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    tables.executeSql(f"CREATE TEMPORARY TABLE `{name}` (line STRING) WITH ({listed})")
