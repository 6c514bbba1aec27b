"""
Small logs written by hand, with the expected lag worked out on paper: cases that break tools that measure lag.

Most cases lie in one directory, a topic each. It is read twice: the data directory itself, and the tables that a run published.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.run import Run, Source
from kohort.pipeline.runs.state import RunRequest
from kohort.wire.compression import Codec
from kohort_lab.history.logs import ABORT, Log, Record
from kohort_lab.history.values import offset_commit
from kohort_lab.history.world import START_MS

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
END_MS = START_MS + HOUR_MS
"""The last record of the shared directory, so the instant of its tables."""
TABLES = ("lag", "time_lag", "status")
LATER = ("time_lag", "blocking_transactions")

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def run(spark: Any, source: Path, out: Path, tables: tuple[str, ...]) -> None:
    Run(Source(str(source)), out, RunRequest(tables=tables), lambda _: nullcontext(spark)).once()


def write(directory: Path, logs: Iterable[Log], *, batches_per_segment: int = 100) -> None:
    for log in logs:
        log.write(directory, batches_per_segment=batches_per_segment)


def offsets(*commits: tuple[str, str, int]) -> Log:
    """The log of a coordinator: each group commits once at `START_MS` and never again."""
    log = Log(CONSUMER_OFFSETS, 0)
    log.append([offset_commit(group, topic, 0, offset, at_ms=START_MS) for group, topic, offset in commits], START_MS)
    return log


def produced(topic: str, *at_ms: int) -> Log:
    """A log with one record at each of these times."""
    log = Log(topic, 0)
    for moment in at_ms:
        log.append([Record(None, b"x")], moment)
    return log


def aborted(topic: str) -> Log:
    """A record, a transaction of two records and its ABORT marker."""
    log = produced(topic, START_MS - 60_000)
    log.append([Record(None, b"x")] * 2, START_MS - 50_000, producer=(7, 0), transactional=True)
    log.mark(ABORT, START_MS - 40_000, producer=(7, 0))
    return log


def write_compacted(directory: Path, topic: str) -> None:
    """A compacted log: its first batches were removed, its first segment keeps base offset 0."""
    log = Log(topic, 0)
    for at in range(4):
        log.append([Record(b"k", b"x")], START_MS - 4_000 + at * 1_000)
    log.batches = log.batches[2:]
    log.write(directory, batches_per_segment=100)
    (directory / f"{topic}-0" / f"{2:020}.log").rename(directory / f"{topic}-0" / f"{0:020}.log")


def columns(rows: list[Row], topic: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows if row["topic"] == topic]


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """The tables of the shared directory, as a run published them."""
    logs, out = tmp_path_factory.mktemp("edges") / "logs", tmp_path_factory.mktemp("edges-out")
    open_for_9_s = aborted("after-abort")
    open_for_9_s.append(
        [Record(None, b"y")] * 3, START_MS, producer=(7, 0), transactional=True, codec=Codec.ZSTD, open_ms=9_000
    )
    commits = offsets(
        ("dead", "goes-on", 1),
        ("calm", "calm", 1),
        ("ahead", "future", 0),
        *(("behind", "emptied", 80), ("there", "emptied", 100), ("beyond", "emptied", 120)),
        ("one", "single", 0),
        *(("data", "aborted", 1), ("marker", "aborted", 3), ("begin", "after-abort", 1), ("inside", "after-abort", 5)),
        ("keyed", "compacted", 0),
    )
    topics = [
        produced("goes-on", START_MS - 5, START_MS + 60_000, END_MS),
        produced("calm", START_MS, START_MS + 10, START_MS + 70),
        produced("future", int(time.time() * 1000) + 24 * HOUR_MS),
        Log("emptied", 0, next_offset=100),
        produced("single", START_MS - 7),
        aborted("aborted"),
        open_for_9_s,
    ]
    write(logs, [commits, *topics])
    write_compacted(logs, "compacted")
    run(spark, logs, out, TABLES)
    published_rows = {name: published.rows(out, name) for name in TABLES}
    read = Tables(Reading(spark, logs))
    rows = {name: publish.rows(getattr(read, name), name) for name in TABLES}
    # A run keeps the headers of batches only, so it knows no record inside of one.
    (inside,) = (row for row in published_rows["time_lag"] if row["is_exact"] is False)
    (exact,) = (row for row in rows["time_lag"] if row["group"] == inside["group"])
    assert (inside["group"], exact["is_exact"]) == ("inside", True)
    assert exact["next_produced_at_ms"] <= inside["next_produced_at_ms"]
    rows["time_lag"][rows["time_lag"].index(exact)] = inside
    assert rows == published_rows
    yield published_rows
    spark.catalog.clearCache()


def test_the_only_group_has_died_and_its_topic_goes_on(tables: Rows) -> None:
    """The coordinator's log ends with the last commit; records arrive for another hour."""
    assert columns(tables["lag"], "goes-on", "lag") == [(2,)]
    expected = [(START_MS + 60_000, HOUR_MS - 60_000)]
    assert columns(tables["time_lag"], "goes-on", "next_produced_at_ms", "time_lag_ms") == expected
    assert columns(tables["status"], "goes-on", "status", "lag") == [("STOP", 2)]


