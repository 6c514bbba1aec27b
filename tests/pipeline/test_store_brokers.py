"""Tables made from the store of a running broker are those over the wire, and say what its own admin APIs answer."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import NewTopic

from kohort.pipeline import local_tables
from kohort.pipeline.jobs import publish
from kohort.testing.served import ServedKohort
from tests.clients.test_share_consumers import configure
from tests.clients.waiting import wait_until
from tests.conftest import NIGHTLY
from tests.pipeline.stored import new_store
from tests.pipeline.story import ORDERS, OUT, Story

pytestmark = NIGHTLY

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
SAME = ("offsets", "lag", "members", "assignments", "rebalances", "transactions", "share_state", "commit_frequency")
"""Tables that do not depend on the instant, which over the wire is now."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Story]]:
    """A broker on a store with groups of all kinds and transactions: the address of the store, and the clients."""
    with (
        new_store() as url,
        ServedKohort(tmp_path_factory.mktemp("broker"), SETTINGS, store=url) as broker,
        Story(broker.bootstrap) as story,
    ):
        story.two_members("live-classic")
        story.two_members("live-consumer", **{"group.protocol": "consumer"})
        share(story)
        for name, outcome in {"live-committed": "commit", "live-aborted": "abort", "live-open": "open"}.items():
            story.transact(name, outcome=outcome)
        yield url, story


def share(story: Story) -> None:
    """A share group that has acknowledged some records."""
    configure(story.bootstrap, "live-share", share_auto_offset_reset="earliest")
    consumer = ShareConsumer({"bootstrap.servers": story.bootstrap, "group.id": "live-share"})
    consumer.subscribe([OUT])
    seen: list[Any] = []

    def has_read() -> bool:
        seen.extend(consumer.poll(0.1) or ())
        return len(seen) >= 10

    wait_until(has_read, what="records of the share group")
    consumer.commit_sync(30)
    consumer.close()
    story.produce(per_partition=1)


def rows_of(source: str, *names: str) -> dict[str, list[dict[str, Any]]]:
    with local_tables(source) as tables:
        return {name: publish.rows(getattr(tables, name), name) for name in names}


def test_tables_of_the_store_are_those_over_the_wire(running: tuple[str, Story]) -> None:
    url, story = running
    stored, wired = rows_of(url, *SAME), rows_of(f"kafka://{story.bootstrap}", *SAME)
    for name in SAME:
        assert stored[name] == wired[name], name
        assert stored[name], name
    assert {row["lag"] for row in stored["share_state"]} != {None}


def test_lag_is_what_the_broker_says(running: tuple[str, Story]) -> None:
    url, story = running
    rows = [row for row in rows_of(url, "lag")["lag"] if row["group"] in story.groups]
    told = {key: offset for key, offset in story.offsets().items() if offset >= 0}
    assert {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows} == told
    ends = story.ends()
    assert all(row["end_offset"] == ends[row["topic"], row["partition"]] for row in rows)
    assert {row["lag"] for row in rows} == {6, 8, 18}


def test_an_open_transaction_holds_back_what_the_broker_says(running: tuple[str, Story]) -> None:
    url, story = running
    rows = rows_of(url, "blocking_transactions")["blocking_transactions"]
    assert {(row["transactional_id"], row["verdict"]) for row in rows} == {("live-open", "ongoing")}
    ends, stable = story.ends(), story.ends(committed=True)
    first = {(row["topic"], row["partition"]): row["start_offset"] for row in rows if row["topic"] == OUT}
    assert first == {place: offset for place, offset in stable.items() if offset < ends[place]}


def test_partitions_without_a_record_are_there(running: tuple[str, Story]) -> None:
    """The store has a row of a partition from its first record on; the catalog names it before."""

    url, story = running
    for done in story.admin.create_topics([NewTopic("empty", 3, 1)]).values():
        done.result(30)
    with local_tables(url) as tables:
        assert {("empty", number) for number in range(3)} <= {*tables.reading.places}
        ends = {
            (row["topic"], row["partition"]): row["end_offset"]
            for row in tables.reading.end_offsets(["empty", ORDERS]).collect()
        }
    assert [ends["empty", number] for number in range(3)] == [0, 0, 0]
