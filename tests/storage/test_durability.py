"""What a flush covers, and what is left when the power goes: only what was flushed is sure to be there."""

import math
import os
import shutil
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import BULK_BYTES
from kohort.storage.log import Log, LogConfig
from kohort.storage.logs.base import PIECE_BYTES
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.crashed_disk import Synced
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.owner import TOPIC_ID, Owner, batch
from tests.wire.control_batches import control_batch

PARTITIONS = [TopicPartition("t", partition) for partition in range(3)]
VOLATILE = {".log", ".index", ".timeindex", ".journal"}
"""Files that reach the disk when they are flushed. The others are small, and flushed as they are written."""


class GatedDisk:
    """A disk whose flushes wait for a gate, by the thread that asks, and which remembers the files that were flushed."""

    def __init__(self) -> None:
        self.gates = {"kohort-flusher": threading.Event(), "kohort-storage": threading.Event()}
        self.arrived = {name: threading.Semaphore(0) for name in self.gates}
        self.flushed: list[tuple[str, int]] = []

    def open_all(self) -> None:
        for gate in self.gates.values():
            gate.set()

    def __call__(self, fd: int) -> None:
        name = threading.current_thread().name
        if name in self.gates:
            self.arrived[name].release()
            assert self.gates[name].wait(120)
        os.fdatasync(fd)
        self.flushed.append((name, os.fstat(fd).st_ino))


def test_nothing_is_acknowledged_before_its_flush_and_what_came_meanwhile_shares_the_next(tmp_path: Path) -> None:
    owner, disk = Owner(), GatedDisk()
    store = owner.disk(tmp_path, sync=disk)
    logs = [store.open(partition, TOPIC_ID, LogConfig()) for partition in PARTITIONS]
    logs[0].append(batch("first"), leader_epoch=0)
    owner.run_turn()
    assert disk.arrived["kohort-flusher"].acquire(timeout=120)
    for _ in range(4):
        for log in logs:
            log.append(batch("later"), leader_epoch=0)
        owner.run_turn()
    owner.run_posted()
    assert [log.high_watermark for log in logs] == [0, 0, 0]
    assert logs[0].read(0, bytes_max=1 << 20)
    disk.open_all()
    owner.wait_for(lambda: [log.high_watermark for log in logs] == [5, 4, 4])
    assert len(disk.flushed) == 2
    store.close()


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_the_last_stable_offset_waits_for_the_flush_of_the_marker(tmp_path: Path, committed: bool) -> None:
    """
    The marker is appended while the flush of the data is under way, so the high watermark comes to stand at the marker.

    Source: UnifiedLog.maybeIncrementFirstUnstableOffset, ProducerStateManager.removeUnreplicatedTransactions.
    """
    owner, disk = Owner(), GatedDisk()
    disk.gates["kohort-storage"].set()
    store = owner.disk(tmp_path, sync=disk)
    log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig())
    data = build_batch(
        [BatchRecord(None, b"x")],
        timestamp_ms=1000,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append(data, leader_epoch=0)
    owner.run_turn()
    assert disk.arrived["kohort-flusher"].acquire(timeout=120)
    marker = control_batch(producer_id=1, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=1000)
    log.append(marker, leader_epoch=0)
    owner.run_turn()
    disk.gates["kohort-flusher"].set()
    seen: list[tuple[int, int]] = []
    log.add_listener(lambda high_watermark: seen.append((high_watermark, log.last_stable_offset)))
    owner.wait_for(lambda: log.high_watermark == 2)
    assert seen == [(1, 0), (2, 2)]
    store.close()


@pytest.mark.parametrize("messages", [1, 3])
def test_flush_messages_holds_back_what_the_system_has(base: Path, messages: int) -> None:
    """
    With `--flush os` a topic may ask for a flush after so many records, which are acknowledged when it is done.

    Source: UnifiedLog.append, flush.messages.
    """
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data", flush="os")
        log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig(flush_messages=messages))
        other = store.open(TopicPartition("other", 0), TOPIC_ID, LogConfig())
        log.append(batch("a"), leader_epoch=0)
        if messages > 1:
            owner.wait_for(lambda: log.high_watermark == 1)
        files.hold("kohort-flusher", before="sync")
        log.append(batch("b", "c"), leader_epoch=0)
        other.append(batch("d"), leader_epoch=0)
        owner.run_turn()
        files.await_held()
        owner.wait_for(lambda: other.high_watermark == 1)
        assert (log.high_watermark < 3, other.high_watermark) == (True, 1)
        before = len(files.operations)
        files.release("kohort-flusher")
        owner.wait_for(lambda: log.high_watermark == 3)
        synced = [operation for operation in files.operations[before:] if isinstance(operation, Synced)]
        assert synced, "the partition's files were flushed"
        assert not (base / "data" / "journal").exists()
        log.append(batch("e"), leader_epoch=0)
        store.flush()
        assert log.high_watermark == 4
        store.close()


def test_a_bulk_flush_covers_what_a_running_checkpoint_has_not_flushed_yet(tmp_path: Path) -> None:
    """Else a segment in the middle might be torn, and recovery would drop the bulk data behind it."""
    owner, disk = Owner(), GatedDisk()
    disk.gates["kohort-flusher"].set()
    store = owner.disk(tmp_path, sync=disk)
    bulk = batch("x" * BULK_BYTES)
    log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig(segment_bytes=120))
    log.append(batch("in a segment that is rolled before the checkpoint"), leader_epoch=0)
    log.append(batch("in the segment that is active then"), leader_epoch=0)
    owner.clock.set(owner.clock.now_ms() + 60_000)
    owner.run_turn()
    assert disk.arrived["kohort-storage"].acquire(timeout=120)
    log.config = LogConfig(segment_bytes=len(bulk))
    log.append(bulk, leader_epoch=0)
    owner.wait_for(lambda: log.high_watermark == 3)
    segments = {path.stat().st_ino for path in (tmp_path / "t-0").glob("*.log")}
    assert len(segments) == 3
    assert {("kohort-flusher", inode) for inode in segments} <= set(disk.flushed)
    disk.open_all()
    store.close()


