"""
What a power cut takes of indexes. A segment that was full when a checkpoint came is rolled later: its indexes are not believed
then. And what a recovery has built anew is there after the next one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX
from kohort_lab.crashed_disk import Kept, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.compacted import end_transaction, make_durable, put
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


def rolled_after_a_checkpoint(path: Path, *, has_another: bool) -> FaultyFiles:
    """Two segments; the first was whole and flushed before it was rolled. `has_another`: a checkpoint came afterwards."""
    with FaultyFiles(path) as files:
        owner = Owner()
        store = owner.disk(path)
        log = store.open(PARTITION, TOPIC_ID, CONFIG)
        for number in range(3):
            log.append(batch("x" * 50, timestamp_ms=1000 + number), leader_epoch=0)
        make_durable(owner, store)
        log.append(batch("y" * 200, timestamp_ms=2000), leader_epoch=0)
        store.flush()
        if has_another:
            make_durable(owner, store)
        abandon(store)
    return files


def crashed(path: Path, files: FaultyFiles, kept: Kept, seed: int = 0) -> Path:
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    write_tree(path, disk.crash(Random(seed), kept))
    return path


@contextmanager
def found(base: Path, files: FaultyFiles, kept: Kept, seed: int) -> Iterator[DiskLog]:
    store: DiskStore = Owner().disk(crashed(base / f"{kept}-{seed}", files, kept, seed))
    yield store.open(PARTITION, TOPIC_ID, CONFIG)
    store.close()


@pytest.mark.parametrize("has_another", [False, True])
@pytest.mark.parametrize("kept", Kept)
def test_times_are_found(base: Path, kept: Kept, *, has_another: bool) -> None:
    files = rolled_after_a_checkpoint(base / "data", has_another=has_another)
    for seed in range(8):
        with found(base, files, kept, seed) as log:
            for timestamp_ms, offset in [(1000, 0), (1001, 1), (1002, 2), (1003, 3), (2000, 3)]:
                place = log.offset_for_timestamp(timestamp_ms)
                assert place is not None
                assert place.offset == offset
            if len(log.segments) == 2:
                assert log.segments[0].max_timestamp == (1002, 2)


@pytest.mark.parametrize("kept", Kept)
def test_what_a_recovery_found_to_be_aborted_is_so_after_the_next(base: Path, kept: Kept) -> None:
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = store.open(PARTITION, TOPIC_ID, CONFIG)
        put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        end_transaction(log, 5, committed=False)
        for _ in range(3):
            log.append(batch("x" * 200), leader_epoch=0)
        store.flush()
        abandon(store)
    again = crashed(base / "again", files, Kept.ALL)
    with FaultyFiles(again) as recovery:
        store = Owner().disk(again)
        store.open(PARTITION, TOPIC_ID, CONFIG)
        abandon(store)
    with found(base, recovery, kept, 0) as log:
        (aborted,) = log.aborted_transactions(0, log.read(0, bytes_max=1))
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 0, 1)


@pytest.mark.parametrize("kept", [Kept.NONE, Kept.TORN, Kept.SOME, Kept.ZEROS, Kept.MIXED])
@pytest.mark.parametrize("has_earlier", [False, True])
def test_indexes_that_a_checkpoint_has_flushed_need_no_checksums(base: Path, kept: Kept, *, has_earlier: bool) -> None:
    """
    The checksums are not flushed on their own, so a power cut may take them, and indexes without them are believed.

    `has_earlier`: checkpoints came while the first segment was active, and it was rolled after the last of them.
    """
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = store.open(PARTITION, TOPIC_ID, CONFIG)
        put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True, timestamp_ms=1000)
        end_transaction(log, 5, committed=False)
        for number in range(3):
            if has_earlier:
                make_durable(owner, store)
            log.append(batch("x" * 150, timestamp_ms=3000 + number), leader_epoch=0)
        make_durable(owner, store)
        abandon(store)
    for seed in range(30):
        disk = files.disk()
        for operation in files.operations:
            disk.apply(operation)
        tree = disk.crash(Random(seed), kept)
        root = base / f"{kept}-{seed}"
        write_tree(root, {name: content for name, content in tree.items() if not name.endswith(CHECKSUMS_SUFFIX)})
        store = Owner().disk(root)
        log = store.open(PARTITION, TOPIC_ID, CONFIG)
        assert len(log.segments) > 1
        (aborted,) = log.aborted_transactions(0, log.read(0, bytes_max=1))
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 0, 1)
        for timestamp_ms, offset in [(3000, 2), (3001, 3), (3002, 4)]:
            place = log.offset_for_timestamp(timestamp_ms)
            assert place is not None
            assert place.offset == offset
        store.close()
