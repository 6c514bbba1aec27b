"""
Data that a disk lost although it was flushed, and data that only a flush of the right file keeps: leader epochs, log starts,
segments in the middle, and the producers of segments that retention deleted.
"""

from pathlib import Path
from random import Random

import pytest

from kohort.model.errors import OffsetOutOfRangeError, UnavailableError
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import CHECKPOINT_INTERVAL_MS
from kohort.storage.durability.journal import remove_journal
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from kohort.storage.log import AppendLimits, LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.valid_batches import ValidBatches
from kohort.wire.batches import BatchRecord, build_batch, stamp
from kohort_lab.crashed_disk import Kept, Removed, Renamed, Synced, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


def open_log(store: DiskStore, config: LogConfig = CONFIG) -> DiskLog:
    return store.open(PARTITION, TOPIC_ID, config)


def after_power_cut(files: FaultyFiles, path: Path) -> DiskStore:
    """A store on what was flushed, and nothing else."""
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    write_tree(path, disk.crash(Random(0), Kept.NONE))
    return Owner().disk(path)


def minute_passes(owner: Owner, store: DiskStore, log: DiskLog) -> None:
    """A checkpoint that is due, after which appends go to the other journal file."""
    owner.clock.set(owner.clock.now_ms() + CHECKPOINT_INTERVAL_MS)
    log.append(batch("b"), leader_epoch=0)
    store.flush()
    owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    owner.run_posted()


@pytest.mark.parametrize("kept", Kept)
def test_the_topic_id_of_a_partition_is_durable_after_a_checkpoint(base: Path, kept: Kept) -> None:
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        open_log(store).append(batch("a"), leader_epoch=0)
        make_durable(owner, store)
        abandon(store)
    written = (base / "data" / str(PARTITION) / PARTITION_METADATA).read_bytes()
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    for seed in range(20):
        assert disk.crash(Random(seed), kept)[f"{PARTITION}/{PARTITION_METADATA}"] == written


def test_an_epoch_without_records_is_durable_after_checkpoints(base: Path) -> None:
    """Two checkpoints: then neither journal file has its entry any more, and no other file of the partition was written."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        other = store.open(PARTITION._replace(partition=1), TOPIC_ID, CONFIG)
        log = open_log(store)
        log.append(batch("a"), leader_epoch=0)
        make_durable(owner, store)
        log.become_leader(7)
        for _ in range(3):
            minute_passes(owner, store, other)
        abandon(store)
    store = after_power_cut(files, base / "found")
    assert open_log(store).leader_epoch >= 7
    store.close()


def test_a_log_start_within_a_segment_is_durable_after_checkpoints(base: Path) -> None:
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = open_log(store, LogConfig())
        for _ in range(5):
            log.append(batch("a"), leader_epoch=0)
        store.flush()
        log.delete_before(3)
        for _ in range(3):
            log.append(batch("b"), leader_epoch=0)
            make_durable(owner, store)
        abandon(store)
    store = after_power_cut(files, base / "found")
    assert open_log(store).log_start_offset == 3
    store.close()


def test_a_producer_is_known_after_its_batches_were_deleted(base: Path) -> None:
    """Its snapshot is flushed by the checkpoint that comes before the segment goes."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = open_log(store)
        data = build_batch(
            [BatchRecord(None, b"x")], timestamp_ms=1000, producer_id=5, producer_epoch=2, base_sequence=0
        )
        log.append(data, leader_epoch=0)
        for _ in range(6):
            log.append(batch("x" * 100), leader_epoch=0)
            make_durable(owner, store)
        log.delete_before(4)
        make_durable(owner, store)
        assert log.first_base_offset > 0
        for _ in range(3):
            log.append(batch("y" * 100), leader_epoch=0)
            make_durable(owner, store)
        abandon(store)
    store = after_power_cut(files, base / "found")
    state = open_log(store).producers.states[5]
    assert (state.producer_epoch, state.last_sequence) == (2, 0)
    store.close()


