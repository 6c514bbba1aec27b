"""`kohort groups` where it changes something: moves, files, deletions, and the same answers as Apache Kafka's own tool."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort.cli.groups.queries import fetch_committed
from kohort.client.cluster import Client
from tests.clients.conftest import Broker
from tests.clients.crew import Crew
from tests.clients.java_tools import CONSUMER_GROUPS, JavaTools
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import PATIENCE_S

FIRST_MS = 1_700_000_000_000
"""When the first record of a partition was made; each later one is a minute younger."""

KEPT = {"retention.ms": "-1"}
"""Records of that age would not be kept for long."""

Positions = dict[tuple[str, int], int | None]


def filled(broker: Broker, topic: str, *counts: int) -> str:
    """The topic, with so many records in each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, b"x", partition=partition, timestamp=FIRST_MS + number * 60_000)
    assert producer.flush(PATIENCE_S) == 0
    return topic


def moved(broker: Broker, *words: str) -> Positions:
    """Where the command moves the partitions to."""
    rows = kohort_json("groups", *words, bootstrap=broker.bootstrap)
    return {(row["topic"], row["partition"]): row["new_offset"] for row in rows}


def positions(broker: Broker, group: str) -> Positions:
    rows = kohort_json("offsets", group, bootstrap=broker.bootstrap)
    return {(row["topic"], row["partition"]): row["offset"] for row in rows}


