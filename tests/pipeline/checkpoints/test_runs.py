"""Published tables of Spark queries: a run keeps the batches that are new, and its tables are those of one read."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.checkpoints.named import Named
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.run import Run, RunOutcome, Source
from kohort.pipeline.runs.state import RunRequest
from tests.conftest import NIGHTLY
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint, write_topic

pytestmark = [pytest.mark.spark, NIGHTLY]

TABLES = ("offsets", "lag", "offset_commits", "status", "spark_queries")


def finish(query: Checkpoint, *numbers: int) -> None:
    for number in numbers:
        at_ms = BEGAN_MS + (number + 1) * 10_000
        query.batch(number, {"orders": {0: number * 10 + 10}}, at_ms=at_ms, finished_ms=at_ms + 1_000)


def once(spark: Any, root: Path) -> RunOutcome:
    source = Source(str(root / "logs"), checkpoints=(Named("billing", str(root / "billing")),))
    return Run(source, root / "out", RunRequest(tables=TABLES), lambda _: nullcontext(spark)).once()


def same_as_one_read(spark: Any, root: Path) -> None:
    tables = Tables(Reading(spark, root / "logs", checkpoints=[Named("billing", str(root / "billing"))]))
    for name in TABLES:
        assert published.rows(root / "out", name) == publish.rows(getattr(tables, name), name), name


def test_runs_keep_what_is_new(spark: Any, tmp_path: Path) -> None:
    write_topic(tmp_path / "logs", "orders", (100,))
    query = Checkpoint(tmp_path / "billing")
    finish(query, 0, 1)
    assert once(spark, tmp_path).is_new
    same_as_one_read(spark, tmp_path)
    assert not once(spark, tmp_path).is_new
    finish(query, 2, 3)
    assert once(spark, tmp_path).is_new
    same_as_one_read(spark, tmp_path)
    # Spark deletes old batches; the tables keep them.
    for name in ("offsets", "commits"):
        (query.path / name / "0").unlink()
    finish(query, 4)
    once(spark, tmp_path)
    assert [row["offset"] for row in published.rows(tmp_path / "out", "offset_commits")] == [10, 20, 30, 40, 50]
    # A batch that has only begun is news, too.
    query.batch(5, {"orders": {0: 60}}, at_ms=BEGAN_MS + 60_000, finished_ms=None)
    assert once(spark, tmp_path).is_new
    (row,) = published.rows(tmp_path / "out", "spark_queries")
    assert (row["batch"], row["open_batch"], row["lag"]) == (4, 5, 50)


def test_a_checkpoint_that_was_made_anew(spark: Any, tmp_path: Path) -> None:
    write_topic(tmp_path / "logs", "orders", (100,))
    finish(Checkpoint(tmp_path / "billing"), 0, 1, 2)
    once(spark, tmp_path)
    shutil.rmtree(tmp_path / "billing")
    finish(Checkpoint(tmp_path / "billing", query_id="another"), 0)
    once(spark, tmp_path)
    (row,) = published.rows(tmp_path / "out", "offsets")
    assert row["offset"] == 10
