"""The pipeline over logs of Apache Kafka gives what the broker itself reported."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables

pytestmark = pytest.mark.spark

TablesOf = Callable[..., Tables]
Offsets = dict[tuple[str, str], tuple[int, int, str]]


@pytest.fixture(scope="module")
def tables(spark: Any, recorded: Callable[[str], Path]) -> TablesOf:
    """The tables of a run; what is read once is kept."""
    return cache(lambda run, group=None: Tables(Reading(spark, recorded(run) / "logs", group=group)))


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


@pytest.mark.parametrize("run", ["main", "expiry", "legacy", "tv1"])
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


@pytest.mark.parametrize("run", ["main", "expiry", "tv1", "unclean-torn"])
def test_lag_is_measured_to_the_end_that_the_broker_reports(
    tables: TablesOf, recorded: Callable[[str], Path], run: str
) -> None:
    topics = reported(recorded(run))["topics"]
    for row in publish.rows(tables(run).lag, "lag"):
        if row["topic"] not in topics:
            assert (row["end_offset"], row["lag"]) == (None, None)
            continue
        assert row["end_offset"] == topics[row["topic"]]["partitions"][str(row["partition"])]["end_offset"]
        assert row["lag"] == max(row["end_offset"] - row["offset"], 0)


def test_lag_over_time_ends_at_the_lag_of_now(tables: TablesOf) -> None:
    found = tables("main")
    now: dict[str, int] = {}
    for row in publish.rows(found.lag, "lag"):
        if row["lag"] is not None:
            now[row["group"]] = now.get(row["group"], 0) + row["lag"]
    last = {row["group"]: row["lag"] for row in publish.rows(found.lag_picture, "lag_picture")}
    assert {group: lag for group, lag in last.items() if group in now} == now
    assert all(last[group] == 0 for group in set(last) - set(now))


def test_one_group_alone(tables: TablesOf, recorded: Callable[[str], Path]) -> None:
    found = tables("main", group="tx-group-that-is-not")
    assert publish.rows(found.lag, "lag") == []
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


def test_parquet_holds_the_table(spark: Any, tables: TablesOf, tmp_path: Path) -> None:
    frame = tables("tv1").lag
    publish.write_parquet(frame, tmp_path / "out", "lag")
    written = publish.write_parquet(frame, tmp_path / "out", "lag")
    assert publish.rows(spark.read.parquet(written), "lag") == publish.rows(frame, "lag")
