"""
Small logs written by hand, with their truth worked out on paper: what breaks tools that look at lag.

Each is read twice, as it lies in the data directory and as a run has published it: both say the same.
"""

import time
from collections.abc import Callable, Iterable
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
from kohort.testing.history.logs import ABORT, Log, Record
from kohort.testing.history.values import offset_commit
from kohort.testing.history.world import START_MS
from kohort.wire.compression import Codec

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
TOLD = ("lag", "time_lag", "status")

Row = dict[str, Any]
Told = Callable[[Iterable[Log]], dict[str, list[Row]]]


def once(spark: Any, source: Path, out: Path, tables: tuple[str, ...] = TOLD) -> None:
    Run(Source(str(source)), out, RunRequest(tables=tables), lambda _: nullcontext(spark)).once()


@pytest.fixture
def told(spark: Any, tmp_path: Path) -> Told:
    def read(logs: Iterable[Log]) -> dict[str, list[Row]]:
        for log in logs:
            log.write(tmp_path / "logs", batches_per_segment=100)
        source, out = str(tmp_path / "logs"), tmp_path / "out"
        once(spark, tmp_path / "logs", out)
        tables = Tables(Reading(spark, source))
        found = {name: publish.rows(getattr(tables, name), name) for name in TOLD}
        assert found == {name: published.rows(out, name) for name in TOLD}
        spark.catalog.clearCache()
        return found

    return read


def offsets(*commits: tuple[str, str, int]) -> Log:
    """The log of a coordinator in which groups have committed at `START_MS`, never to be heard of again."""
    log = Log(CONSUMER_OFFSETS, 0)
    log.append([offset_commit(group, topic, 0, offset, at_ms=START_MS) for group, topic, offset in commits], START_MS)
    return log


def produced(topic: str, *at_ms: int) -> Log:
    """A record at each of these times."""
    log = Log(topic, 0)
    for moment in at_ms:
        log.append([Record(None, b"x")], moment)
    return log


