"""
Incremental runs: wherever the logs are cut between two runs, the tables equal those of one read of everything. A run makes
again only what new rows affect, and reads no more rows than it needs for that.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.affected import READ
from kohort.pipeline.runs.run import AFFECTED_SHARE_MAX, Run, RunOutcome, Source
from kohort.pipeline.runs.state import RunRequest
from kohort_lab.history import History
from kohort_lab.history.logs import Log, Record
from kohort_lab.history.values import offset_commit
from kohort_lab.history.world import START_MS
from tests.conftest import LONG, NIGHTLY

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800), NIGHTLY]

MORE = ("lag_over_time", "time_lag_over_time", "rebalances", "time_without_owner", "damage")
TABLES = published.TABLES if LONG else (*READ, *MORE)
FEW = TABLES if LONG else READ
"""The tables that the next run needs to find what is affected."""
SEEDS = ((3, 4, 71, 72, 88, 89), (17, 18, 40, 41, 102, 103)) if LONG else ((3, 4),)
"""Histories in one directory, each in log partitions of its own and cut by itself. For such small frames the time goes into
planning: six histories take as long as one."""
CUTS = 4 if LONG else 1


class GrowingLogs:
    """A growing copy of logs, cut anywhere between two batches."""

    def __init__(self, whole: Path, growing: Path) -> None:
        self._whole = whole
        self._growing = growing
        self._shares: dict[str, float] = {}

    @property
    def logs(self) -> list[str]:
        return sorted(path.name for path in self._whole.iterdir() if path.is_dir())

    def grow(self, shares: dict[str, float]) -> None:
        """Copy a share of some logs; they never shrink."""
        for name, share in shares.items():
            share = self._shares[name] = max(share, self._shares.get(name, 0.0))
            target = self._growing / name
            target.mkdir(parents=True, exist_ok=True)
            files = sorted((self._whole / name).glob("*.log"))
            ends = [(file, end) for file in files for end in scan(file.read_bytes()).ends.tolist()]
            cut = ends[: round(len(ends) * share)]
            for file in files[: max(1, len({file for file, _ in cut}))]:
                size = max((end for one, end in cut if one == file), default=0)
                raw = file.read_bytes()
                (target / file.name).write_bytes(raw if share == 1 else raw[:size])


def written(directory: Path, seeds: Sequence[int]) -> Path:
    for at, seed in enumerate(seeds):
        History(seed, partition=at).write(directory)
    return directory


def sessions(spark: Any) -> Callable[[int], AbstractContextManager[Any]]:
    return lambda _: nullcontext(spark)


def once(spark: Any, logs: Path, out: Path, *, share_max: float = 1.0, tables: tuple[str, ...] = TABLES) -> RunOutcome:
    run = Run(Source(str(logs)), out, RunRequest(tables=tables), sessions(spark), affected_share_max=share_max)
    return run.once()


def same_as_from_scratch(spark: Any, logs: Path, out: Path, names: tuple[str, ...] = TABLES) -> None:
    tables = Tables(Reading(spark, logs))
    for name in names:
        assert published.rows(out, name) == publish.rows(getattr(tables, name), name), name
    spark.catalog.clearCache()


def records_read(spark: Any) -> dict[int, int]:
    """
    Return the input records of each stage that Spark still has. Waits for the thread that counts them.
    """
    gateway, context = spark.sparkContext._gateway, spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    nothing = gateway.jvm.java.util.ArrayList()
    stages = store.stageList(nothing, False, False, gateway.new_array(gateway.jvm.double, 0), nothing)
    known = [stages.apply(at) for at in range(stages.length())]
    return {stage.stageId(): stage.inputRecords() for stage in known}


def read_since(spark: Any, stage_id: int) -> tuple[int, int]:
    """Return the records that later stages have read, and the last stage."""
    read = records_read(spark)
    return sum(records for stage, records in read.items() if stage > stage_id), max(read, default=-1)


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_any_cut_gives_the_tables_of_one_read(spark: Any, tmp_path: Path, seeds: tuple[int, ...]) -> None:
    chance = Random(seeds[0])
    logs, out = tmp_path / "logs", tmp_path / "out"
    source = GrowingLogs(written(tmp_path / "whole", seeds), logs)
    source.grow({name: chance.random() / 2 for name in source.logs})
    assert once(spark, logs, out).affected is None
    for cut in range(1, CUTS + 1):
        some = source.logs if cut == CUTS else [name for name in source.logs if chance.random() < 0.4]
        source.grow({name: 1.0 if cut == CUTS else chance.random() for name in some})
        told = once(spark, logs, out)
        assert told.affected is not None or not told.is_new
        if LONG or cut == CUTS:
            same_as_from_scratch(spark, logs, out)


def test_idle_groups_are_not_read_again(spark: Any, tmp_path: Path) -> None:
    """Groups in log partitions of their own, each with the same number of commits; one continues."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    groups, commits = 8, 6000
    for partition in range(groups):
        log = Log(CONSUMER_OFFSETS, partition)
        for base in range(0, commits, 500):
            records = [committed(f"g{partition}", base + at) for at in range(500)]
            log.append(records, START_MS + base)
        log.write(logs, batches_per_segment=100)
    _, before = read_since(spark, -1)
    assert once(spark, logs, out, share_max=AFFECTED_SHARE_MAX, tables=FEW).affected is None
    first, after_first = read_since(spark, before)
    goes_on = Log(CONSUMER_OFFSETS, 3, next_offset=commits)
    goes_on.append([committed("g3", commits + at) for at in range(10)], START_MS + commits)
    goes_on.write(tmp_path / "more", batches_per_segment=1)
    place = f"{CONSUMER_OFFSETS}-3/{commits:020}.log"
    (logs / place).write_bytes((tmp_path / "more" / place).read_bytes())
    told = once(spark, logs, out, share_max=AFFECTED_SHARE_MAX, tables=FEW)
    second, _ = read_since(spark, after_first)
    assert told.affected is not None
    assert told.affected.groups == {"g3"}
    assert told.rows_read == 11  # and the batch
    # Only the commits of one group were read, for all tables together.
    assert first > groups * commits
    assert second < first * 2 / groups
    same_as_from_scratch(spark, logs, out, FEW if LONG else ("offset_commits", "status"))
    # A batch that is being written is reported as damage, and affects no group: no log has new records.
    with (logs / place).open("ab") as file:
        file.write(bytes(20))
    told = once(spark, logs, out, share_max=AFFECTED_SHARE_MAX, tables=FEW)
    assert (told.version, told.rows_read) == (3, 0)
    assert told.affected is not None
    assert told.affected.groups == frozenset()


def committed(group: str, offset: int) -> Record:
    return offset_commit(group, "t", 0, offset, at_ms=START_MS + offset)
