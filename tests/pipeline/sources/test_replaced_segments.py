"""
Segments that a running broker replaces or deletes between the plan of a read and the read.

Kafka merges segments by compaction, deletes them by retention, and gives the files of a new topic the names of the old ones.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import open_logs, tasks_of
from kohort.pipeline.sources.ranges import read_task
from tests.pipeline.sources.growing import TOPIC, GrowingLog

LOG = (TOPIC, 0)


def options(directory: Path, **more: str) -> SourceOptions:
    return SourceOptions.parse({"path": str(directory), **more})


def rows_of(asked: SourceOptions, tasks: Any) -> list[dict[str, Any]]:
    return [row for task in tasks for part in read_task(asked, task) for row in part.to_pylist()]


def offsets_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["log_offset"] for row in rows if row["kind"] == "offset_commit"]


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    """Four segments of six commits, two batches each."""
    log = GrowingLog(tmp_path)
    (log.directory / "partition.metadata").write_text("version: 0\ntopic_id: " + "a" * 22)
    for _ in range(3):
        log.commits(6)
        log.roll()
    log.commits(6)
    return log


def files(log: GrowingLog) -> list[Path]:
    return [Path(segment.path) for segment in list_segments(log.directory.parent)]


def merge(log: GrowingLog, *, name: str | None = None) -> None:
    """Compact the first three segments into one, as the cleaner does: it deletes the old files, and renames the new one."""
    first, second, third, _ = files(log)
    swap = first.with_suffix(".log.swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes() + third.read_bytes())
    for each in (first, second, third):
        each.unlink()
    if name != "swap":
        swap.rename(first)


@pytest.mark.parametrize("is_range", [False, True])
@pytest.mark.parametrize("read_before", [0, 1, 2, 3])
def test_segments_that_are_merged_during_a_read(
    tmp_path: Path, log: GrowingLog, read_before: int, *, is_range: bool
) -> None:
    asked = options(
        tmp_path, bytesPerTask="1", **({"startingOffsets": f'{{"{TOPIC}": {{"0": 3}}}}'} if is_range else {})
    )
    tasks = tasks_of(asked)
    assert len(tasks) == 4
    found = rows_of(asked, tasks[:read_before])
    merge(log)
    found += rows_of(asked, tasks[read_before:])
    assert offsets_of(found) == list(range(3 if is_range else 0, 24))


@pytest.mark.parametrize("kinds", ["segment", "segment,offset_commit"])
def test_the_end_of_the_log_is_told_when_its_newest_segment_went(tmp_path: Path, log: GrowingLog, kinds: str) -> None:
    newest = files(log)[-1]
    shutil.copytree(log.directory, tmp_path / f"{TOPIC}-1")
    asked = options(tmp_path, newest="true", kinds=kinds)
    tasks = tasks_of(asked)
    log.roll()
    log.commits(3)
    newest.unlink()
    assert [row["next_offset"] for row in rows_of(asked, tasks) if row["kind"] == "segment"] == [27, 24]


def test_a_compacted_segment_counts_before_it_has_its_name(tmp_path: Path, log: GrowingLog) -> None:
    asked = options(tmp_path)
    planned = tasks_of(asked)
    merge(log, name="swap")
    assert offsets_of(rows_of(asked, tasks_of(asked))) == list(range(24))
    assert offsets_of(rows_of(asked, planned)) == list(range(24))
    planned = tasks_of(asked)
    swap = next(log.directory.glob("*.swap"))
    swap.rename(swap.with_suffix(""))
    assert offsets_of(rows_of(asked, planned)) == list(range(24))


def test_segments_that_retention_deletes_during_a_stream_are_a_loss(tmp_path: Path, log: GrowingLog) -> None:
    strict, lenient = options(tmp_path), options(tmp_path, failOnDataLoss="false")
    plans = [(asked, open_logs(asked).tasks({LOG: 3}, {LOG: 21})) for asked in (strict, lenient)]
    for each in files(log)[:2]:
        each.unlink()
    with pytest.raises(
        ConfigError,
        match=r"-0 was to be read from offset 3 to 6, and its segment was deleted meanwhile; option failOnDataLoss",
    ):
        rows_of(*plans[0])
    found = rows_of(*plans[1])
    assert offsets_of(found) == list(range(12, 21))
    assert [(row["log_offset"], row["problem"]) for row in found if row["kind"] == "damage"] == [
        (3, f"{TOPIC}-0 was to be read from offset 3 to 6, and its segment was deleted meanwhile"),
        (6, f"{TOPIC}-0 was to be read from offset 6 to 12, and its segment was deleted meanwhile"),
    ]


def test_segments_that_retention_deletes_during_a_batch_were_never_there(tmp_path: Path, log: GrowingLog) -> None:
    asked = options(tmp_path, kinds="offset_commit,segment")
    tasks = tasks_of(asked)
    for each in files(log)[:2]:
        each.unlink()
    found = rows_of(asked, tasks)
    assert offsets_of(found) == list(range(12, 24))
    assert [row["next_offset"] for row in found if row["kind"] == "segment"] == [18, 24]


def test_a_topic_that_is_created_again_during_a_read_is_not_read_in_its_place(tmp_path: Path, log: GrowingLog) -> None:
    strict, lenient = options(tmp_path), options(tmp_path, failOnDataLoss="false")
    plans = [(asked, open_logs(asked).tasks({LOG: 0}, {LOG: 6})) for asked in (strict, lenient)]
    early = open_logs(strict)
    early.state()
    shutil.rmtree(log.directory)
    again = GrowingLog(tmp_path)
    (again.directory / "partition.metadata").write_text("version: 0\ntopic_id: " + "b" * 22)
    again.commits(30)
    with pytest.raises(
        ConfigError, match=r"from offset 0 to 6, and its topic was created again .topic id b{22}. meanwhile"
    ):
        rows_of(*plans[0])
    assert {row["kind"] for row in rows_of(*plans[1])} == {"damage"}
    # Also if the topic was created again between the look at the ends and the plan.
    with pytest.raises(ConfigError, match=r"created again"):
        rows_of(strict, early.tasks({LOG: 0}, {LOG: 6}))
