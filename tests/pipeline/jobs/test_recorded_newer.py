"""What Apache Kafka 4.4.0 writes first: times of assignments, rotated producer ids, dead letters, topics made again."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.shares.share_history import ShareHistory
from tests.records import kafka_logs

RUN = "main-4.4.0"
Row = dict[str, Any]
Place = tuple[str, str, int]


@pytest.fixture(scope="module")
def rows_of(engine: Any, recorded: Callable[[str], Path]) -> Callable[[str], list[Row]]:
    """The rows of a table of the run."""
    tables = Tables(Reading(engine, recorded(RUN) / "logs"))
    return cache(lambda name: publish.rows(getattr(tables, name), name))


def coordinator_records(topic: str, run: str = RUN) -> Iterator[Row]:
    """Key, value, type and time of each record, partition by partition."""
    for batches in kafka_logs.batches(run, topic).values():
        for batch in batches:
            for record in () if batch["control"] else batch["records"]:
                yield {**record["decoded"], "timestamp_ms": record["timestamp"]}


def assigned_at_ms() -> dict[tuple[str, int], int]:
    """When the assignment of a group epoch was computed, if a record tells."""
    return {
        (record["key"]["groupId"], record["value"]["assignmentEpoch"]): record["value"]["assignmentTimestamp"]
        for record in coordinator_records("__consumer_offsets")
        if "assignmentTimestamp" in (record["value"] or ())
    }


# fmt: off
INTERVALS = [  # group epoch, event, cause, partitions moved, time of the rebalance, and of its last phase
    ("interval-default", [
        (2, "rebalanced", "joined",       0,    0,    0),
        (3, "rebalanced", "joined",       2,    1119, 493),
        (4, "rebalanced", "joined",       1,    1619, 670),
        (5, "rebalanced", "left",         2,    223,  128),
        (6, "rebalanced", "left",         2,    1028, 0),
        (7, "rebalanced", "subscription", 0,    0,    0),
        (8, "emptied",    "left",         0,    0,    None),
    ]),
    ("interval-zero", [
        (2, "rebalanced", "joined",       0,    1,    1),
        (3, "rebalanced", "joined",       2,    None, None),
        (4, "rebalanced", "joined",       1,    332,  332),
        (5, "rebalanced", "left",         None, None, None),
        (6, "rebalanced", "left",         2,    41,   0),
        (7, "rebalanced", "subscription", 0,    0,    0),
        (8, "emptied",    "left",         0,    0,    None),
    ]),
    ("interval-changed", [
        (2, "rebalanced", "joined",       0,    0,    0),
        (3, "rebalanced", "joined",       2,    1521, 506),
        (4, "rebalanced", "left",         2,    486,  0),
        (5, "emptied",    "left",         0,    0,    None),
    ]),
]
# fmt: on


@pytest.mark.parametrize(("group", "expected"), INTERVALS)
def test_a_rebalance_waits_for_its_assignment(
    rows_of: Callable[[str], list[Row]], group: str, expected: list[tuple[Any, ...]]
) -> None:
    """
    The interval of `interval-default` is a second. Of epoch 6 all time but the last phase is the wait for its assignment.
    Epochs 3 and 5 end while the next one waits.
    """
    rows = [row for row in rows_of("rebalances") if row["group"] == group]
    columns = ("generation", "event", "why", "moved", "duration_ms", "sync_ms")
    assert [tuple("".join(row[name]) if name == "why" else row[name] for name in columns) for row in rows] == expected


def test_the_last_phase_begins_at_the_exact_time_of_the_assignment(rows_of: Callable[[str], list[Row]]) -> None:
    """In groups of every kind. Converted groups and groups without members get no assignment."""
    told, checked = assigned_at_ms(), Counter[str]()
    for row in rows_of("rebalances"):
        if row["group_type"] == "classic" or row["event"] != "rebalanced":
            continue
        at_ms = told.get((row["group"], row["generation"]))
        assert at_ms is None or row["began_at_ms"] <= at_ms
        if row["completed_at_ms"] is not None:
            assert row["sync_ms"] == (None if at_ms is None else row["completed_at_ms"] - at_ms)
            assert row["sync_ms"] is None or row["sync_ms"] <= row["duration_ms"]
            checked[row["group_type"] if at_ms else "converted"] += 1
    assert checked == {"consumer": 53, "share": 29, "streams": 11, "converted": 5}


def test_assignments_of_a_group_are_an_interval_apart() -> None:
    times: dict[str, list[int]] = {}
    for (group, _), at_ms in assigned_at_ms().items():
        times.setdefault(group, []).append(at_ms)
    assert all(later - earlier >= 1000 for earlier, later in pairwise(times["interval-default"]))
    assert any(later - earlier < 1000 for earlier, later in pairwise(times["interval-zero"]))


def told_by_tools(
    recorded: Callable[[str], Path],
) -> tuple[dict[Place, tuple[int | None, int, int | None]], dict[Place, int]]:
    """
    Offset, end and lag of each partition, and the lag of streams groups, as Kafka's tools print them: a dash for the offset and
    the lag of a partition that a member owns and its group has not committed.
    """
    text = (recorded(RUN) / "tools.txt").read_text()
    sections = {name.split()[0]: lines for name, _, lines in (part.partition("\n") for part in text.split("$ ")[:0:-1])}
    groups = [line.split() for line in sections["ConsumerGroupCommand"].splitlines()]
    streams = [line.split() for line in sections["StreamsGroupCommand"].splitlines()[1:]]
    return {
        (words[0], words[1], int(words[2])): (_number(words[4]), int(words[5]), _number(words[6]))
        for words in groups
        if len(words) == 10 and words[5].isdecimal()
    }, {(words[0], words[1], int(words[2])): int(words[3]) for words in streams if words}


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)


def test_lag_is_what_the_tools_of_kafka_print(
    rows_of: Callable[[str], list[Row]], recorded: Callable[[str], Path]
) -> None:
    """
    Of every group that has offsets or owners: before the start of a log, at it and beyond its end, of emptied logs, before and
    behind markers of transactions. Kafka prints the lag of an offset beyond the end as a negative number.
    """
    told, told_of_streams = told_by_tools(recorded)
    rows = {(row["group"], row["topic"], row["partition"]): row for row in rows_of("lag")}
    assert {key: row["lag"] for key, row in rows.items() if key in told_of_streams} == told_of_streams
    of_streams = {name for name, group in kafka_logs.broker(RUN)["groups"].items() if group["type"] == "Streams"}
    found = {
        key: (row["offset"], row["end_offset"], row["lag"]) for key, row in rows.items() if key[0] not in of_streams
    }
    assert found == {
        key: (offset, end, None if lag is None else max(lag, 0)) for key, (offset, end, lag) in told.items()
    }
    uncommitted = [key for key, (offset, _, _) in told.items() if offset is None]
    assert (len(told), len(uncommitted), len(told_of_streams)) == (153, 9, 4)
    beyond = [key for key, row in rows.items() if row["is_beyond_end"]]
    assert (
        beyond
        == [key for key, (_, _, lag) in told.items() if lag is not None and lag < 0]
        == [("past-end", "orders", 0)]
    )


def test_a_topic_that_is_deleted_takes_its_offsets(rows_of: Callable[[str], list[Row]]) -> None:
    """
    The commits of each group and partition, and x for a tombstone: also of an open transaction, whose marker comes later. The
    topic was created again, and has offsets of its second life.
    """
    stories: dict[str, str] = {}
    for row in sorted(rows_of("offset_commits"), key=lambda row: (row["log_partition"], row["log_offset"])):
        if row["topic"] == "reborn":
            place = f"{row['group'].removeprefix('reborn-')}-{row['partition']}"
            stories[place] = stories.get(place, "") + ("x" if row["tombstone"] else str(row["offset"]))
    assert stories == {
        "left-0": "2x", "left-1": "3x",
        "consumer-0": "3x2", "consumer-1": "3x2", "consumer-2": "2",
        "classic-0": "3x2", "classic-1": "3x2", "classic-2": "2",
        "simple-0": "2x1x", "simple-1": "3x",
        "pending-1": "2x",
        "txn-0": "1x", "txn-2": "1",
    }  # fmt: skip


def test_members_own_what_the_broker_tells(rows_of: Callable[[str], list[Row]]) -> None:
    """Of streams groups the tasks, with copies of their state. Kafka counts partitions that are not released yet."""
    owned: dict[tuple[str, str], list[str]] = {}
    for row in rows_of("assignments"):
        if row["until_ms"] is None:
            role = "" if row["subtopology"] is None else f"{row['role']} "
            owner = owned.setdefault((row["group"], row["member_id"]), [])
            owner.append(f"{role}{row['topic'] or row['subtopology']}-{row['partition']}")
    told = {
        (name, member["member_id"]): member["assignment"]
        for name, group in kafka_logs.broker(RUN)["groups"].items()
        for member in group["members"]
        if member["assignment"]
    }
    told["hold-reconciling", "hold-keeps"] = ["orders-0", "orders-1"]
    first, second = "vL895LxpS9CyrLIdDbLsvg", "I7VHcpntQo6wfHQaRUHXng"
    assert told["hold-streams", first] == "(activeTasks=0_1,1_1, standbyTasks=1_0, warmupTasks=)"
    told["hold-streams", first] = ["active 0-1", "active 1-1", "standby 1-0"]
    assert told["hold-streams", second] == "(activeTasks=0_0,1_0, standbyTasks=1_1, warmupTasks=)"
    told["hold-streams", second] = ["active 0-0", "active 1-0", "standby 1-1"]
    assert {owner: sorted(places) for owner, places in owned.items()} == told


ROTATED = [  # producer id, epoch, outcome and reason of the end
    ("hold-rotate", [(2, 32766, "committed", "client"), (58, 0, "open", None)]),
    (
        "rotate-commit",
        [(0, 32766, "committed", "client"), (49, 0, "committed", "client"), (49, 1, "committed", "client")],
    ),
    ("rotate-abort", [(1, 32766, "aborted", None), (50, 0, "committed", "client"), (50, 1, "committed", "client")]),
    ("rotate-fence", [(3, 32766, "aborted", None), (52, 1, "committed", "client")]),
    ("rotate-timeout", [(5, 32766, "aborted", "timeout"), (53, 1, "committed", "client")]),
]


@pytest.mark.parametrize(("name", "expected"), ROTATED)
def test_transactions_around_the_last_epoch(
    rows_of: Callable[[str], list[Row]], name: str, expected: list[tuple[Any, ...]]
) -> None:
    rows = [row for row in rows_of("transactions") if row["transactional_id"] == name]
    rows.sort(key=lambda row: row["first_log_offset"])
    assert [(row["producer_id"], row["producer_epoch"], row["outcome"], row["ended_by"]) for row in rows] == expected


@pytest.mark.parametrize(("run", "written", "archived"), [(RUN, 24, 20), ("expiry-4.4.0", 8, 8)])
def test_a_dead_letter_is_archiving_until_it_is_archived(run: str, written: int, archived: int) -> None:
    """A record may be written as archiving again before it is archived."""
    histories: dict[tuple[str, str, int], ShareHistory] = {}
    begun, ended = 0, Counter[str]()
    for record in coordinator_records("__share_group_state", run):
        key = tuple(record["key"].values())
        history = histories.setdefault(key, ShareHistory(*key))
        name, value = record["key_name"].removesuffix("Key"), record["value"]
        row = {"record_type": name, "tombstone": value is None, "value": json.dumps(value), "timestamp_ms": 0}
        before = states(history)
        list(history.replay(row))
        archiving = {offset for offset, state in before.items() if state == "archiving"}
        after = states(history)
        ended.update(after.get(offset, "done") for offset in archiving if after.get(offset) != "archiving")
        begun += sum(one["deliveryState"] == 3 for one in (value or {}).get("stateBatches", ()))
    assert (begun, ended) == (written, {"archived": archived})
    assert not any("archiving" in states(history).values() for history in histories.values())


def states(history: ShareHistory) -> dict[int, str]:
    (row,) = history.finish() if history.state is not None else [{"batches": ()}]
    return {
        offset: one["state"] for one in row["batches"] for offset in range(one["first_offset"], one["last_offset"] + 1)
    }
