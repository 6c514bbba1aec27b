"""Spark queries in the exporter."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.checkpoints.files import Content, LocalFiles
from kohort.pipeline.checkpoints.named import Named
from kohort.pipeline.exporter import queries
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.tables.burrow.verdicts import NUMBERS
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint, write_topic

SECOND = 1_000


@pytest.fixture
def billing(tmp_path: Path) -> Checkpoint:
    """A query with twenty finished batches, at a topic with a record each second for ten minutes."""
    write_topic(tmp_path / "logs", "orders", (600, 0))
    query = Checkpoint(tmp_path / "billing")
    for number in range(20):
        finish(query, number)
    return query


def finish(query: Checkpoint, number: int, *, is_finished: bool = True) -> None:
    at_ms = BEGAN_MS + (number + 1) * 10 * SECOND
    query.batch(
        number,
        {"orders": {0: (number + 1) * 10, 1: 0}},
        at_ms=at_ms,
        finished_ms=at_ms + 2 * SECOND if is_finished else None,
    )


def exporter_of(query: Checkpoint) -> Exporter:
    return Exporter(str(query.path.parent / "logs"), checkpoints=[Named("billing", str(query.path))])


def polled(exporter: Exporter) -> dict[str, float]:
    """The values of the group, by metric; of partition 0 where there are several."""
    assert exporter.poll().problems == ()
    return values(exporter)


def values(exporter: Exporter) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in exporter.collect()
        for sample in family.samples
        if "billing" in sample.labels.values() and sample.labels.get("partition", "0") == "0"
    }


def test_a_query_is_a_group(billing: Checkpoint) -> None:
    exporter = exporter_of(billing)
    found = polled(exporter)
    assert found["kohort_group_lag"] == found["kafka_consumergroup_lag"] == 400
    assert found["kohort_query_batch"] == 19
    # The instant is the end of the log, at 599 s, and the first unread record is of 200 s: the query stopped.
    assert found["kohort_group_lag_seconds"] == 399
    assert found["kohort_query_state"] == 2
    assert found["kohort_query_last_batch_seconds"] == (BEGAN_MS + 202 * SECOND) / 1000
    assert "kohort_query_open_batch_seconds" not in found
    assert found["kohort_group_commits_total"] == 40
    finish(billing, 20)
    finish(billing, 21, is_finished=False)
    found = polled(exporter)
    assert (found["kohort_group_lag"], found["kohort_query_batch"]) == (390, 20)
    assert (found["kohort_query_replayed_records"], found["kohort_query_open_batch_seconds"]) == (10, 379)
    assert found["kohort_group_commits_total"] == 42


def test_a_query_that_hangs(billing: Checkpoint) -> None:
    finish(billing, 20, is_finished=False)
    other = Checkpoint(billing.path.parent / "other")
    other.batch(0, {"orders": {0: 600}}, at_ms=BEGAN_MS + 600 * SECOND, finished_ms=BEGAN_MS + 601 * SECOND)
    exporter = Exporter(str(billing.path.parent / "logs"), checkpoints=[Named(None, str(billing.path.parent))])
    found = polled(exporter)
    assert found["kohort_query_state"] == 3
    assert found["kohort_group_verdict"] == NUMBERS["STOP"]
    assert found["kohort_query_open_batch_seconds"] == 601 - 210


def test_a_checkpoint_that_cannot_be_read_keeps_its_last_values(billing: Checkpoint) -> None:
    exporter = exporter_of(billing)
    before = polled(exporter)
    billing.write("offsets/20", b"v7\n{}\n{}", BEGAN_MS)
    (problem,) = exporter.poll().problems
    assert "has version 7" in problem
    assert values(exporter) == before
    (billing.path / "offsets" / "20").unlink()
    assert polled(exporter) == before


def test_a_plan_that_was_half_written_is_read_again(billing: Checkpoint) -> None:
    exporter = exporter_of(billing)
    billing.write("offsets/20", b"v1\n", BEGAN_MS)
    (problem,) = exporter.poll().problems
    assert "offsets/20 is damaged" in problem
    finish(billing, 20, is_finished=False)
    assert polled(exporter)["kohort_query_replayed_records"] == 10


def test_a_checkpoint_that_was_made_anew(billing: Checkpoint) -> None:
    exporter = exporter_of(billing)
    polled(exporter)
    shutil.rmtree(billing.path)
    again = Checkpoint(billing.path, query_id="another")
    finish(again, 0)
    found = polled(exporter)
    assert (found["kohort_query_batch"], found["kohort_group_lag"]) == (0, 590)


class Counted(LocalFiles):
    def __init__(self) -> None:
        self.reads = 0

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        self.reads += len(names)
        return super().read(directory, names)


def test_files_of_finished_batches_are_read_once(billing: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    given: Any = lambda *_: counted  # noqa: E731
    monkeypatch.setattr(queries, "files_of", given)
    exporter = exporter_of(billing)
    polled(exporter)
    assert counted.reads >= 40
    finish(billing, 20)
    counted.reads = 0
    polled(exporter)
    assert counted.reads < 10
