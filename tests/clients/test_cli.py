"""The command line as one more client: what it prints for programs, and its sentences when something is wrong."""

import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.conftest import Broker
from tests.clients.crew import Crew
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import PATIENCE_S, wait_until

ROW = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "end_offset", "lag")
"""The fields of an offset, the same as in the tables of `kohort pipeline`."""


def test_a_topic_from_its_creation_to_its_end(broker: Broker) -> None:
    name = f"topic-{uuid4().hex[:8]}"
    words = ("topics", "create", name, "--partitions", "2", "--config", "retention.ms=1000")
    (created,) = kohort_json(*words, bootstrap=broker.bootstrap)
    assert (created["topic"], created["partitions"], created["replication_factor"]) == (name, 2, 1)

    refused = kohort(*words, bootstrap=broker.bootstrap, codes=(2,))
    assert refused.stderr.startswith(f"kohort: topic {name} cannot be created: ")
    assert refused.stderr.endswith("(TOPIC_ALREADY_EXISTS)\n")
    assert kohort_json(*words, "--if-not-exists", bootstrap=broker.bootstrap) == []

    listed = {row["topic"]: row for row in kohort_json("topics", "list", bootstrap=broker.bootstrap)}
    assert listed[name] == {**created, "internal": False}
    (described,) = kohort_json("topics", "describe", name, bootstrap=broker.bootstrap)
    assert described["configs"] == {"retention.ms": "1000"}
    assert [(each["partition"], each["start_offset"], each["end_offset"]) for each in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]

    assert kohort_json("topics", "delete", name, bootstrap=broker.bootstrap) == [{"topic": name}]
    assert kohort_json("topics", "delete", name, "--if-exists", bootstrap=broker.bootstrap) == []
    gone = kohort("topics", "describe", name, bootstrap=broker.bootstrap, codes=(2,))
    assert gone.stderr.startswith(f"kohort: topic {name!r} does not exist; ")


def test_offsets_with_lag(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"x", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    _commit(broker, group, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 2, "", 0))
    rows = kohort_json("offsets", group, bootstrap=broker.bootstrap)
    assert [tuple(row) for row in rows] == [ROW, ROW]
    shown = [(row["partition"], row["offset"], row["leader_epoch"], row["end_offset"], row["lag"]) for row in rows]
    assert shown == [(0, 4, -1, 0, 0), (1, 2, 0, 5, 3)]


def test_the_offset_of_a_deleted_topic_goes_with_it(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    stays, goes = make_topic(), make_topic()
    _commit(broker, group, TopicPartition(stays, 0, 0), TopicPartition(goes, 0, 0))
    kohort("topics", "delete", goes, bootstrap=broker.bootstrap)
    wait_until(
        lambda: [row["topic"] for row in kohort_json("offsets", group, bootstrap=broker.bootstrap)] == [stays],
        what="the offset is gone",
    )


def test_a_group_with_members(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(2)
    with Crew(broker.bootstrap, group, topic, 2) as crew:
        crew.join("librdkafka", "group.instance.id=one", "client.id=reader")
        crew.settle(2)
        (described,) = kohort_json("groups", "describe", group, bootstrap=broker.bootstrap)
        table = kohort("groups", "describe", group, bootstrap=broker.bootstrap).stdout
    assert (described["group"], described["type"], described["state"], described["protocol"]) == (
        group,
        "classic",
        "Stable",
        "range",
    )
    (member,) = described["members"]
    assert (member["instance_id"], member["client_id"], member["subscription"]) == ("one", "reader", [topic])
    assert member["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    # What is assigned is shown before anything was committed, as kafka-consumer-groups.sh does.
    shown = [
        (row["partition"], row["offset"], row["end_offset"], row["lag"], row["member_id"])
        for row in described["offsets"]
    ]
    assert shown == [(number, None, 0, None, member["member_id"]) for number in (0, 1)]
    assert (
        table.splitlines()[0]
        == f"Group {group}: classic, Stable, members 1, coordinator {broker.bootstrap}, protocol range"
    )
    assert f"{topic}-0, {topic}-1" in table


def test_groups_are_listed_by_state(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    _commit(broker, group, TopicPartition(make_topic(), 0, 1))
    row = {"group": group, "type": "classic", "protocol_type": "", "state": "Empty"}
    assert row in kohort_json("groups", "list", bootstrap=broker.bootstrap)
    assert row in kohort_json("groups", "list", "--state", "Empty", bootstrap=broker.bootstrap)
    assert row not in kohort_json("groups", "list", "--state", "Stable", bootstrap=broker.bootstrap)
    assert group in [each["group"] for each in kohort_json("groups", "describe", "--all", bootstrap=broker.bootstrap)]


@pytest.mark.parametrize("words", [("groups", "describe"), ("offsets",)], ids=" ".join)
def test_an_unknown_group_is_a_sentence(broker: Broker, group: str, words: tuple[str, ...]) -> None:
    refused = kohort(*words, group, bootstrap=broker.bootstrap, codes=(2,))
    assert refused.stderr.startswith(f"kohort: group {group!r} does not exist; ")
    assert refused.stdout == ""


def test_tables_are_made_for_pipes(broker: Broker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(3)
    heading, *rows = kohort("topics", "list", "--no-internal", bootstrap=broker.bootstrap).stdout.splitlines()
    assert heading.split("  ")[0] == "TOPIC"
    (row,) = [row.split() for row in rows if row.startswith(topic)]
    assert row[1:4] == ["3", "1", "no"]
    assert json.loads(kohort("topics", "list", "--json", bootstrap=broker.bootstrap).stdout)


def _commit(broker: Broker, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()
