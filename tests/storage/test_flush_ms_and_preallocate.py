"""
`flush.ms` flushes what the system would keep, and `preallocate` reserves the space of a segment.

Source: Kafka LogManager.flushDirtyLogs, FileRecords.open.
"""

import os
from pathlib import Path

import pytest

from kohort.storage.log import LogConfig
from kohort.storage.segments.segment_file import reserve_space
from kohort_lab.crashed_disk import Synced
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.owner import TOPIC_ID, Owner, batch
from tests.storage.test_durability import PARTITIONS

MIB = 1 << 20


@pytest.mark.parametrize("flush", ["os", "commit"])
def test_flush_ms_flushes_the_logs_whose_time_has_passed(base: Path, flush: str) -> None:
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data", flush=flush)
        opened_ms = owner.clock.now_ms()
        aged, young = (
            store.open(partition, TOPIC_ID, LogConfig(flush_ms=flush_ms))
            for partition, flush_ms in zip(PARTITIONS, (10, 1000), strict=False)
        )
        for log in (aged, young):
            log.append(batch("a"), leader_epoch=0)
        owner.wait_for(lambda: aged.high_watermark == young.high_watermark == 1)
        before = len(files.operations)
        flushes = {}
        for passed_ms in (9, 10):
            owner.clock.set(opened_ms + passed_ms)
            store.flush_aged()
            owner.run_turn()
            store._flush_coordinator._flusher.wait()
            owner.run_posted()
            flushes[passed_ms] = sum(isinstance(operation, Synced) for operation in files.operations[before:])
        # The file of the log and those that its first flush has to make durable.
        assert flushes[9] == 0
        assert (flushes[10] > 0) == (flush == "os")
        aged.append(batch("c"), leader_epoch=0)
        owner.wait_for(lambda: aged.high_watermark == 2)
        store.close()


def test_preallocate_reserves_the_space_of_a_segment_and_gives_it_back(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path / "data", flush="os")
    config = LogConfig(preallocate=True, segment_bytes=4 * MIB)
    log = store.open(PARTITIONS[0], TOPIC_ID, config)
    log.append(batch("a" * 1000), leader_epoch=0)
    store.flush()
    (first,) = segments(tmp_path)
    reserves = can_reserve(tmp_path)
    assert first.stat().st_size < 2000, "the size is that of the data"
    assert (allocated(first) >= 4 * MIB) == reserves
    for _ in range(5):
        log.append(batch("b" * 900_000), leader_epoch=0)
    store.flush()
    assert len(segments(tmp_path)) > 1
    assert allocated(first) < 4 * MIB
    store.close()
    assert all(allocated(path) < path.stat().st_size + MIB for path in segments(tmp_path))
    reopened = owner.disk(tmp_path / "data", flush="os")
    assert reopened.open(PARTITIONS[0], TOPIC_ID, config).end_offset == 6
    reopened.close()


def segments(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.log"))


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def can_reserve(directory: Path) -> bool:
    fd = os.open(directory / "probe", os.O_RDWR | os.O_CREAT)
    try:
        return reserve_space(fd, MIB)
    finally:
        os.close(fd)
