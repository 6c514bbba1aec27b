"""
A log of some kB that unpacks to gigabytes is compacted, and dumped, by a process that may not have one.

Memory is limited for real (RLIMIT_AS), in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.wire.batches import BatchRecord, build_batch, stamp
from kohort.wire.compression import Codec

MEMORY_BYTES = 500 << 20
BATCHES = 20
UNPACKED_BYTES = 32 << 20

_LIMIT = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
"""
_COMPACT = f"""
import sys
from pathlib import Path
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.cleaning.compaction import compact
from kohort.storage.cleaning.job import CleanerJob, PassTerms, SourceSegment
from kohort.storage.log import LogConfig
{_LIMIT}
size = (Path(sys.argv[1]) / f"{{0:020d}}.log").stat().st_size
job = CleanerJob(
    directory=sys.argv[1],
    sources=[SourceSegment(0, size, 0, 0, {BATCHES}, 1)],
    terms=PassTerms(
        first_dirty_offset=0,
        dirty_bytes=size,
        high_watermark={BATCHES},
        last_records={{}},
        delete_retention_ms=1000,
        now_ms=1000,
        buffer_bytes=1 << 20,
        load_factor=0.9,
    ),
    aborted=[],
    config=LogConfig(cleanup_policy="compact"),
    io_bytes=1 << 20,
)
done = compact(job, lambda group: print(group.size_bytes), SystemClock())
assert done.end_offset == {BATCHES}
"""
_DUMP = f"""
import sys
from pathlib import Path
from kohort.storage.tools.dump import dump
{_LIMIT}
print(sum(len(row["records"]) for row in dump(Path(sys.argv[1]) / f"{{0:020d}}.log", decode=lambda key, value: {{}})))
"""


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One record a batch, each with another key and a value of zeros."""
    path = tmp_path_factory.mktemp("zeros") / f"{0:020d}.log"
    value = bytes(UNPACKED_BYTES)
    batch = bytearray(build_batch([BatchRecord(b"0", value)], timestamp_ms=1000, compression=Codec.ZSTD))
    with path.open("wb") as file:
        for number in range(BATCHES):
            stamp(batch, base_offset=number, leader_epoch=0)
            file.write(batch)
    assert path.stat().st_size < 1 << 20
    return path


def told(program: str, segment: Path) -> str:
    command = [sys.executable, "-c", program, str(segment.parent)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux has it")
def test_compaction_holds_a_few_unpacked_batches(segment: Path) -> None:
    assert 0 < int(told(_COMPACT, segment)) < segment.stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux has it")
def test_dump_holds_one_unpacked_batch(segment: Path) -> None:
    assert json.loads(told(_DUMP, segment)) == BATCHES
