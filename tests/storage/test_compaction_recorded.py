"""
What Apache Kafka 4.4.0 made of its own logs in four rounds of cleaning, and what the same pass makes of them here.

The recording is that of `tests/storage/record_compaction.py`. Plain batches have to come out byte for byte, with their
indexes; of compressed ones, whose bytes are those of the compressor, everything that is in them.
"""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.storage.cleaning.compaction import compact
from kohort.storage.cleaning.job import CleanerJob, LastRecord, PassResult, PassTerms, SegmentGroup, SourceSegment
from kohort.storage.files.directory import SWAP_SUFFIX
from kohort.storage.log import LogConfig
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.aborted import from_bytes
from kohort.testing.clock import ManualClock
from kohort.wire.batch_header import FIELDS, HEADER
from kohort.wire.batches import iter_batches, read_records

RECORDED = Path(__file__).parents[1] / "data" / "compaction" / "recorded.tar.xz"
ROUNDS = range(4)
INDEXES = (".index", ".timeindex", ".txnindex")


@cache
def meta() -> dict[str, Any]:
    with tarfile.open(RECORDED) as archive:
        file = archive.extractfile("recording.json")
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED) as archive:
        archive.extractall(directory, filter="data")
    return directory


def batches_of(path: Path) -> list[dict[str, Any]]:
    """Every batch, field by field but for what its compressor decides, with its records."""
    data, found = path.read_bytes(), []
    for position, header in iter_batches(data):
        row = dict(zip([name for name, _ in FIELDS], HEADER.unpack_from(data, position), strict=True))
        if header.codec:
            del row["crc"], row["length"]
        records = read_records(memoryview(data)[position:], header=header)
        row["records"] = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
        found.append(row)
    return found


class Replay:
    """One partition through the rounds: what is known of its producers, and what is clean."""

    def __init__(self, recorded: Path, topic: str, partition: int) -> None:
        self.recorded, self.topic, self.name = recorded, topic, f"{topic}-{partition}"
        self.producers = ProducerStateManager()
        self.learned_until = self.clean_until = 0
        self.aborted: dict[int, AbortedTxn] = {}

    def logs(self, moment: str) -> list[Path]:
        return sorted((self.recorded / moment / self.name).glob("*.log"))

    def update(self, logs: list[Path]) -> None:
        for path in logs:
            data = path.read_bytes()
            for position, header in iter_batches(data):
                if header.base_offset < self.learned_until:
                    continue
                self.learned_until = header.next_offset
                if header.producer_id >= 0:
                    aborted = self.producers.update(
                        data,
                        (position, header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp),
                    )
                    if aborted is not None:
                        self.aborted[aborted.last_offset] = aborted

    def horizons(self, moment: str) -> set[int]:
        return {
            header.base_timestamp
            for path in self.logs(moment)
            for _, header in iter_batches(path.read_bytes())
            if header.has_delete_horizon
        }

    def job(self, number: int) -> CleanerJob:
        logs = self.logs(f"{number}-before")
        self.update(logs)
        retention_ms = int(meta()["delete_retention_ms"][self.topic])
        (horizon_ms,) = self.horizons(f"{number}-after") - self.horizons(f"{number}-before")
        end = meta()["offsets"][str(number)][self.name]
        bases = [int(path.stem) for path in logs]
        assert end in bases
        listed = [
            entry
            for path in logs[:-1]
            if path.with_suffix(".txnindex").exists()
            for entry in from_bytes(path.with_suffix(".txnindex").read_bytes(), path.name)
        ]
        listed += [entry for offset, entry in self.aborted.items() if offset >= bases[-1]]
        sources = [
            SourceSegment(
                base,
                path.stat().st_size,
                path.with_suffix(".index").stat().st_size,
                path.with_suffix(".timeindex").stat().st_size,
                next_base,
                path.stat().st_mtime_ns,
            )
            for path, base, next_base in zip(logs, bases, bases[1:], strict=False)
            if base < end
        ]
        terms = PassTerms(
            first_dirty_offset=self.clean_until,
            dirty_bytes=sum(source.size_bytes for source in sources),
            high_watermark=self.learned_until,
            last_records={
                state.producer_id: LastRecord(
                    state.batches[-1].last_offset if state.batches else -1, state.producer_epoch
                )
                for state in self.producers.states.values()
            },
            delete_retention_ms=retention_ms,
            now_ms=horizon_ms - retention_ms,
            buffer_bytes=1 << 20,
            load_factor=0.9,
        )
        return CleanerJob(
            directory=str(logs[0].parent),
            sources=sources,
            terms=terms,
            aborted=[entry for entry in listed if entry.first_offset < end],
            config=LogConfig(delete_retention_ms=retention_ms, index_interval_bytes=300),
            io_bytes=4096,
        )

    def clean(self, number: int) -> tuple[list[SegmentGroup], PassResult]:
        groups: list[SegmentGroup] = []
        done = compact(self.job(number), groups.append, ManualClock(0))
        self.clean_until = done.end_offset
        return groups, done


@pytest.mark.parametrize("partition", [0, 1], ids=["plain", "compressed"])
@pytest.mark.parametrize("topic", ["short", "long"])
def test_a_pass_leaves_what_kafkas_left(recorded: Path, topic: str, partition: int) -> None:
    replay = Replay(recorded, topic, partition)
    for number in ROUNDS:
        groups, done = replay.clean(number)
        assert done.end_offset == meta()["offsets"][str(number)][replay.name]
        expected = [path for path in replay.logs(f"{number}-after") if int(path.stem) < done.end_offset]
        assert [group.base_offset for group in groups] == [int(path.stem) for path in expected]
        for theirs in expected:
            ours = recorded / f"{number}-before" / replay.name / (theirs.name + SWAP_SUFFIX)
            assert batches_of(ours) == batches_of(theirs)
            assert ours.stat().st_mtime == pytest.approx(theirs.stat().st_mtime, abs=1)
            if partition == 0:
                assert ours.read_bytes() == theirs.read_bytes()
            for suffix in INDEXES:
                index = theirs.with_suffix(suffix)
                swap = ours.with_name(index.name + SWAP_SUFFIX)
                if partition == 0 or suffix == ".txnindex":
                    assert read(swap) == read(index), index
                assert suffix == ".txnindex" or swap.exists()


def read(path: Path) -> bytes:
    """Kafka may leave an index of aborted transactions that is empty."""
    return path.read_bytes() if path.exists() else b""
