"""Checkpoints as groups in the tables of lag."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.pipeline.checkpoints.checkpoint import Extent
from kohort.pipeline.jobs.local import local_table
from tests.pipeline.checkpoints.written import BEGAN_MS, QUERY_ID, Checkpoint, write_topic
from tests.pipeline.stored import load, new_store

PLACE = ("topic", "partition", "offset", "lag")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two partitions with a record each second, of a cluster without a consumer group."""
    write_topic(tmp_path / "logs", "orders", (60, 40))
    return tmp_path / "logs"


@pytest.fixture
def billing(tmp_path: Path) -> Checkpoint:
    """A query with three finished batches of ten seconds, and one that it has begun."""
    found = Checkpoint(tmp_path / "billing")
    found.start({"orders": {0: 0, 1: 5}})
    for number, end in enumerate((10, 20, 30)):
        at_ms = BEGAN_MS + (end + 1) * 1_000
        found.batch(number, {"orders": {0: end, 1: 8}}, at_ms=at_ms, finished_ms=at_ms + 2_500)
    found.batch(3, {"orders": {0: 42, 1: 9}}, at_ms=BEGAN_MS + 43_000, finished_ms=None)
    return found


def lag_of(logs: Path, *named: str, name: str = "lag", **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = local_table(logs, name, checkpoints=named, **options).to_pylist()
    return found


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in PLACE) for row in rows]


@pytest.mark.parametrize("name", ["lag", "time_lag", "lag_over_time", "status", "spark_queries"])
def test_queries_over_a_store_are_those_over_a_directory(logs: Path, billing: Checkpoint, name: str) -> None:
    with new_store() as url:
        load(url, logs)
        named = f"billing={billing.path}"
        found = [local_table(source, name, checkpoints=[named]).to_pylist() for source in (url, logs)]
    assert found[0] == found[1] != []


def test_lag_counts_from_the_last_finished_batch(logs: Path, billing: Checkpoint) -> None:
    rows = lag_of(logs, f"billing={billing.path}")
    assert told(rows) == [("orders", 0, 30, 30), ("orders", 1, 8, 32)]
    (first, _) = rows
    assert (first["group"], first["metadata"]) == ("billing", f"spark query {QUERY_ID}")
    assert first["commit_timestamp_ms"] == BEGAN_MS + 33_500


def test_before_the_first_batch_lag_counts_from_the_start(logs: Path, tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "new")
    query.start({"orders": {0: 0, 1: 5}})
    query.batch(0, {"orders": {0: 40, 1: 40}}, at_ms=BEGAN_MS, finished_ms=None)
    # Offsets without a finished batch are no commit: the position is known all the same.
    assert told(lag_of(logs, str(query.path))) == [("orders", 0, 0, 60), ("orders", 1, 5, 35)]


def test_lag_over_time_has_all_batches(logs: Path, billing: Checkpoint) -> None:
    rows = lag_of(logs, f"billing={billing.path}", name="lag_over_time")
    at = {row["timestamp_ms"]: row["lag"] for row in rows}
    for end in (10, 20, 30):
        after_ms = BEGAN_MS + (end + 1) * 1_000 + 2_500
        # Each second brings a record to both partitions: offset 0 at the begin.
        appended = (after_ms - BEGAN_MS) // 1_000 + 1
        assert at[after_ms] == appended - end + min(appended, 40) - 8


def test_the_past(logs: Path, billing: Checkpoint) -> None:
    rows = lag_of(logs, f"billing={billing.path}", as_of_ms=BEGAN_MS + 24_000)
    assert told(rows) == [("orders", 0, 20, 5), ("orders", 1, 8, 17)]


def test_a_copy_has_the_times_of_its_batches(logs: Path, billing: Checkpoint) -> None:
    for number in range(3):
        billing.write(f"commits/{number}", "v1\n{}", BEGAN_MS + 86_400_000)
    times = {row["timestamp_ms"] for row in lag_of(logs, str(billing.path), name="lag_over_time")}
    assert {BEGAN_MS + at for at in (21_000, 31_000, 43_000)} <= times
    assert max(times) <= BEGAN_MS + 60_000


def test_a_directory_of_checkpoints(logs: Path, billing: Checkpoint) -> None:
    other = Checkpoint(billing.path.parent / "shipping")
    # It was planned with both partitions there, so it reads one of them by choice.
    other.batch(0, {"orders": {0: 60}}, at_ms=BEGAN_MS + 60_000, finished_ms=BEGAN_MS + 61_000)
    rows = lag_of(logs, str(billing.path.parent))
    assert [(row["group"], row["lag"]) for row in rows] == [("billing", 30), ("billing", 32), ("shipping", 0)]
    assert {row["group"] for row in lag_of(logs, f"lake={billing.path.parent}")} == {"lake/billing", "lake/shipping"}


def test_a_partition_that_was_added_is_read_from_its_begin(logs: Path, billing: Checkpoint) -> None:
    write_topic(logs, "refunds", (5, 5))
    write_topic(logs, "more", (0, 7), at_ms=BEGAN_MS + 50_000)
    (logs / "more-1").rename(logs / "orders-2")
    rows = lag_of(logs, f"billing={billing.path}")
    assert told(rows) == [("orders", 0, 30, 30), ("orders", 1, 8, 32), ("orders", 2, 0, 7)]


def test_a_partition_before_those_that_a_query_chose_is_not_added(logs: Path, tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "chosen")
    query.batch(0, {"orders": {1: 8}}, at_ms=BEGAN_MS, finished_ms=BEGAN_MS + 900)
    assert told(lag_of(logs, str(query.path))) == [("orders", 1, 8, 32)]


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--engine", "local"])


def test_the_command(logs: Path, billing: Checkpoint) -> None:
    done = command("lag", str(logs), "--checkpoint", f"billing={billing.path}", "--json")
    assert done.exit_code == 0, done.output
    assert told(json.loads(done.stdout)) == [("orders", 0, 30, 30), ("orders", 1, 8, 32)]


def test_wrong_checkpoints_are_sentences(
    logs: Path, billing: Checkpoint, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for checkpoint, sentence in (
        (f"billing={tmp_path / 'nowhere'}", "there is no such directory"),
        (f"billing={logs}", "it has neither offsets nor metadata"),
        ("billing=", "is written NAME=DIR"),
    ):
        done = command("lag", str(logs), "--checkpoint", checkpoint)
        assert (done.exit_code, sentence in capfd.readouterr().err) == (2, True)
    twice = [word for _ in range(2) for word in ("--checkpoint", str(billing.path))]
    done = command("lag", str(logs), *twice)
    assert (done.exit_code, "both named 'billing'" in capfd.readouterr().err) == (2, True)


@pytest.mark.parametrize("name", ["lag", "time_lag", "spark_queries", "status"])
def test_a_table_reads_as_many_batches_as_it_needs(logs: Path, billing: Checkpoint, name: str) -> None:
    for number in range(120):
        at_ms = BEGAN_MS + 60_000 + number * number * 1_000
        place = {"orders": {0: 30, 1: 20 if number < 15 else 25}}
        billing.batch(number + 3, place, at_ms=at_ms, finished_ms=at_ms + 500 + number)
    named, whole = f"billing={billing.path}", {"extent": Extent.ALL, "is_latest_only": False}
    found = lag_of(logs, named, name=name)
    assert found == lag_of(logs, named, name=name, **whole)
    assert found
