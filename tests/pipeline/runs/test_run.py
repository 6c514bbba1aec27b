"""A run reads only new records and publishes the tables of one read of everything, wherever earlier runs were killed."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kohort.cli.pipeline.run_command import report_missing
from kohort.model.errors import ConfigError
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.runs.run import Run, RunOutcome, Source
from kohort.pipeline.runs.state import RunRequest
from tests.clients.waiting import wait_until
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.sources.growing import start_process

pytestmark = [pytest.mark.spark, NIGHTLY]

TABLES = published.TABLES if LONG else ("offsets", "lag", "offset_commits", "rebalances", "open_transactions", "damage")
FEW = ("offsets", "offset_commits", "damage")
STEPS = ("rows", "merged", "cleared", *FEW, "written", "published")
KILLED_AFTER = STEPS if LONG else ("merged", "published")
TIMEOUT_S = 240.0


class KilledError(Exception):
    """Instead of SIGKILL: nothing after this step happens."""


def copied(source: Path, target: Path, *, share: float, torn_bytes: int = 0) -> None:
    """Append to copies of all logs: to a share of the batches of each newest segment, and some bytes of the next batch."""
    for directory in sorted(path for path in source.iterdir() if path.is_dir()):
        (target / directory.name).mkdir(parents=True, exist_ok=True)
        files = sorted(directory.glob("*.log"))
        for file in files:
            raw = file.read_bytes()
            if file is files[-1]:
                ends = [0, *scan(raw).ends.tolist()]
                raw = raw if share == 1 else raw[: ends[int((len(ends) - 1) * share)] + torn_bytes]
            with (target / directory.name / file.name).open("ab") as copy:
                copy.write(raw[copy.tell() :])


def sessions(spark: Any) -> Callable[[int], AbstractContextManager[Any]]:
    return lambda _: nullcontext(spark)


def tables_of(out: Path, names: tuple[str, ...] = TABLES) -> dict[str, list[dict[str, Any]]]:
    return {name: published.rows(out, name) for name in names}


def expected(spark: Any, logs: Path, names: tuple[str, ...] = TABLES, **options: Any) -> dict[str, Any]:
    tables = Tables(Reading(spark, logs, **options))
    return {name: publish.rows(getattr(tables, name), name) for name in names}


def files_of(out: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns for path in sorted(out.rglob("*")) if path.is_file() and path.name != ".lock"
    }


Runner = Callable[..., RunOutcome]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def run(spark: Any, tmp_path: Path, logs: Path) -> Runner:
    def once(*, tables: tuple[str, ...] = TABLES, **request: Any) -> RunOutcome:
        more = {name: request.pop(name) for name in ("on_step", "is_anew") if name in request}
        run_request = RunRequest(tables=tables, **request)
        return Run(Source(str(logs)), tmp_path / "out", run_request, sessions(spark), **more).once()

    return once


def test_parts_make_the_whole(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, logs: Path, run: Runner
) -> None:
    source, out = recorded("main") / "logs", tmp_path / "out"
    # The first time every log ends in the middle of a batch.
    copied(source, logs, share=0.5, torn_bytes=30)
    first = run()
    assert first.is_new
    assert {row["problem"] for row in first.damage} == {"incomplete batch"}
    copied(source, logs, share=1)
    second = run()
    assert second.rows_read > 100
    assert second.read.bytes_read < sum(path.stat().st_size for path in logs.rglob("*.log"))
    assert tables_of(out) == expected(spark, logs)
    before = files_of(out)
    assert run() == RunOutcome(version=2, is_new=False)
    assert files_of(out) == before


def test_another_wish_reads_nothing_again(
    spark: Any,
    recorded: Callable[[str], Path],
    tmp_path: Path,
    logs: Path,
    run: Runner,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied(recorded("tv1") / "logs", logs, share=1)
    run(tables=FEW)
    rows = published.rows(tmp_path / "out", "offset_commits")
    at_ms = sorted(row["visible_at_ms"] for row in rows if row["visible_at_ms"])[len(rows) // 2]
    group = rows[0]["group"]
    told = run(tables=FEW, as_of_ms=at_ms, groups=frozenset({group}))
    assert (told.is_new, told.rows_read, told.version) == (True, 0, 2)
    assert tables_of(tmp_path / "out", FEW) == expected(spark, logs, FEW, group=group, as_of_ms=at_ms)
    # Of a name that nobody has there are no rows; it is said, since it is a slip or a pattern.
    report_missing(tmp_path / "out", frozenset({group, "gro*"}))
    assert capsys.readouterr().err == "No such group: 'gro*' (--groups takes exact names, no patterns)\n"


def test_tables_of_another_release_are_made_again(
    recorded: Callable[[str], Path], tmp_path: Path, logs: Path, run: Runner
) -> None:
    """Without new records nothing is read: readers get a sentence with the remedy, and a run makes the tables again."""
    copied(recorded("tv1") / "logs", logs, share=1)
    out = tmp_path / "out"
    run(tables=FEW)
    before = tables_of(out, FEW)
    for file in (published.current(out).path / "offsets").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["leader_epoch"]), file)
    with pytest.raises(
        ConfigError, match=r"another release and has no leader_epoch; `kohort pipeline run` makes it again"
    ):
        published.rows(out, "offsets")
    told = run(tables=FEW)
    assert (told.version, told.is_new, told.rows_read) == (2, True, 0)
    assert not run(tables=FEW).is_new
    assert tables_of(out, FEW) == before


@pytest.mark.parametrize("step", KILLED_AFTER)
def test_a_run_that_is_killed_never_was(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, logs: Path, run: Runner, step: str
) -> None:
    source, out = recorded("tv1") / "logs", tmp_path / "out"
    copied(source, logs, share=0.4)
    run(tables=FEW)
    before = tables_of(out, FEW)
    copied(source, logs, share=1)

    def kill(done: str) -> None:
        if done == step:
            raise KilledError

    with pytest.raises(KilledError):
        run(tables=FEW, on_step=kill)
    if step != "published":
        assert tables_of(out, FEW) == before
    run(tables=FEW)
    assert tables_of(out, FEW) == expected(spark, logs, FEW)
    assert published.current(out).version == 2
    # Nothing of the killed run is left: rows, tables, nothing else.
    assert sum(1 for _ in (out / "bronze").iterdir()) == len(published.current(out).fingerprint["parts"])
    assert {path.name for path in (out / "versions").iterdir()} == {"1", "2"}


def test_another_source_is_refused_unless_all_begins_anew(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, logs: Path, run: Runner
) -> None:
    copied(recorded("tv1") / "logs", logs, share=1)
    run(tables=FEW)
    with pytest.raises(ConfigError, match=r"holds tables of .*; name another directory"):
        Run(Source(str(tmp_path)), tmp_path / "out", RunRequest(), sessions(spark)).once()
    shutil.rmtree(logs)
    copied(recorded("legacy") / "logs", logs, share=1)
    with pytest.raises(ConfigError, match="it is another log now"):
        run(tables=FEW)
    told = run(tables=FEW, is_anew=True)
    assert told.version == 2
    assert tables_of(tmp_path / "out", FEW) == expected(spark, logs, FEW)


STREAM = """
import sys
from kohort.cli.main import main

