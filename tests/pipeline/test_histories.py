"""The tables of generated logs equal the generated truth: many histories in one directory, each with its own log partitions."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.burrow.status import burrow_status
from kohort_lab.history import History
from kohort_lab.history.expected_tables import ExpectedTables
from tests.conftest import LONG, NIGHTLY

pytestmark = NIGHTLY

Row = dict[str, Any]
Told = tuple[Tables, list[History]]

SEEDS = 60 if LONG else 8
WHOLE = (
    "offset_commits",
    "offsets",
    "lag",
    "time_lag",
    "lag_over_time",
    "time_lag_over_time",
    "commit_frequency",
    "rebalances",
    "members",
    "assignments",
    "partition_flapping",
    "time_without_owner",
    "share_state",
    "transactions",
    "open_transactions",
    "transaction_statistics",
    "blocking_transactions",
    "damage",
)
CLEANED = (
    "offset_commits",
    "offsets",
    "lag",
    "time_lag",
    "lag_over_time",
    "time_lag_over_time",
    "commit_frequency",
    "share_state",
    "open_transactions",
    "blocking_transactions",
    "damage",
)
"""What is exact whatever was cleaned."""
CLEANED_SHORT = (
    "offset_commits",
    "offsets",
    "lag_over_time",
    "time_lag_over_time",
    "share_state",
    "blocking_transactions",
    "damage",
)
"""Of each kind of log one; the others are made of these."""


def tables(engine: Any, directory: Path, histories: list[History]) -> Told:
    for history in histories:
        history.write(directory, torn=history.seed % 3 == 0)
    return Tables(Reading(engine, directory)), histories


@pytest.fixture(scope="module")
def whole(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    histories = [History(seed, partition=at) for at, seed in enumerate(range(SEEDS))]
    return tables(engine, tmp_path_factory.mktemp("whole"), histories)


@pytest.fixture(scope="module")
def cleaned(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Cleaned at any moment, with and without tombstones, the topics' logs cut."""
    histories = [History(seed, partition=at) for at, seed in enumerate(range(1000, 1000 + SEEDS))]
    for history in histories:
        history.clean(share=history.world.rng.random(), drop_tombstones=history.seed % 2 == 0)
        history.expire_data(share=history.world.rng.random())
    return tables(engine, tmp_path_factory.mktemp("cleaned"), histories)


def rows_of(told: Told, name: str) -> tuple[list[Row], list[Row]]:
    """What the table holds and what is true, of the columns that the truth names, in one order."""
    found, histories = told
    at_ms = found.reading.at_ms
    expected = [row for history in histories for row in getattr(ExpectedTables(history, at_ms), name)()]
    columns = sorted(expected[0]) if expected else []
    rows = publish.rows(getattr(found, name), name)
    return in_order(rows, columns), in_order(expected, columns)


def in_order(rows: Iterable[Row], columns: list[str]) -> list[Row]:
    """Members of a group, and partitions of a transaction, in an order of their own."""
    plain = [{name: _sorted(row[name]) for name in columns} for row in rows]
    return sorted(plain, key=lambda row: [(row[name] is not None, str(row[name])) for name in columns])


def _sorted(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value


def same(got: list[Row], expected: list[Row]) -> None:
    """Say the first difference, not all of them."""
    surplus = [row for row in got if row not in expected]
    missing = [row for row in expected if row not in got]
    assert (surplus[:1], missing[:1]) == ([], [])
    assert len(got) == len(expected)


@pytest.mark.parametrize("name", WHOLE)
def test_a_table_holds_what_was_true(whole: Told, name: str) -> None:
    got, expected = rows_of(whole, name)
    assert expected
    same(got, expected)


@pytest.mark.parametrize("name", CLEANED if LONG else CLEANED_SHORT)
def test_cleaning_changes_no_truth(cleaned: Told, name: str) -> None:
    got, expected = rows_of(cleaned, name)
    assert expected
    same(got, expected)


def test_after_cleaning_the_newest_changes_are_told_as_they_were(cleaned: Told) -> None:
    """Of each group the first row that is left may not know what came before; two rows later all is known."""
    found, histories = cleaned
    told: dict[str, dict[int, Row]] = {}
    for row in publish.rows(found.rebalances, "rebalances"):
        told.setdefault(row["group"], {})[row["log_offset"]] = row
    compared = 0
    for group in (group for history in histories for group in history.groups):
        clean_until = group.world.log("__consumer_offsets").clean_until
        lived = [row for row in group.changes if row["log_offset"] >= clean_until]
        for row in lived[2:]:
            same([_in_columns(told[group.group][row["log_offset"]], row)], [_in_columns(row, row)])
            compared += 1
    assert compared


def test_after_cleaning_members_and_owners_are_those_of_now(cleaned: Told) -> None:
    found, histories = cleaned
    for name, keys in (
        ("members", ("group", "member_id")),
        ("assignments", ("group", "member_id", "topic", "partition")),
    ):
        rows = publish.rows(getattr(found, name), name)
        there = {tuple(row[key] for key in keys) for row in rows if row["until_ms"] is None}
        truth = [row for history in histories for row in getattr(ExpectedTables(history, found.reading.at_ms), name)()]
        assert there == {tuple(row[key] for key in keys) for row in truth if row["until_ms"] is None}


def test_after_cleaning_the_last_transaction_of_an_id_is_told(cleaned: Told) -> None:
    found, histories = cleaned
    last = {row["transactional_id"]: row for row in publish.rows(found.transactions, "transactions")}
    for producer in (producer for history in histories for producer in history.producers if producer.transactions):
        row, lived = last.get(producer.transactional_id), producer.transactions[-1]
        if producer.state == "Empty" and row is None:
            continue  # only its last InitProducerId is left
        assert row is not None
        assert {name: row[name] for name in ("state", "outcome", "start_ms")} == {
            name: lived[name] for name in ("state", "outcome", "start_ms")
        }


def test_statuses_over_time_are_those_of_every_instant(engine: Any, whole: Told) -> None:
    found, histories = whole
    history = publish.rows(found.status_history, "status_history")
    assert {"OK", "WARN", "STOP", "STALL", "REWIND"} <= {row["status"] for row in history}
    # What the table was made for; in the logs of topics time may have gone on.
    last_ms = found.reading.at_ms
    first_ms = min(row["since_ms"] for row in history)
    between = ((first_ms + last_ms) // 2, (first_ms + 3 * last_ms) // 4)
    for at_ms in (first_ms, *between, last_ms) if LONG else (between[0], last_ms):
        commits, batches = found.reading.offset_commits, found.reading.batches(_topics(histories))
        now = publish.rows(burrow_status(commits, batches, at_ms=at_ms), "status")
        covering = [row for row in history if row["since_ms"] <= at_ms < (row["until_ms"] or at_ms + 1)]
        assert [_placed(row) for row in covering] == [_placed(row) for row in now]


def _topics(histories: list[History]) -> list[str]:
    return sorted(topic for history in histories for topic in history.world.topics)


def _placed(row: Row) -> tuple[str, str, int, str]:
    return row["group"], row["topic"], row["partition"], row["status"]


def _in_columns(row: Row, like: Row) -> Row:
    return {name: _sorted(row[name]) for name in like if name != "moved"}
