"""What a worker writes: files that count when they are whole, and groups of rows of a bounded size."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.runs import writing
from kohort.pipeline.runs.run import Source
from kohort_lab.history.logs import Log
from kohort_lab.history.values import offset_commit
from kohort_lab.history.world import START_MS

BATCHES, COMMITS = 24, 2000


@pytest.mark.parametrize(("bytes_max", "fewest"), [(writing.ROW_GROUP_BYTES, 1), (1 << 20, 8)])
def test_rows_wait_for_their_group_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int, fewest: int
) -> None:
    """However long they are: keys and values are what clients made them."""
    log = Log(CONSUMER_OFFSETS, 0)
    for batch in range(BATCHES):
        log.append([offset_commit("g" * 200, "t", 0, at, at_ms=START_MS) for at in range(COMMITS)], START_MS + batch)
    log.write(tmp_path / "logs", batches_per_segment=1)
    source = Source(str(tmp_path / "logs"))
    logs = source.logs()
    (task,) = logs.tasks({}, {place: end for place, (_, end) in logs.state().bounds.items()})
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", bytes_max)
    assert writing.write_task(str(tmp_path / "out"), source.reading(), task) == BATCHES * (COMMITS + 1)
    (file,) = (tmp_path / "out" / "kind=offset_commit").iterdir()
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    assert sum(group.num_rows for group in groups) == BATCHES * COMMITS
    assert fewest <= len(groups) <= 2 * fewest
