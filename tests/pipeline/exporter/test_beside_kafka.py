"""A scrape beside `kafka-consumer-groups --describe` of the same moment, at Apache Kafka."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from kohort.pipeline.exporter.exporter import Exporter
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from tests.clients.java_tools import CONSUMER_GROUPS, java_tools
from tests.clients.waiting import wait_until
from tests.conftest import NIGHTLY
from tests.pipeline.exporter.test_exporter import ORDERS, SETTINGS, commit, produce, transact, value, values

pytestmark = [pytest.mark.java, pytest.mark.timeout(600), NIGHTLY]

Lags = dict[tuple[str, str, str], tuple[str, str, str]]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    try:
        node = KafkaNode(tmp_path, SETTINGS)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with node:
        yield node.bootstrap


def described(bootstrap: str) -> Lags:
    """Committed offset, log end offset and lag of each partition of a group, as Kafka's tool prints them."""
    text = java_tools().run(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, "--describe", "--all-groups")
    rows = [line.split() for line in text.splitlines() if " orders " in line]
    return {(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in rows}


def scraped(exporter: Exporter) -> Lags:
    found: Lags = {}
    told = values(exporter)
    for (name, labels), lag in told.items():
        if name == "kafka_consumergroup_lag":
            of = dict(labels)
            place = {"topic": of["topic"], "partition": of["partition"]}
            offset = value(exporter, "kafka_consumergroup_current_offset", **of)
            end = value(exporter, "kafka_topic_partition_current_offset", **place)
            numbers = (f"{offset:.0f}", f"{end:.0f}", f"{lag:.0f}")
            found[of["consumergroup"], of["topic"], of["partition"]] = numbers
    return found


def test_a_scrape_is_what_kafkas_tool_prints(bootstrap: str) -> None:
    exporter = Exporter(f"kafka://{bootstrap}", cluster_name="c")

    async def story() -> None:
        await produce(bootstrap, 30)
        await produce(bootstrap, 12, partition=1)
        reader = AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="live", client_id="reader", enable_auto_commit=False
        )
        await reader.start()
        await reader.commit({ORDERS[0]: 17, ORDERS[1]: 12})
        await commit(bootstrap, "tool", {ORDERS[0]: 3})
        producer = await transact(bootstrap, "tx", count=2, end="open")
        assert exporter.poll().problems == ()
        told = await asyncio.to_thread(described, bootstrap)
        assert len(told) == 3
        assert scraped(exporter) == told
        assert value(exporter, "kohort_group_members", group="live", type="classic") == 1
        assert value(exporter, "kohort_transactions_open") == 1
        assert value(exporter, "kohort_partition_blocked_records", topic="orders", partition="1") == 2
        await producer.abort_transaction()
        await asyncio.to_thread(wait_until, lambda: not exporter.poll().blocked, what="the markers")
        # The ends of the poll that first saw the markers may be those before them.
        assert exporter.poll().problems == ()
        assert scraped(exporter) == await asyncio.to_thread(described, bootstrap)
        await producer.stop()
        await reader.stop()

    asyncio.run(story())
    exporter.close()
