"""The pipeline over logs of Apache Kafka gives what the broker itself reported."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.lag import time_lag
from tests.records import kafka_logs

NEWER = kafka_logs.RUNS
TablesOf = Callable[..., Tables]
NOT_READ = (None, 0, None)
"""Start offset, leader epoch and lag of a share partition that nobody has read; the broker tells none of them."""
Offsets = dict[tuple[str, str], tuple[int, int, str]]


@pytest.fixture(scope="module")
def tables(engine: Any, recorded: Callable[[str], Path]) -> TablesOf:
    """The tables of a run; what is read once is kept."""
    return cache(lambda run, group=None: Tables(Reading(engine, recorded(run) / "logs", group=group)))


def place(row: dict[str, Any]) -> tuple[str, str]:
    return row["group"], f"{row['topic']}-{row['partition']}"


def offsets_of(found: Tables) -> Offsets:
    rows = publish.rows(found.offsets, "offsets")
    return {place(row): (row["offset"], row["leader_epoch"], row["metadata"]) for row in rows}


def reported(run: Path) -> dict[str, Any]:
    summary = json.loads((run / "summary.json").read_text())
    broker: dict[str, Any] = summary.get("broker") or summary["broker_after_recovery"]
    return broker


def reported_offsets(run: Path) -> Offsets:
    return {
        (group, partition): (one["offset"], one["leader_epoch"], one["metadata"])
        for group, told in reported(run)["groups"].items()
        for partition, one in (told.get("offsets") or {}).items()
    }


@pytest.mark.parametrize("run", ["main", "expiry", "legacy", "tv1", *NEWER])
def test_latest_offsets_are_those_that_the_broker_reports(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    expected = reported_offsets(recorded(run))
    assert expected
    assert offsets_of(tables(run)) == expected


@pytest.mark.parametrize("run", ["unclean", "unclean-torn"])
def test_a_broker_that_recovers_ends_what_was_prepared(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    """
    The killed broker had prepared a commit; only the recovering one wrote its marker. Another transaction stayed open: the
    last stable offset stands at its first record.
    """
    found = tables(run)
    pending = found.reading.offset_commits.where("fate = 'pending'").toArrow().to_pylist()
    log = reported(recorded(run))["topics"]["__consumer_offsets"]["partitions"]
    prepared = {
        place(row): (row["offset"], row["leader_epoch"], row["metadata"])
        for row in pending
        if row["log_offset"] > log[str(row["log_partition"])]["last_stable_offset"]
    }
    assert len(pending) == 2
    assert prepared == {("u-txn-group", "u-data-0"): (18, -1, "")}
    assert {**offsets_of(found), **prepared} == reported_offsets(recorded(run))


@pytest.mark.parametrize("run", ["main", "expiry", "tv1", "unclean-torn", *NEWER])
def test_lag_is_measured_to_the_end_that_the_broker_reports(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    topics = reported(recorded(run))["topics"]
    for row in publish.rows(tables(run).lag, "lag"):
        if row["topic"] not in topics:
            assert (row["end_offset"], row["lag"]) == (None, None)
            continue
        assert row["end_offset"] == topics[row["topic"]]["partitions"][str(row["partition"])]["end_offset"]
        assert row["lag"] == (None if row["offset"] is None else max(row["end_offset"] - row["offset"], 0))


@pytest.mark.parametrize("run", ["main", *NEWER])
def test_lag_over_time_ends_at_the_lag_of_now(tables: TablesOf, run: str) -> None:
    found = tables(run)
    now: dict[str, int] = {}
    for row in publish.rows(found.lag, "lag"):
        if row["lag"] is not None:
            now[row["group"]] = now.get(row["group"], 0) + row["lag"]
    last = {row["group"]: row["lag"] for row in publish.rows(found.lag_picture, "lag_picture")}
    assert {group: lag for group, lag in last.items() if group in now} == now
    assert all(last[group] == 0 for group in set(last) - set(now))


@pytest.mark.parametrize("run", ["main", "expiry", "legacy", "tv1", "unclean", "unclean-torn", *NEWER])
def test_time_lag_over_time_ends_at_the_time_lag_of_now(tables: TablesOf, run: str) -> None:
    """By the headers of batches: the line does not know the records inside."""
    found = tables(run)
    now: dict[str, int] = {}
    reading, topics = found.reading, sorted({row["topic"] for row in publish.rows(found.lag, "lag")})
    begins = reading.log_begins(topics)
    by_headers = time_lag.time_lag(found.lag, reading.batches(topics), at_ms=reading.at_ms, begins=begins)
    for row in publish.rows(by_headers, "time_lag"):
        if row["time_lag_ms"] is not None:
            now[row["group"]] = max(now.get(row["group"], 0), row["time_lag_ms"])
    last = {row["group"]: row for row in publish.rows(found.time_lag_over_time, "time_lag_over_time")}
    at_ms = found.reading.at_ms
    ends = {
        group: 0 if row["waiting_since_ms"] is None else at_ms - row["waiting_since_ms"] for group, row in last.items()
    }
    # A group of empty logs only has no series. A group whose offsets were all deleted has a past only.
    assert {group: ends.get(group, 0) for group in now} == now
    assert run == "legacy" or set(now) & set(ends)
    assert all(ends[group] == 0 for group in set(ends) - set(now))


def test_one_group_alone(tables: TablesOf, recorded: Callable[[str], Path]) -> None:
    found = tables("main", group="tx-group-that-is-not")
    assert publish.rows(found.lag, "lag") == []
    # An empty table of a group that exists is an answer; the command line refuses other names.
    assert not found.reading.has_group("tx-group-that-is-not")
    assert found.reading.has_group("txn-group")
    found = tables("main", group="txn-group")
    everything = reported_offsets(recorded("main"))
    assert offsets_of(found) == {key: told for key, told in everything.items() if key[0] == "txn-group"}


def test_rebalances_of_a_group_of_three(tables: TablesOf) -> None:
    found = tables("main", group="classic-three")
    got = [
        (
            row["event"],
            row["generation"],
            *("".join(one["client_id"] for one in row[name]) for name in ("joined", "left")),
        )
        for row in publish.rows(found.rebalances, "rebalances")
    ]
    assert got == [
        ("created", 0, "", ""),
        ("rebalanced", 1, "a", ""),
        ("rebalanced", 2, "b", ""),
        ("rebalanced", 3, "c", ""),
        ("rebalanced", 4, "", "b"),
        ("rebalanced", 5, "", "a"),
        ("emptied", 6, "", "c"),
    ]


def test_damage_is_a_table_too(tables: TablesOf) -> None:
    rows = publish.rows(tables("unclean-torn").damage, "damage")
    assert [(row["log_partition"], row["position"], row["problem"]) for row in rows] == [(2, 8838, "incomplete batch")]


def test_parquet_holds_the_table(tables: TablesOf, tmp_path: Path) -> None:
    frame = tables("tv1").lag
    publish.write_parquet(frame, tmp_path / "out", "lag")
    written = publish.write_parquet(frame, tmp_path / "out", "lag")
    assert publish.sorted_table(pq.read_table(written), "lag").to_pylist() == publish.rows(frame, "lag")


@pytest.mark.parametrize("run", ["main", "tv1", "main-4.4.0", "expiry-4.4.0"])
def test_transactions_end_as_the_broker_reports(tables: TablesOf, recorded: Callable[[str], Path], run: str) -> None:
    last = {row["transactional_id"]: row for row in publish.rows(tables(run).transactions, "transactions")}
    told = {name: one for name, one in reported(recorded(run))["transactions"].items() if one["state"] != "Empty"}
    assert told
    for name, one in told.items():
        row = last[name]
        assert (row["state"], row["producer_id"], row["timeout_ms"], row["start_ms"]) == (
            one["state"],
            one["producer_id"],
            one["timeout_ms"],
            one["start_ms"],
        )
        if run in NEWER and row["producer_epoch"] is not None:
            # The end of a transaction of version 2 raises the epoch for the next one.
            is_raised = row["transaction_version"] >= 2 and row["completed_at_ms"] is not None
            assert row["producer_epoch"] + is_raised == one["producer_epoch"]
        if one["partitions"]:
            assert sorted(f"{at['topic']}-{at['partition']}" for at in row["partitions"]) == sorted(one["partitions"])


def test_an_open_transaction_holds_its_partitions(tables: TablesOf) -> None:
    rows = publish.rows(tables("main").open_transactions, "open_transactions")
    assert [(row["transactional_id"], row["topic"], row["partition"], row["state"]) for row in rows] == [
        ("hold-open", "__consumer_offsets", 2, "Ongoing"),
        ("hold-open", "d-txn", 0, "Ongoing"),
        ("hold-open", "d-txn", 1, "Ongoing"),
    ]


@pytest.mark.parametrize("run", ["main", "main-4.4.0", "expiry-4.4.0"])
def test_members_that_were_there_when_the_broker_stopped(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    rows = publish.rows(tables(run).members, "members")
    there: dict[str, set[str]] = {}
    for row in rows:
        if row["until_ms"] is None:
            there.setdefault(row["group"], set()).add(row["member_id"])
    groups = reported(recorded(run))["groups"]
    told = {
        name: {member["member_id"] for member in group["members"]}
        for name, group in groups.items()
        if group.get("members")
    }
    assert told
    assert there == told


def test_the_past_is_told_as_it_was(engine: Any, recorded: Callable[[str], Path], tables: TablesOf) -> None:
    """Every commit of a plain group was the truth until the next one."""
    commits = publish.rows(tables("main", group="classic-three").reading.offset_commits, "offset_commits")
    middle = commits[len(commits) // 2]
    past = Tables(Reading(engine, recorded("main") / "logs", group="classic-three", as_of_ms=middle["visible_at_ms"]))
    expected: dict[tuple[str, str], int] = {}
    for row in commits:
        if row["visible_at_ms"] <= middle["visible_at_ms"]:
            expected[place(row)] = row["offset"]
    assert {key: told[0] for key, told in offsets_of(past).items()} == expected
    assert all(row["lag"] is not None for row in publish.rows(past.lag, "lag"))


@pytest.mark.parametrize("run", ["main", "main-4.4.0"])
def test_time_lag_of_what_is_read_is_nothing(tables: TablesOf, run: str) -> None:
    rows = publish.rows(tables(run).time_lag, "time_lag")
    assert any(row["time_lag_ms"] for row in rows)
    for row in rows:
        if row["lag"] == 0:
            assert (row["time_lag_ms"], row["next_produced_at_ms"]) == (0, None)
        if row["lag"] is None:
            assert row["time_lag_ms"] is None


@pytest.mark.parametrize("run", ["main", *NEWER])
def test_share_groups_stand_where_the_broker_reports(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    told = {
        (name, place): (one["start_offset"], one["leader_epoch"], one["lag"]) if one else NOT_READ
        for name, group in reported(recorded(run))["groups"].items()
        for place, one in (group.get("share_offsets") or {}).items()
    }
    rows = publish.rows(tables(run).share_state, "share_state")
    assert told
    assert {place(row): (row["start_offset"], row["leader_epoch"], row["lag"]) for row in rows} == told


def test_rebalances_of_a_group_that_its_coordinator_assigns(tables: TablesOf) -> None:
    rows = [row for row in publish.rows(tables("main").rebalances, "rebalances") if row["group"] == "consumer-uniform"]
    got = [(row["generation"], row["event"], "".join(row["why"]), row["moved"], row["duration_ms"]) for row in rows]
    assert got == [
        (1, "rebalanced", "joined", 0, 0),
        (2, "rebalanced", "joined", 2, 511),
        (3, "rebalanced", "joined", 0, 434),
        (4, "rebalanced", "left", 2, 470),
        (5, "rebalanced", "left", 3, 497),
        (6, "emptied", "left", None, 0),
    ]


def test_a_group_that_is_converted_keeps_its_members(tables: TablesOf) -> None:
    rows = [row for row in publish.rows(tables("main").rebalances, "rebalances") if row["group"] == "hold-mixed"]
    got = [
        (row["group_type"], row["event"], [one["client_id"] for one in row["joined"]], len(row["left"])) for row in rows
    ]
    assert got == [
        ("classic", "created", [], 0),
        ("classic", "rebalanced", ["hold-u1"], 0),
        ("classic", "converted", [], 0),
        ("consumer", "rebalanced", [], 0),
        ("consumer", "rebalanced", ["hold-u2"], 0),
    ]


@pytest.mark.parametrize("run", ["main", "main-4.4.0"])
def test_nothing_hangs_but_what_is_open_holds_readers_back(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    rows = publish.rows(tables(run).blocking_transactions, "blocking_transactions")
    assert {row["verdict"] for row in rows} == {"ongoing"}
    topics = reported(recorded(run))["topics"]
    held = {
        (name, int(number)): one["last_stable_offset"]
        for name, topic in topics.items()
        for number, one in topic["partitions"].items()
        if one["last_stable_offset"] < one["end_offset"]
    }
    # The first one of a partition holds its readers back.
    rows.sort(key=lambda row: row["start_offset"], reverse=True)
    assert {(row["topic"], row["partition"]): row["start_offset"] for row in rows} == held


def test_tasks_of_streams_groups(tables: TablesOf, recorded: Callable[[str], Path]) -> None:
    """Those of living members are what the broker said; a second instance took half of them for a while."""
    rows = [row for row in publish.rows(tables("main").assignments, "assignments") if row["group_type"] == "streams"]
    assert {row["role"] for row in rows} == {"active"}
    told = {
        (name, member["member_id"]): member["assignment"]
        for name, group in reported(recorded("main"))["groups"].items()
        if group["type"] == "Streams"
        for member in group["members"]
    }
    assert told
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["until_ms"] is None:
            task = f"{row['subtopology']}_{row['partition']}"
            found.setdefault((row["group"], row["member_id"]), []).append(task)
    listed = {
        key: f"(activeTasks={','.join(sorted(tasks))}, standbyTasks=, warmupTasks=)" for key, tasks in found.items()
    }
    assert listed == told
    stays: dict[str, list[str]] = {}
    for row in sorted((one for one in rows if one["group"] == "streams-app"), key=lambda one: one["since_ms"]):
        stays.setdefault(f"{row['subtopology']}_{row['partition']}", []).append(row["member_id"][:2])
    first, second = "2R", "pE"
    assert stays == {"0_0": [first], "1_0": [first], "0_1": [first, second, first], "1_1": [first, second, first]}
