"""Tables made over the wire of a running cluster say what its own admin APIs answer: Apache Kafka's, and Kohort's."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.contract import COLUMNS
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from tests.clients.java_tools import java_tools
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.frames import check_equal
from tests.pipeline.story import ORDERS, OUT, PARTITIONS, Story

pytestmark = [pytest.mark.spark, pytest.mark.java, NIGHTLY]

TRANSACTIONS = {"live-committed": "commit", "live-aborted": "abort", "live-open": "open"}
GROUPS: dict[str, dict[str, str]] = {"live-consumer": {"group.protocol": "consumer"}}
if LONG:
    GROUPS["live-classic"] = {}
"""What Kafka is told; the story of a classic group is told to Kohort in any case."""
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
KAFKA_SETTINGS = SETTINGS | {
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka"), KAFKA_SETTINGS)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with node, Story(node.bootstrap) as story:
        for group, settings in GROUPS.items():
            story.two_members(group, **settings)
        for name, outcome in TRANSACTIONS.items():
            story.transact(name, outcome=outcome)
        yield story


@pytest.fixture(scope="module")
def tables(spark: Any, kafka: Story) -> Tables:
    return Tables(Reading(spark, f"kafka://{kafka.bootstrap}"))


def rows_of(tables: Tables, name: str) -> list[dict[str, Any]]:
    return publish.rows(getattr(tables, name), name)


def says_where_groups_stand(tables: Tables, story: Story) -> None:
    rows = rows_of(tables, "lag")
    assert {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows} == story.offsets()
    ends = story.ends()
    for row in rows:
        assert row["end_offset"] == ends[row["topic"], row["partition"]]
        assert row["lag"] == row["end_offset"] - row["offset"]
    assert {row["lag"] for row in rows if row["group"] == story.groups[0]} != {0}
    # The group's curve ends where the table is.
    last = {row["group"]: row["lag"] for row in rows_of(tables, "lag_over_time")}
    total = {
        group: sum(row["lag"] for row in rows if row["group"] == group) for group in {row["group"] for row in rows}
    }
    assert last == total
    waits = rows_of(tables, "time_lag")
    assert all(row["time_lag_ms"] > 0 and row["records_lost"] == 0 for row in waits)
    last_waits = {row["group"]: row["waiting_since_ms"] for row in rows_of(tables, "time_lag_over_time")}
    assert last_waits == {
        group: min(row["next_produced_at_ms"] for row in waits if row["group"] == group) for group in total
    }


def says_who_is_there(tables: Tables, story: Story, groups: list[str]) -> None:
    told = story.members(groups)
    there = [row for row in rows_of(tables, "members") if row["until_ms"] is None]
    assert {(row["group"], row["member_id"]) for row in there} == set(told)
    assert {row["client_id"] for row in there} == {"first"}
    owned: dict[tuple[str, str], set[tuple[str, int]]] = {key: set() for key in told}
    for row in rows_of(tables, "assignments"):
        if row["until_ms"] is None:
            owned[row["group"], row["member_id"]].add((row["topic"], row["partition"]))
    assert owned == told


def says_why_groups_rebalanced(tables: Tables, group: str) -> None:
    rows = [row for row in rows_of(tables, "rebalances") if row["group"] == group and row["event"] == "rebalanced"]
    why = [(row["why"], [one["client_id"] for one in row["joined"] or row["left"]]) for row in rows]
    first, second, left = (["joined"], ["first"]), (["joined"], ["second"]), (["left"], ["second"])
    assert [one for one in why if one[0] in (["joined"], ["left"])] == [first, second, left]
    # A cooperative member joins once more to take what was given up for it.
    assert {tuple(one[0]) for one in why} <= {("joined",), ("left",), ("rejoined",), ("subscription",), ("metadata",)}
    assert sum(row["moved"] or 0 for row in rows) >= PARTITIONS[ORDERS] // 2


def test_offsets_and_lag(tables: Tables, kafka: Story) -> None:
    says_where_groups_stand(tables, kafka)


def test_members_and_owners(tables: Tables, kafka: Story) -> None:
    says_who_is_there(tables, kafka, list(GROUPS))


@pytest.mark.parametrize("group", GROUPS)
def test_rebalances(tables: Tables, group: str) -> None:
    says_why_groups_rebalanced(tables, group)
    flapping = [row for row in rows_of(tables, "partition_flapping") if row["group"] == group]
    assert len(flapping) == PARTITIONS[ORDERS]
    assert {row["returns"] for row in flapping} == {0, 1}
    unowned = [row for row in rows_of(tables, "time_without_owner") if row["group"] == group]
    assert all(row["until_ms"] is not None for row in unowned)


def test_transactions(tables: Tables, kafka: Story) -> None:
    told = java_tools().run("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", kafka.bootstrap, "list")
    listed = {
        (words[0], int(words[2]), words[3])
        for words in map(str.split, told.splitlines())
        if words and words[0] in TRANSACTIONS
    }
    rows = rows_of(tables, "transactions")
    assert {(row["transactional_id"], row["producer_id"], row["state"]) for row in rows} == listed
    assert {row["transactional_id"]: row["outcome"] for row in rows} == {
        "live-committed": "committed",
        "live-aborted": "aborted",
        "live-open": "open",
    }


def test_what_an_open_transaction_holds_back(tables: Tables, kafka: Story) -> None:
    rows = rows_of(tables, "blocking_transactions")
    assert {(row["transactional_id"], row["verdict"]) for row in rows} == {("live-open", "ongoing")}
    ends, stable = kafka.ends(), kafka.ends(committed=True)
    first = {(row["topic"], row["partition"]): row["start_offset"] for row in rows if row["topic"] == OUT}
    assert first == {place: offset for place, offset in stable.items() if offset < ends[place]}
    assert {row["blocked_records"] for row in rows if row["topic"] == OUT} == {1}
    describe = ("--bootstrap-server", kafka.bootstrap, "describe", "--transactional-id", "live-open")
    told = java_tools().run("org.apache.kafka.tools.TransactionsCommand", *describe)
    places = {(row["topic"], row["partition"]) for row in rows_of(tables, "open_transactions")}
    assert places == {
        (topic, int(partition))
        for topic, partition in re.findall(r"([\w-]+)-(\d+)(?:,|\s|$)", told)
        if topic in (OUT, "__consumer_offsets")
    }
    hanging = java_tools().run(
        "org.apache.kafka.tools.TransactionsCommand", *describe[:2], "find-hanging", "--broker-id", "1"
    )
    assert len(hanging.splitlines()) == 1  # the head of the table alone


def test_both_engines_give_the_same_tables_over_the_wire(spark: Any, kafka: Story) -> None:
    """At one instant: over the wire the tables are of now."""
    at_ms = int(time.time() * 1000)
    with LocalSession() as local:
        for is_latest_only, names in ((False, (*COLUMNS, "lag_picture")), (True, ("offsets", "lag", "damage"))):
            both = [Reading(one, f"kafka://{kafka.bootstrap}", is_latest_only=is_latest_only) for one in (local, spark)]
            for reading in both:
                reading.at_ms = at_ms
            check_equal(names, *map(Tables, both))


def test_kohort_says_the_same_of_itself(spark: Any, tmp_path: Path) -> None:
    with ServedKohort(tmp_path, SETTINGS) as broker, Story(broker.bootstrap) as story:
        story.two_members("live-classic")
        tables = Tables(Reading(spark, f"kafka://{broker.bootstrap}"))
        says_where_groups_stand(tables, story)
        says_who_is_there(tables, story, ["live-classic"])
        says_why_groups_rebalanced(tables, "live-classic")