class ForgetfulDisk:
    """A disk that can tell what it held if the power had gone: each file as it was when it was last flushed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._durable: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def __call__(self, fd: int) -> None:
        with self._lock:
            status = os.fstat(fd)
            if not stat.S_ISDIR(status.st_mode):
                self._durable[status.st_ino] = os.pread(fd, status.st_size, 0)

    def power_off(self, to: Path, chance: Random) -> None:
        """What is found afterwards: what was flushed, or as much more as the operating system had happened to write."""
        with self._lock:
            while True:
                try:
                    self._copy_all(to, chance)
                except FileNotFoundError:  # the threads of the store made or removed a name meanwhile
                    shutil.rmtree(to)
                else:
                    return

    def _copy_all(self, to: Path, chance: Random) -> None:
        to.mkdir()
        for path in sorted(self._data_dir.rglob("*")):
            target = to / path.relative_to(self._data_dir)
            if path.is_dir():
                target.mkdir()
            elif path.suffix == ".tmp":
                continue  # a checkpoint is writing it
            elif path.suffix not in VOLATILE:
                shutil.copyfile(path, target)
            else:
                self._copy(path, target, chance)

    def _copy(self, path: Path, target: Path, chance: Random) -> None:
        durable, present = self._durable.get(path.stat().st_ino), path.read_bytes()
        kept = chance.choice(["durable", "present", "front", "back"])
        where = chance.randint(0, len(present))
        before = (durable or b"").ljust(len(present), b"\x00")
        if kept == "present":
            target.write_bytes(present)
        elif kept == "front":
            target.write_bytes(present[:where] + before[where:])
        elif kept == "back":
            target.write_bytes(before[:where] + present[where:])
        elif durable is not None:
            target.write_bytes(durable)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 900)),
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(PIECE_BYTES - 100, 3 * PIECE_BYTES)),
        st.tuples(st.just("append"), st.integers(0, 2), st.just(BULK_BYTES)),
        st.tuples(st.just("turn"), st.just(0), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("minute"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


def run(owner: Owner, store: DiskStore, logs: Sequence[Log], action: tuple[str, int, int]) -> None:
    kind, partition, size = action
    if kind == "append":
        log = logs[partition]
        log.append(batch(f"{partition}:{log.end_offset}:" + "x" * size), leader_epoch=0)
    elif kind == "turn":
        owner.run_turn()
    elif kind == "flush":
        store.flush()
    else:
        owner.clock.set(owner.clock.now_ms() + 60_000)
    owner.run_posted()


def contents(log: Log) -> bytes:
    found, offset = b"", 0
    while data := log.read(offset, bytes_max=1 << 20):
        found += data
        offset = list(iter_spans(data))[-1][3] + 1
    return found


@settings(max_examples=400 if LONG else 25, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, seed=st.integers(0, 1 << 32), owner_flush_ms_max=st.sampled_from([0, math.inf]))
def test_what_was_acknowledged_survives_the_power_going(
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[tuple[str, int, int]],
    seed: int,
    owner_flush_ms_max: float,
) -> None:
    base, owner = tmp_path_factory.mktemp("base"), Owner()
    disk = ForgetfulDisk(base / "data")
    store = owner.disk(base / "data", sync=disk, journal_file_bytes=3000, owner_flush_ms_max=owner_flush_ms_max)
    config = LogConfig(segment_bytes=BULK_BYTES + 1000, index_interval_bytes=500)
    logs = [store.open(partition, TOPIC_ID, config) for partition in PARTITIONS]
    for action in actions:
        run(owner, store, logs, action)
    acknowledged = [log.high_watermark for log in logs]
    disk.power_off(base / "crashed", Random(seed))
    written = [contents(log) for log in logs]
    store.close()
    store = owner.disk(base / "crashed", sync=lambda _: None)
    for partition, high_watermark, expected in zip(PARTITIONS, acknowledged, written, strict=True):
        log = store.open(partition, TOPIC_ID, config)
        assert log.end_offset >= high_watermark
        assert expected.startswith(contents(log))
    store.close()
    shutil.rmtree(base)


def test_the_journal_is_bounded_however_long_a_checkpoint_lasts(base: Path) -> None:
    file_bytes = 4096
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data", journal_file_bytes=file_bytes)
        logs = [store.open(partition, TOPIC_ID, LogConfig()) for partition in PARTITIONS]
        logs[0].append(batch("x"), leader_epoch=0)
        files.hold("kohort-storage")
        owner.clock.set(owner.clock.now_ms() + 60_000)
        store.flush()
        files.await_held()
        for _ in range(100):
            for log in logs:
                log.append(batch("x" * 500), leader_epoch=0)
            owner.run_turn()
            store.flush()
        longest = max(path.stat().st_size for path in (base / "data" / "journal").iterdir())
        assert 4 * file_bytes <= longest < 5 * file_bytes
        assert [log.high_watermark for log in logs] == [101, 100, 100]
        shutil.copytree(base / "data", base / "killed")
        files.release("kohort-storage")
        store.close()
    with FaultyFiles(base / "killed"):
        store = Owner().disk(base / "killed")
        assert [store.open(partition, TOPIC_ID, LogConfig()).end_offset for partition in PARTITIONS] == [101, 100, 100]
        store.close()