def test_a_log_shorter_than_its_start_is_empty(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for _ in range(5):
        log.append(batch("a"), leader_epoch=0)
    store.close()
    (tmp_path / LOG_START_OFFSETS).write_text(f"0\n1\n{PARTITION.topic} {PARTITION.partition} 9\n")
    store = owner.disk(tmp_path)
    log = open_log(store)
    assert (log.log_start_offset, log.end_offset, log.read(9, bytes_max=100)) == (9, 9, b"")
    log.append(batch("b"), leader_epoch=log.leader_epoch)
    store.close()
    store = owner.disk(tmp_path)
    assert (open_log(store).log_start_offset, open_log(store).end_offset) == (9, 10)
    store.close()


def test_the_newest_epoch_is_known_although_all_its_records_were_lost(tmp_path: Path) -> None:
    """Clients may have seen it: the next one has to be higher. Source: LogLoader.load."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store, LogConfig())
    for epoch in (0, 0, 5, 5):
        log.append(batch("a"), leader_epoch=epoch)
    store.close()
    (segment,) = (tmp_path / str(PARTITION)).glob("*.log")
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size // 4)
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    (tmp_path / RECOVERY_POINTS).unlink()  # else the log is not loaded
    store = owner.disk(tmp_path)
    log = open_log(store, LogConfig())
    assert log.end_offset == 1
    assert log.leader_epoch > 5
    assert log.end_offset_for_epoch(5)[1] == 1
    store.close()


def test_a_batch_beyond_the_end_is_not_put_back(tmp_path: Path) -> None:
    """The batch before it is lost: a gap would hide that."""
    store = Owner().disk(tmp_path)
    log = open_log(store)
    log.append(batch("a"), leader_epoch=0)
    store.flush()
    later = bytearray(batch("c"))
    stamp(later, base_offset=2, leader_epoch=0)
    with pytest.raises(OffsetOutOfRangeError):
        log.restore(bytes(later))
    assert log.end_offset == 1
    stamp(later, base_offset=1, leader_epoch=0)
    assert (log.restore(bytes(later)), log.end_offset) == (len(later), 2)
    store.close()


def test_an_epoch_begins_at_the_end_of_the_log_at_the_latest(tmp_path: Path) -> None:
    store = Owner().disk(tmp_path)
    log = open_log(store)
    log.append(batch("a"), leader_epoch=0)
    log.restore_epoch(3, 9)
    assert log.epochs.entries == [(0, 0), (3, 1)]
    store.close()


def test_the_journal_has_lost_its_name_for_good_before_it_is_removed(base: Path) -> None:
    """Half a journal would bring back a partition whose deletion is in the other half."""
    for name in ("0.journal", "1.journal"):
        path = base / "data" / "journal" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    with FaultyFiles(base / "data") as files:
        remove_journal(base / "data")
    kinds = [type(operation) for operation in files.operations]
    assert kinds.index(Renamed) < kinds.index(Synced) < kinds.index(Removed)
    assert list((base / "data").iterdir()) == []


@pytest.mark.parametrize(("gapless_from", "end"), [(None, 3), (0, 1), (1, 1), (2, 1), (3, 3)])
def test_a_gap_ends_the_valid_batches_where_there_may_be_none(
    tmp_path: Path, gapless_from: int | None, end: int
) -> None:
    """Offset 1 is missing: that is a loss unless the batch behind it lies below the recovery point, where the cleaner was."""
    batches = []
    for base_offset in (0, 2):
        data = bytearray(batch("x"))
        stamp(data, base_offset=base_offset, leader_epoch=0)
        batches.append(bytes(data))
    path = tmp_path / "segment"
    path.write_bytes(b"".join(batches))
    with path.open("rb") as file:
        found = ValidBatches(file.fileno(), path, next_offset=0, offset_max=100, gapless_from=gapless_from)
        ends = [span[3] + 1 for _, _, span in found]
    assert ends[-1] == end


def test_a_batch_that_a_flipped_bit_moves_to_the_recovery_point_is_damage(base: Path) -> None:
    """The journal alone has the batch of that offset. It would not be put back, because one with its offset is there."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = open_log(store, LogConfig())
        for value in "abc":
            log.append(batch(value), leader_epoch=0)
        make_durable(owner, store)
        log.append(batch("d"), leader_epoch=0)
        store.flush()
        abandon(store)
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    tree = disk.crash(Random(0), Kept.NONE)
    name = f"{PARTITION}/{0:020d}.log"
    content = bytearray(tree[name] or b"")
    assert len(content) == 3 * len(batch("a"))
    low = 2 * len(batch("a")) + 7
    assert content[low] == 2
    content[low] = 3
    write_tree(base / "flipped", {**tree, name: bytes(content)})
    store = Owner().disk(base / "flipped")
    with pytest.raises(UnavailableError, match="was flushed up to offset 3"):
        open_log(store)
    store.close()


def test_a_segment_rolls_before_an_offset_that_its_indexes_cannot_hold(tmp_path: Path) -> None:
    """Relative offsets are int32. Source: LogSegment.shouldRoll, canConvertToRelativeOffset."""
    segment = Segment(tmp_path, 10, CONFIG, created_ms=0)
    segment.size_bytes, segment.rolling_timestamp_ms = 1, 1000
    clock, limits = Owner().clock, AppendLimits(CONFIG)
    assert not segment.must_roll(10, 10 + (1 << 31) - 1, 1000, limits, clock)
    assert segment.must_roll(10, 10 + (1 << 31), 1000, limits, clock)


def test_a_flush_without_journal_covers_the_files_of_a_running_checkpoint(base: Path) -> None:
    """The checkpoint has taken the files over, and has not flushed them yet."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data", flush="os")
        log = open_log(store)
        files.hold("kohort-storage")
        owner.clock.set(owner.clock.now_ms() + CHECKPOINT_INTERVAL_MS)
        log.append(batch("a"), leader_epoch=0)
        owner.run_turn()
        files.await_held()
        store.flush()
        disk = files.disk()
        for operation in files.operations:
            disk.apply(operation)
        tree = disk.crash(Random(0), Kept.NONE)
        files.release("kohort-storage")
        store.close()
    (content,) = [content for name, content in tree.items() if name.endswith(".log")]
    assert content
    assert b"a" in content