def column(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_the_only_group_has_died_and_its_topic_goes_on(told: Told) -> None:
    """The coordinator's log ends with its last commit; for an hour nobody has read what was produced."""
    found = told([offsets(("dead", "t", 1)), produced("t", *(START_MS + at for at in (-5, 60_000, HOUR_MS)))])
    assert column(found["lag"], "lag") == [(2,)]
    assert column(found["time_lag"], "next_produced_at_ms", "time_lag_ms") == [(START_MS + 60_000, HOUR_MS - 60_000)]
    assert column(found["status"], "status", "lag") == [("STOP", 2)]


def test_a_producer_whose_clock_is_far_ahead_moves_no_time(told: Told) -> None:
    future_ms = int(time.time() * 1000) + 24 * HOUR_MS
    logs = [
        offsets(("g", "t", 1), ("h", "wild", 0)),
        produced("t", START_MS, START_MS + 10, START_MS + 70),
        produced("wild", future_ms),
    ]
    assert column(told(logs)["time_lag"], "group", "lag", "time_lag_ms") == [("g", 2, 60), ("h", 1, None)]


def test_a_log_that_retention_has_emptied(told: Told) -> None:
    """Nothing is left to wait for, and what was not read in time is lost."""
    empty = Log("t", 0, next_offset=100)
    found = told([offsets(("behind", "t", 80), ("there", "t", 100), ("beyond", "t", 120)), empty])
    names = ("group", "end_offset", "lag", "next_produced_at_ms", "time_lag_ms", "records_lost")
    assert column(found["time_lag"], *names) == [
        ("behind", 100, 20, None, 0, 20),
        ("beyond", 100, 0, None, 0, 0),
        ("there", 100, 0, None, 0, 0),
    ]


def test_logs_of_one_record(told: Told) -> None:
    found = told([offsets(("g", "t", 0)), produced("t", START_MS - 7)])
    assert column(found["time_lag"], "lag", "time_lag_ms", "records_lost") == [(1, 7, 0)]


def test_who_reads_committed_records_waits_for_no_others(told: Told) -> None:
    """Three offsets behind, and nothing to read; or what a producer wrote after it had aborted, from its first record on."""
    log, later = produced("t", START_MS - 60_000), produced("later", START_MS - 60_000)
    for one in (log, later):
        one.append([Record(None, b"x")] * 2, START_MS - 50_000, producer=(7, 0), transactional=True)
        one.mark(ABORT, START_MS - 40_000, producer=(7, 0))
    later.append(
        [Record(None, b"y")] * 3, START_MS, producer=(7, 0), transactional=True, codec=Codec.ZSTD, open_ms=9_000
    )
    found = told(
        [offsets(("begin", "later", 1), ("inside", "later", 5), ("data", "t", 1), ("marker", "t", 3)), log, later]
    )
    assert column(found["time_lag"], "group", "lag", "next_produced_at_ms", "time_lag_ms") == [
        ("begin", 6, START_MS - 9_000, 9_000),
        ("data", 3, None, 0),
        ("inside", 2, START_MS, 0),
        ("marker", 1, None, 0),
    ]


def test_rows_that_an_older_release_has_kept(spark: Any, tmp_path: Path) -> None:
    """It did not look at markers and first records: what it kept is precise to a batch, what is read now to a record."""
    old, out = Log("t", 0), tmp_path / "out"
    old.append([Record(None, b"x")] * 2, START_MS - 50_000, producer=(7, 0), transactional=True, open_ms=5_000)
    old.mark(ABORT, START_MS - 40_000, producer=(7, 0))
    for log in (old, offsets(("begin", "t", 0), ("later", "t", 3))):
        log.write(tmp_path / "logs", batches_per_segment=100)
    once(spark, tmp_path / "logs", out)
    for part in (out / "bronze").glob("*/kind=batch/*.parquet"):
        rows = pq.read_table(part)
        kept = rows.drop_columns(["first_timestamp_ms", "record_count", "control"])
        pq.write_table(kept.append_column("control", pa.nulls(len(rows), pa.string())), part)
    new = Log("t", 0, next_offset=old.next_offset)
    new.append([Record(None, b"y")] * 2, START_MS, open_ms=5_000)
    new.write(tmp_path / "more", batches_per_segment=100)
    (tmp_path / "more/t-0/00000000000000000003.log").rename(tmp_path / "logs/t-0/00000000000000000003.log")
    once(spark, tmp_path / "logs", out)
    assert column(published.rows(out, "time_lag"), "group", "time_lag_ms") == [("begin", 50_000), ("later", 5_000)]
    spark.catalog.clearCache()


def test_what_retention_took_after_it_was_read_is_lost(spark: Any, tmp_path: Path) -> None:
    """A run has read and kept it; whoever had not come so far will never get it, and waits for what is left."""
    log = produced("t", START_MS - 9_000)
    log.append([Record(None, b"x")], START_MS - 5_000, producer=(7, 0), transactional=True)
    log.append([Record(None, b"x")], START_MS - 3_000)
    for one in (log, offsets(("behind", "t", 0), ("there", "t", 2))):
        one.write(tmp_path / "logs", batches_per_segment=1)
    out = tmp_path / "out"
    tables = (*TOLD, "blocking_transactions")
    once(spark, tmp_path / "logs", out, tables)
    assert len(published.rows(out, "blocking_transactions")) == 1
    for offset in (0, 1):
        (tmp_path / f"logs/t-0/{offset:020}.log").unlink()
    once(spark, tmp_path / "logs", out, tables)
    names = ("group", "lag", "next_produced_at_ms", "time_lag_ms", "records_lost")
    expected = [("behind", 3, START_MS - 3_000, 3_000, 2), ("there", 1, START_MS - 3_000, 3_000, 0)]
    assert column(publish.rows(Tables(Reading(spark, tmp_path / "logs")).time_lag, "time_lag"), *names) == expected
    assert column(published.rows(out, "time_lag"), *names) == expected
    # Nobody is held back by a transaction of which nothing is left.
    assert published.rows(out, "blocking_transactions") == []
    spark.catalog.clearCache()


def test_what_compaction_took_is_not_lost(told: Told, tmp_path: Path) -> None:
    """The first batches of a compacted log are gone, and it begins where it did: something newer has their keys."""
    log = Log("t", 0)
    for at in range(4):
        log.append([Record(b"k", b"x")], START_MS - 4_000 + at * 1_000)
    log.batches = log.batches[2:]
    log.write(tmp_path / "compacted", batches_per_segment=100)
    place = tmp_path / "compacted" / "t-0"
    (place / f"{2:020}.log").rename(place / f"{0:020}.log")
    (tmp_path / "logs").mkdir()
    place.rename(tmp_path / "logs" / "t-0")
    names = ("lag", "next_produced_at_ms", "time_lag_ms", "records_lost")
    assert column(told([offsets(("g", "t", 0))])["time_lag"], *names) == [(4, START_MS - 2_000, 2_000, 0)]
