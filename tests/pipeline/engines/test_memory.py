"""The local engine has a bound of its memory for any log: beyond it, tables and intermediate results go to temporary files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.decode.compact import LatestByKey
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.failures import sentence
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from tests.conftest import NIGHTLY
from tests.pipeline.logbytes import batch, offset_key, offset_value

GROUPS, COMMITS, BATCH = 300, 60_000, 50
PEAK = """import sys
from pathlib import Path
from kohort.cli.main import run
run(sys.argv[1:])
print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0], file=sys.stderr)
"""
"""Not `ru_maxrss`: a process takes that over from the one that started it."""


def raw(commits: int) -> bytes:
    """A log of commits of `GROUPS` groups in turn, all different."""
    batches = []
    for first in range(0, commits, BATCH):
        numbers = range(first, first + BATCH)
        batches.append(
            batch(first, [(offset_key(f"group-{n % GROUPS}", "orders", 0), offset_value(n)) for n in numbers])
        )
    return b"".join(batches)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    (directory / "__consumer_offsets-0").mkdir()
    (directory / "__consumer_offsets-0" / f"{0:020}.log").write_bytes(raw(COMMITS))
    return directory


def test_tables_beyond_the_bound_go_to_temporary_files(logs: Path) -> None:
    with LocalSession(memory_limit="16MiB") as session:
        tables = Tables(Reading(session, logs))
        found = tables.commit_frequency.toArrow()
        assert found.num_rows == GROUPS
        assert sum(found["commits"].to_pylist()) == COMMITS
        assert tables.offset_commits.count() == COMMITS
        (spilled,) = session._database.execute("SELECT sum(size) FROM duckdb_temporary_files()").fetchall()
        assert spilled[0] > 0


def test_a_bound_that_is_too_small_is_a_sentence(logs: Path) -> None:
    with LocalSession(memory_limit="1MiB") as session, pytest.raises(Exception, match="Out of Memory") as failed:
        Tables(Reading(session, logs)).offset_commits.count()
    assert "memory of the local engine" in str(sentence(failed.value))


def test_no_more_than_twice_the_latest_commits_are_held(logs: Path) -> None:
    held: list[int] = []

    class Watched(LatestByKey):
        def take(self, *arguments: Any) -> Any:
            found = super().take(*arguments)
            held.append(sum(one.held_bytes for _, one in self._held))
            return found

    whole, segment = raw(COMMITS), Segment("__consumer_offsets", 0, 0, "/x", 0)
    decoder = Decoder(fold=Watched(), window_bytes=1 << 16)
    for _ in range(8):
        for _ in decoder.decode(whole, segment):
            pass
    assert len(held) > 50
    # Every window has all groups, so 4 MiB are reached, and each comparison leaves one commit of each group.
    assert max(held) < (4 << 20) + (1 << 20)


@NIGHTLY
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_peak_of_a_quick_question(tmp_path: Path, logs: Path) -> None:
    """Measured: 150 MiB for a small directory. The bound is wide enough for other builds of the libraries."""
    for command in ("offsets", "lag", "rebalances"):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, "pipeline", command, str(logs)], capture_output=True, text=True, check=True
        )
        assert int(done.stderr.splitlines()[-1]) < 230 << 10, command
