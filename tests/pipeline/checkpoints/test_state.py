"""What a query is doing, and what is said of it: verdicts, `queries`, the page."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.pipeline.checkpoints.checkpoint import Checkpoint as Read
from kohort.pipeline.checkpoints.retention import Moved, time_left_ms
from kohort.pipeline.checkpoints.state import RUNNING, STOPPED, STUCK, UNKNOWN, WAITING, state_of
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint, write_topic

SECOND, HOUR = 1_000, 3_600_000
AT_MS = BEGAN_MS + 10 * HOUR


def row(*, produced_ms: int | None, lag: int | None = 7) -> dict[str, Any]:
    return {"next_produced_at_ms": produced_ms, "lag": lag}


def between(finished_ms: int, *, every_ms: int = 10 * SECOND) -> Read:
    """A query that has finished its last batch, and began the last ones at an interval."""
    began = tuple(finished_ms - number * every_ms for number in reversed(range(5)))
    return Read("g", "c", batch=4, finished_ms=finished_ms, began_ms=began, took_ms=(2_000,) * 5)


def within(since_ms: int | None, *, took_ms: tuple[int, ...] = (2_000, 3_000)) -> Read:
    return Read("g", "c", batch=4, finished_ms=0, open_batch=5, open_since_ms=since_ms, took_ms=took_ms)


@pytest.mark.parametrize(
    ("query", "produced_ms", "state"),
    [
        # Records wait, and it should have begun a batch.
        (between(AT_MS - HOUR), AT_MS - HOUR, STOPPED),
        # Everything was read: how long it is silent tells nothing.
        (between(AT_MS - HOUR), None, WAITING),
        # A record came a moment ago, after an hour without any.
        (between(AT_MS - HOUR), AT_MS - 30 * SECOND, RUNNING),
        # The record is old, and the last batch left it (a limit of records): it waits since that batch.
        (between(AT_MS - 30 * SECOND), AT_MS - HOUR, RUNNING),
        (between(AT_MS - 61 * SECOND), AT_MS - HOUR, STOPPED),
        # Its trigger fires each hour.
        (between(AT_MS - 2 * HOUR, every_ms=HOUR), AT_MS - 2 * HOUR, RUNNING),
        (between(AT_MS - 4 * HOUR, every_ms=HOUR), AT_MS - 4 * HOUR, STOPPED),
        # A batch is in progress, whatever waits.
        (within(AT_MS - 50 * SECOND), AT_MS - HOUR, RUNNING),
        (within(AT_MS - 61 * SECOND), AT_MS - HOUR, STUCK),
        (within(AT_MS - 61 * SECOND, took_ms=(60_000,)), None, RUNNING),
        (within(AT_MS - 599 * SECOND, took_ms=()), None, RUNNING),
        (within(AT_MS - 601 * SECOND, took_ms=()), None, STUCK),
        (within(None), None, UNKNOWN),
    ],
)
def test_states(query: Read, produced_ms: int | None, state: str) -> None:
    assert state_of(query, [row(produced_ms=None, lag=0), row(produced_ms=produced_ms)], AT_MS).name == state


def test_nothing_is_known_of_a_query_without_logs() -> None:
    assert state_of(between(AT_MS), [row(produced_ms=None, lag=None)], AT_MS).name == UNKNOWN
    assert state_of(Read("g", "c"), [], AT_MS).name == UNKNOWN


def test_the_reasons() -> None:
    assert state_of(between(AT_MS - HOUR), [row(produced_ms=1)], AT_MS).why == (
        "records have waited for 1.0 h and no batch began; the longest time between two batches was 10.0 s"
    )
    assert state_of(within(AT_MS - HOUR), [], AT_MS).why == (
        "batch 5 began 1.0 h ago, and the longest of the last took 3.0 s: it hangs, or the query ended in it"
    )


@pytest.mark.parametrize(
    ("produced_ms", "left_ms"),
    [
        # It stands at a record of five hours ago, and records live for seven: two hours are left.
        (AT_MS - 5 * HOUR, 2 * HOUR),
        # It went through half an hour of records in an hour: the margin of two and a half hours shrinks half as fast.
        (AT_MS - 4 * HOUR - HOUR // 2, 5 * HOUR),
        # It keeps up.
        (AT_MS - 4 * HOUR, None),
        (AT_MS, None),
    ],
)
def test_retention(produced_ms: int, left_ms: int | None) -> None:
    moved = Moved(AT_MS - HOUR, AT_MS - 5 * HOUR, produced_ms)
    assert time_left_ms(moved, 7 * HOUR, AT_MS) == left_ms


def test_retention_that_has_come() -> None:
    assert time_left_ms(Moved(0, 0, AT_MS - 2 * HOUR), HOUR, AT_MS) == 0


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A query of each state, at a topic with a record each second for ten minutes."""
    write_topic(tmp_path / "logs", "orders", (600,))
    for name, ends, last_ms in (
        ("done", (580, 600), None),
        ("stopped", (10, 20), None),
        ("stuck", (10, 20, 30), 30 * SECOND),
        ("busy", (10, 20, 590), 590 * SECOND),
    ):
        query = Checkpoint(tmp_path / "lake" / name)
        for number, end in enumerate(ends):
            is_open = last_ms is not None and number == len(ends) - 1
            at_ms = BEGAN_MS + end * SECOND
            query.batch(number, {"orders": {0: end}}, at_ms=at_ms, finished_ms=None if is_open else at_ms + SECOND)
    return tmp_path