sys.argv = ["kohort", "pipeline", "run", sys.argv[1], "--out", sys.argv[2], "--stream", "--every", "0", "--master", "local[2]"]
main()
"""


def stamps(out: Path, mark: str) -> set[tuple[str, int]]:
    """The files of a pattern, with the times of their last change."""
    found = set()
    for path in out.glob(mark) if mark else ():
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_ctime_ns))
    return found


def is_written(process: subprocess.Popen[str], out: Path, mark: str, before: set[tuple[str, int]]) -> bool:
    """Whether a process has written a file of a pattern, or has ended."""
    return not mark or process.poll() is not None or bool(stamps(out, mark) - before)


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not LONG, reason="minutes; make test-long")
def test_a_stream_that_is_killed_four_times(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, logs: Path
) -> None:
    source, out = recorded("main") / "logs", tmp_path / "out"
    copied(source, logs, share=0.2)
    # Killed at the start, while rows are written, while tables are written, and after a version was published.
    for share, mark in ((0.4, ""), (0.6, "bronze/*"), (0.8, "versions/*"), (1.0, "current.json")):
        before = stamps(out, mark)
        process = start_process(STREAM, str(logs), str(out))
        has_begun = partial(is_written, process, out, mark, before)
        wait_until(has_begun, what=f"a new {mark}", timeout_s=TIMEOUT_S)
        copied(source, logs, share=share)
        assert process.poll() is None, process.communicate()[0]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
    process = start_process(STREAM, str(logs), str(out))
    run = Run(Source(str(logs)), out, RunRequest(), sessions(spark))

    def is_done() -> bool:
        return process.poll() is not None or (published.is_published(out) and not run.has_news())

    wait_until(is_done, what="the tables of all records", timeout_s=TIMEOUT_S)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, told
    assert set(published.current(out).fingerprint["wanted"]["tables"]) == set(published.USUAL)
    assert tables_of(out, FEW) == expected(spark, logs, FEW)