def test_a_producer_whose_clock_is_far_ahead_moves_no_time(tables: Rows) -> None:
    names = ("group", "lag", "time_lag_ms")
    assert columns(tables["time_lag"], "calm", *names) == [("calm", 2, HOUR_MS - 10)]
    assert columns(tables["time_lag"], "future", *names) == [("ahead", 1, 0)]


def test_a_log_that_retention_has_emptied(tables: Rows) -> None:
    """No record is left to wait for; offsets that were not read in time are lost."""
    names = ("group", "end_offset", "lag", "next_produced_at_ms", "time_lag_ms", "records_lost", "is_beyond_end")
    assert columns(tables["time_lag"], "emptied", *names) == [
        ("behind", 100, 20, None, 0, 20, False),
        ("beyond", 100, 0, None, 0, 0, True),
        ("there", 100, 0, None, 0, 0, False),
    ]


def test_a_log_of_one_record(tables: Rows) -> None:
    assert columns(tables["time_lag"], "single", "lag", "time_lag_ms", "records_lost") == [(1, HOUR_MS + 7, 0)]


def test_readers_of_committed_records_wait_for_no_aborted_ones(tables: Rows) -> None:
    """Behind by an aborted transaction only; or by a later transaction, from its first record on."""
    names = ("group", "lag", "next_produced_at_ms", "time_lag_ms")
    assert columns(tables["time_lag"], "aborted", *names) == [("data", 3, None, 0), ("marker", 1, None, 0)]
    assert columns(tables["time_lag"], "after-abort", *names) == [
        ("begin", 6, START_MS - 9_000, HOUR_MS + 9_000),
        ("inside", 2, START_MS, HOUR_MS),
    ]


def test_records_that_compaction_removed_are_not_lost(tables: Rows) -> None:
    """The log begins at the same offset as before; newer records have the keys of the removed ones."""
    names = ("lag", "next_produced_at_ms", "time_lag_ms", "records_lost")
    expected = [(4, START_MS - 2_000, HOUR_MS + 2_000, 0)]
    assert columns(tables["time_lag"], "compacted", *names) == expected


@pytest.fixture(scope="module")
def later(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """The tables of a second run, after rows of an older release were kept and retention deleted segments."""
    root = tmp_path_factory.mktemp("later")
    logs, out = root / "logs", root / "out"
    old = Log("kept", 0)
    old.append([Record(None, b"x")] * 2, START_MS - 50_000, producer=(7, 0), transactional=True, open_ms=5_000)
    old.mark(ABORT, START_MS - 40_000, producer=(7, 0))
    cut = produced("cut", START_MS - 9_000)
    cut.append([Record(None, b"x")], START_MS - 5_000, producer=(7, 0), transactional=True)
    cut.append([Record(None, b"x")], START_MS - 3_000)
    commits = offsets(("begin", "kept", 0), ("later", "kept", 3), ("behind", "cut", 0), ("there", "cut", 2))
    write(logs, [old, commits])
    write(logs, [cut], batches_per_segment=1)
    run(spark, logs, out, LATER)
    assert columns(published.rows(out, "blocking_transactions"), "cut", "start_offset") == [(1,)]
    # An older release kept neither first timestamps nor record counts nor the type of a marker.
    for part in (out / "bronze").glob("*/kind=batch/*.parquet"):
        rows = pq.read_table(part)
        kept = rows.drop_columns(["first_timestamp_ms", "record_count", "control"])
        pq.write_table(kept.append_column("control", pa.nulls(len(rows), pa.string())), part)
    new = Log("kept", 0, next_offset=old.next_offset)
    new.append([Record(None, b"y")] * 2, START_MS, open_ms=5_000)
    write(root / "more", [new])
    (root / f"more/kept-0/{3:020}.log").rename(logs / f"kept-0/{3:020}.log")
    for offset in (0, 1):
        (logs / f"cut-0/{offset:020}.log").unlink()
    run(spark, logs, out, LATER)
    yield {name: published.rows(out, name) for name in LATER} | {
        "read": publish.rows(Tables(Reading(spark, logs)).time_lag, "time_lag")
    }
    spark.catalog.clearCache()


def test_rows_that_an_older_release_has_kept(later: Rows) -> None:
    """They are precise to a batch; rows read now are precise to a record."""
    assert columns(later["time_lag"], "kept", "group", "time_lag_ms") == [("begin", 50_000), ("later", 5_000)]


def test_records_that_retention_deleted_after_they_were_read_are_lost(later: Rows) -> None:
    """A run has read and kept them; a group that had not read them waits for the records that are left."""
    names = ("group", "lag", "next_produced_at_ms", "time_lag_ms", "records_lost")
    expected = [("behind", 3, START_MS - 3_000, 3_000, 2), ("there", 1, START_MS - 3_000, 3_000, 0)]
    assert columns(later["read"], "cut", *names) == expected
    assert columns(later["time_lag"], "cut", *names) == expected
    # A transaction without a remaining record blocks no reader.
    assert later["blocking_transactions"] == []