def test_nothing_is_moved_without_execute(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = filled(broker, make_topic(2, **KEPT), 5, 9)
    words = ("reset-offsets", group, "--topic", topic, "--to-offset", "7")
    done = kohort("groups", *words, "--dry-run", bootstrap=broker.bootstrap)
    assert done.stderr.splitlines() == [
        f"kohort: {topic}-0: offset 7 is after the end of the log; 5 is used",
        "kohort: nothing was changed; repeat with --execute to write the offsets",
    ]
    assert [line.split()[-2:] for line in done.stdout.splitlines()[1:]] == [["-", "5"], ["-", "7"]]
    refused = kohort("offsets", group, bootstrap=broker.bootstrap, codes=(2,))
    assert f"group {group!r} does not exist" in refused.stderr

    assert moved(broker, *words, "--execute") == {(topic, 0): 5, (topic, 1): 7}
    assert positions(broker, group) == {(topic, 0): 5, (topic, 1): 7}
    assert moved(broker, "reset-offsets", group, "--topic", f"{topic}:1", "--shift-by", "-3") == {(topic, 1): 4}


def test_an_export_brings_a_group_back(
    broker: Broker, make_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = filled(broker, make_topic(2, **KEPT), 5, 9)
    other, absent = f"{group}-other", f"{group}-absent"
    for name, offset in ((group, "3"), (other, "4")):
        moved(broker, "reset-offsets", name, "--topic", topic, "--to-offset", offset, "--execute")
    before = {name: positions(broker, name) for name in (group, other)}
    file = tmp_path / "offsets"
    for form in ((), ("--csv",)):
        file.write_text(kohort("groups", "export", group, other, *form, bootstrap=broker.bootstrap).stdout)
        deleted = kohort_json("groups", "delete", group, other, bootstrap=broker.bootstrap)
        assert deleted == [{"group": group}, {"group": other}]
        only = moved(broker, "import", str(file), "--group", other)
        assert only == before[other]
        kohort("groups", "import", str(file), "--execute", bootstrap=broker.bootstrap)
        assert {name: positions(broker, name) for name in (group, other)} == before
    refused = kohort("groups", "import", str(file), "--group", absent, bootstrap=broker.bootstrap, codes=(2,))
    assert refused.stderr == f"kohort: {file} has no offsets of group {absent}\n"


def test_an_offset_that_an_import_changes_has_no_epoch_and_no_metadata(
    broker: Broker, make_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """Leader epoch and metadata of the file belong to its offset: with another offset a consumer would see a truncation."""
    topic = filled(broker, make_topic(3, **KEPT), 5, 5, 5)
    row = {"group": group, "topic": topic, "leader_epoch": 0, "metadata": "m"}
    rows = [
        {**row, "partition": 0, "offset": 3},
        {**row, "partition": 1, "offset": 9},
        {**row, "partition": 2, "offset": 5},
    ]
    file = tmp_path / "offsets"
    file.write_text(json.dumps(rows))
    kohort("groups", "import", str(file), "--execute", bootstrap=broker.bootstrap)
    with Client(broker.bootstrap) as client:
        committed = {each.partition: found for each, found in fetch_committed(client, group).items()}
    assert {
        partition: (found.committed_offset, found.committed_leader_epoch, found.metadata)
        for partition, found in sorted(committed.items())
    } == {0: (3, 0, "m"), 1: (5, -1, ""), 2: (5, 0, "m")}


def test_offsets_and_groups_are_deleted(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic, other = filled(broker, make_topic(2, **KEPT), 5, 9), make_topic(**KEPT)
    words = ("--topic", topic, "--topic", other, "--to-latest", "--execute")
    moved(broker, "reset-offsets", group, *words)
    gone = kohort_json("groups", "delete-offsets", group, "--topic", f"{topic}:1,7", bootstrap=broker.bootstrap)
    assert gone == [{"group": group, "topic": topic, "partition": 1}]
    assert positions(broker, group) == {(topic, 0): 5, (other, 0): 0}
    nothing = kohort("groups", "delete-offsets", group, "--topic", f"{topic}:1", bootstrap=broker.bootstrap, codes=(2,))
    assert nothing.stderr == f"kohort: group {group} has no committed offsets there; see: kohort offsets {group}\n"
    done = kohort("groups", "delete", group, f"{group}-absent", bootstrap=broker.bootstrap, codes=(2,))
    assert done.stdout == f"Deleted group {group}.\n"
    assert done.stderr.startswith(f"kohort: group {group}-absent cannot be deleted: the group does not exist")


def test_a_group_with_members_is_left_alone(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = filled(broker, make_topic(2, **KEPT), 5, 9)
    other = f"{group}-other"
    with Crew(broker.bootstrap, group, topic, 2) as crew:
        crew.join("librdkafka")
        crew.settle(2)
        words = ("--topic", topic, "--to-earliest", "--execute")
        refused = kohort("groups", "reset-offsets", group, *words, bootstrap=broker.bootstrap, codes=(2,))
        assert refused.stderr == (
            f"kohort: group {group} is Stable with 1 member; stop its members before its offsets are moved\n"
        )
        # The others are moved.
        done = kohort("groups", "reset-offsets", group, other, *words, bootstrap=broker.bootstrap, codes=(2,))
        assert f"group {group} is Stable" in done.stderr
        assert positions(broker, other) == {(topic, 0): 0, (topic, 1): 0}

        crew.settle(2)
        kept = kohort("groups", "delete", group, bootstrap=broker.bootstrap, codes=(2,))
        assert (
            kept.stderr
            == f"kohort: group {group} cannot be deleted: it has members; stop them first (NON_EMPTY_GROUP)\n"
        )


def test_what_a_member_reads_cannot_be_forgotten(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic, other = filled(broker, make_topic(**KEPT), 5), filled(broker, make_topic(**KEPT), 5)
    words = ("--topic", topic, "--topic", other, "--to-earliest", "--execute")
    moved(broker, "reset-offsets", group, *words)
    with Crew(broker.bootstrap, group, topic, 1) as crew:
        crew.join("librdkafka")
        crew.settle(1)
        forget = ("groups", "delete-offsets", group, "--all-topics", "--json")
        done = kohort(*forget, bootstrap=broker.bootstrap, codes=(2,))
    assert f'"{other}"' in done.stdout
    assert done.stderr == (
        f"kohort: {topic}-0 of group {group} cannot be deleted: the group has members that are subscribed to the topic"
        " (GROUP_SUBSCRIBED_TO_TOPIC)\n"
    )


SAME: tuple[tuple[str, ...], ...] = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "7"),
    ("--shift-by", "-4"),
    ("--to-datetime", "2023-11-14T22:16:20.000"),
)
"""The fourth record of a partition was made at 22:16:20 UTC on that day."""


@pytest.mark.parametrize("words", SAME, ids=" ".join)
def test_kafkas_tool_plans_the_same(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str, words: tuple[str, ...]
) -> None:
    topic = filled(broker, make_topic(3, **KEPT), 5, 9, 0)
    moved(broker, "reset-offsets", group, "--topic", topic, "--to-offset", "3", "--execute")
    ours = kohort_json("groups", "reset-offsets", group, "--topic", topic, *words, bootstrap=broker.bootstrap)
    tool = ("--bootstrap-server", broker.bootstrap, "--reset-offsets", "--group", group, "--topic", topic)
    theirs = java.run(CONSUMER_GROUPS, *tool, *words, "--export")
    expected = [f"{row['topic']},{row['partition']},{row['new_offset']}" for row in ours]
    assert sorted(line.strip('"') for line in theirs.splitlines() if "," in line) == expected


def test_files_go_both_ways(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, other = filled(broker, make_topic(2, **KEPT), 5, 9), f"{group}-other"
    for name, offset in ((group, "3"), (other, "8")):
        moved(broker, "reset-offsets", name, "--topic", topic, "--to-offset", offset, "--execute")
    tool = ("--bootstrap-server", broker.bootstrap, "--reset-offsets")
    words: tuple[tuple[str, ...], ...] = ((group,), (group, other))
    for groups in words:
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        named = [word for name in groups for word in ("--group", name)]
        ours.write_text(kohort("groups", "export", *groups, "--csv", bootstrap=broker.bootstrap).stdout)
        theirs.write_text(java.run(CONSUMER_GROUPS, *tool, *named, "--all-topics", "--to-current", "--export"))
        assert sorted(ours.read_text().split()) == sorted(theirs.read_text().split())
        plan: list[dict[str, Any]] = kohort_json(
            "groups", "reset-offsets", *groups, "--from-file", str(theirs), bootstrap=broker.bootstrap
        )
        assert [row["offset"] for row in plan] == [row["new_offset"] for row in plan]
        assert len(plan) == 2 * len(groups)
        moved(broker, "reset-offsets", *groups, "--topic", topic, "--to-earliest", "--execute")
        # Of several groups, the tool tries the format of one group first and prints why that is not it.
        java.run(CONSUMER_GROUPS, *tool, *named, "--from-file", str(ours), "--execute", codes=(0, 1))
        assert positions(broker, group) == {(topic, 0): 3, (topic, 1): 3}
    assert positions(broker, other) == {(topic, 0): 5, (topic, 1): 8}