def answer(lake: Path, *arguments: str, code: int = 0) -> Any:
    command = [
        arguments[0],
        str(lake / "logs"),
        "--checkpoint",
        str(lake / "lake"),
        *arguments[1:],
        "--engine",
        "local",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, done.output
    return done.stdout


def test_queries(lake: Path) -> None:
    rows = {row["group"]: row for row in json.loads(answer(lake, "queries", "--json"))}
    assert {name: row["state"] for name, row in rows.items()} == {
        "busy": RUNNING,
        "done": WAITING,
        "stopped": STOPPED,
        "stuck": STUCK,
    }
    stuck = rows["stuck"]
    assert (stuck["batch"], stuck["open_batch"], stuck["replayed"], stuck["lag"]) == (1, 2, 10, 580)
    assert stuck["settings"] == ["spark.sql.shuffle.partitions=200"]
    assert "stuck in a batch" in answer(lake, "queries")


def test_verdicts(lake: Path) -> None:
    rows = {row["group"]: row for row in json.loads(answer(lake, "status", "--json"))}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "busy": "OK",
        "done": "OK",
        "stopped": "STOP",
        "stuck": "STOP",
    }
    assert rows["stopped"]["why"].startswith("stopped: records have waited for")
    assert rows["stuck"]["why"].startswith("stuck in a batch: batch 2 began")
    answer(lake, "status", "--fail-on", "STOP", code=1)


def test_records_that_were_deleted_unread(lake: Path) -> None:
    (lake / "logs" / "orders-0" / f"{0:020}.log").unlink()
    write_topic(lake / "more", "orders", (600,), start=25)
    (lake / "more" / "orders-0" / f"{25:020}.log").rename(lake / "logs" / "orders-0" / f"{25:020}.log")
    rows = {row["group"]: row for row in json.loads(answer(lake, "status", "--json"))}
    assert (rows["stopped"]["verdict"], rows["busy"]["verdict"]) == ("LOST", "LOST")
    assert rows["done"]["verdict"] == "OK"
    lost = {row["group"]: row["records_lost"] for row in json.loads(answer(lake, "queries", "--json"))}
    assert lost == {"busy": 5, "done": 0, "stopped": 5, "stuck": 5}


def test_a_topic_that_was_created_again(lake: Path) -> None:
    """The checkpoint names the topic, not its id: an offset beyond the end of the new log tells it."""
    shutil.rmtree(lake / "logs" / "orders-0")
    write_topic(lake / "logs", "orders", (15,))
    rows = {row["group"]: row for row in json.loads(answer(lake, "status", "--json"))}
    assert rows["done"]["verdict"] == "LOST"
    assert rows["done"]["why"] == "the committed offset 600 is beyond the log end offset 15"
    assert rows["stuck"]["verdict"] == "LOST"


def test_a_topic_that_was_deleted(lake: Path) -> None:
    shutil.rmtree(lake / "logs" / "orders-0")
    rows = {row["group"]: row for row in json.loads(answer(lake, "status", "--json"))}
    assert {row["verdict"] for row in rows.values()} == {"UNKNOWN"}
    states = {row["group"]: row["state"] for row in json.loads(answer(lake, "queries", "--json"))}
    assert states["done"] == states["stopped"] == UNKNOWN


def test_the_page(lake: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    answer(lake, "report", "--report", str(page))
    text = page.read_text()
    assert "look at batch 2 in Spark's UI" in text.replace("&#x27;", "'")
    assert "start the query again: its checkpoint continues after batch 1" in text
    assert "<h3>Spark query</h3>" in text
    assert "spark query, 580 records behind in 1 partition" in text


def test_one_query(lake: Path) -> None:
    assert [row["group"] for row in json.loads(answer(lake, "lag", "--group", "stuck", "--json"))] == ["stuck"]
    (row,) = json.loads(answer(lake, "queries", "--group", "stuck", "--json"))
    assert row["group"] == "stuck"
    answer(lake, "lag", "--group", "nobody", code=2)
