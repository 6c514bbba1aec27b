"""A disk of which one call hangs, is slow or fails once: who waits for it, who does not, and what is there afterwards."""

import os
import threading
from collections.abc import Callable, Iterator
from errno import EIO, ENOENT
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import BULK_BYTES
from kohort.storage.durability.journal import journal_files
from kohort.storage.files.directory import JOURNAL
from kohort.storage.files.journal_format import read_journal
from kohort.storage.log import LogConfig, TimestampOffset
from kohort.wire.batches import BatchRecord, build_batch, read_records
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.storage.compacted import make_durable
from tests.storage.owner import TOPIC_ID, WAIT_SECONDS, Owner, abandon, batch, no_calls

A, B, C = (TopicPartition("t", partition) for partition in range(3))
CONFIG = LogConfig(segment_bytes=250)
CALLS = ("open", "write", "sync", "rename", "mkdir")


class Trial:
    """A store of two partitions with some records each, which is told what to do by hand."""

    def __init__(self, files: FaultyFiles, root: Path, flush: str) -> None:
        self.files = files
        self.owner = Owner()
        self.store = self.owner.disk(root, flush=flush, written_bytes_kept=1 << 20)
        for topic_partition in (A, B):
            self.append(topic_partition)
        self.store.flush()

    def append(self, topic_partition: TopicPartition, topic_id: UUID = TOPIC_ID) -> None:
        log = self.store.open(topic_partition, topic_id, CONFIG)
        log.append(batch(f"{log.end_offset}".ljust(60)), leader_epoch=max(log.leader_epoch, 0))

    def work(self) -> None:
        """Appends that roll segments, a new partition, a deletion, and a partition of the deleted name."""
        for _ in range(6):
            self.append(A)
            self.append(C)
        self.store.delete(B)
        self.append(B, UUID(int=8))

    def contents(self) -> dict[TopicPartition, list[int]]:
        return {topic_partition: values(self.store, topic_partition) for topic_partition in (A, B, C)}


WRITTEN = {A: list(range(7)), B: [0], C: list(range(6))}


def values(store: DiskStore, topic_partition: TopicPartition) -> list[int]:
    log = store.get(topic_partition)
    assert log is not None
    found: list[int] = []
    while len(found) < log.end_offset:
        data = log.read(len(found), bytes_max=1)
        found += [int(record.value or b"") for record in read_records(data)]
    return found


@pytest.fixture(params=["commit", "os"])
def trial(request: pytest.FixtureRequest, base: Path) -> Iterator[Trial]:
    with FaultyFiles(base / "data") as files:
        yield Trial(files, base / "data", request.param)


@pytest.mark.parametrize("call", CALLS)
def test_nobody_waits_for_a_call_that_hangs_but_who_needs_it(trial: Trial, call: str) -> None:
    """The owner's thread goes on, and reads what is not written; when the disk answers, all of it is there."""
    owner, store = trial.owner, trial.store
    is_flushed = call != "sync" or store._flush_coordinator._is_journaled
    trial.files.hold("kohort-flusher", before=call)
    trial.work()
    owner.run_turn()
    if is_flushed:
        trial.files.await_held()
    assert trial.contents() == WRITTEN
    if is_flushed:
        owner.run_posted()
        assert [log.high_watermark for log in store._logs.values() if log.topic_partition != A] == [0, 0]
    trial.files.release("kohort-flusher")
    owner.wait_for(lambda: all(log.high_watermark == log.end_offset for log in store._logs.values()))
    store.close()
    again = Owner().disk(store.data_dir)
    assert {it: values(again, it) for it in again.partitions()} == WRITTEN
    again.close()


def test_the_owner_makes_no_call(trial: Trial) -> None:
    owner, store = trial.owner, trial.store
    with no_calls():
        trial.work()
        owner.wait_for(lambda: all(log.high_watermark == log.end_offset for log in store._logs.values()))
        log = store.get(A)
        assert log is not None
        log.delete_before(6)
        store._flush_coordinator.want_checkpoint()
        owner.wait_for(lambda: log.first_base_offset > 0)
        log.apply_retention(1 << 50)
        owner.settle(store)
    gone = [log.directory / f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".checksums")]
    assert not any(path.exists() for path in gone)
    trial.store.close()


@pytest.mark.parametrize("number", range(0, 60, 3))
def test_a_call_that_fails_once_takes_its_partition_offline_and_loses_nothing_acknowledged(
    trial: Trial, number: int
) -> None:
    """A failed flush ends the store, as always."""
    count = 0

    def fail_once(_call: str, _path: Path) -> int | None:
        nonlocal count
        if threading.current_thread().name != "kohort-flusher":
            return None
        count += 1
        return EIO if count == number + 1 else None

    trial.files.refuse = fail_once
    try:
        trial.work()
        trial.store.flush()
    except UnavailableError:
        pass
    trial.files.refuse = lambda _call, _path: None
    acknowledged = {it: log.high_watermark for it, log in trial.store._logs.items()}
    ids = {it: log.topic_id for it, log in trial.store._logs.items()}
    trial.store.close()
    again = Owner().disk(trial.store.data_dir)
    for topic_partition, end in acknowledged.items():
        if end:
            assert again.open(topic_partition, ids[topic_partition], CONFIG).end_offset >= end
            assert values(again, topic_partition)[:end] == WRITTEN[topic_partition][:end]
    again.close()


def test_appends_in_memory_are_bounded(base: Path) -> None:
    """While the disk takes nothing; when it answers, appends are taken again."""
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data")
        store._flush_coordinator.tails.unwritten_max = 10_000
        log = store.open(A, TOPIC_ID, LogConfig())
        files.hold("kohort-flusher")
        refused: list[str] = []
        for _ in range(20):
            try:
                log.append(batch("x" * 1000), leader_epoch=0)
            except UnavailableError as exc:
                refused.append(str(exc))
            owner.run_turn()
        end_offset = log.end_offset
        assert 8 <= end_offset <= 11
        assert len(refused) == 20 - end_offset
        assert "has not written" in refused[0]
        assert log.refusal is None
        files.release("kohort-flusher")
        owner.wait_for(lambda: log.high_watermark == end_offset)
        log.append(batch("x" * 1000), leader_epoch=0)
        owner.wait_for(lambda: log.high_watermark == end_offset + 1)
        assert store._flush_coordinator.tails.unwritten == 0
        store.close()


def test_a_stop_waits_for_a_disk_that_hangs_for_some_time(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next start recovers what was acknowledged."""
    owner, gate = Owner(), threading.Event()
    is_hanging = threading.Event()

    def sync(fd: int) -> None:
        if is_hanging.is_set():
            gate.wait(WAIT_SECONDS)
        os.fdatasync(fd)

    store = owner.disk(base / "data", sync=sync, stop_s=0.05)
    log = store.open(A, TOPIC_ID, CONFIG)
    log.append(batch("0"), leader_epoch=0)
    store.flush()
    is_hanging.set()
    log.append(batch("1"), leader_epoch=0)
    store.close()
    assert "has not answered for 0.05 s" in caplog.text
    gate.set()
    store._flush_coordinator._flusher.stop()
    again = Owner().disk(base / "data")
    assert again.open(A, TOPIC_ID, CONFIG).end_offset >= 1
    again.close()


def test_a_view_reads_on_another_thread_what_the_log_had(base: Path) -> None:
    owner = Owner()
    store = owner.disk(base / "data", flush="os")
    log = store.open(A, TOPIC_ID, CONFIG)
    for number in range(9):
        log.append(batch(f"{number}".ljust(60), timestamp_ms=1000 + number), leader_epoch=0)
    unwritten = log.view()
    store.flush()
    written = log.view()
    for number in range(9, 12):
        log.append(batch(f"{number}".ljust(60), timestamp_ms=1000 + number), leader_epoch=0)
    wanted = [log.read(offset, bytes_max=1) for offset in range(9)]
    found = log.offset_for_timestamp(1004)
    for view in (unwritten, written):
        assert elsewhere(lambda view=view: [view.read(offset, bytes_max=1) for offset in range(9)]) == wanted  # type: ignore[misc]
        assert view.end_offset == 9
        assert elsewhere(lambda view=view: view.read(9, bytes_max=1)) == b""  # type: ignore[misc]
        assert elsewhere(lambda view=view: view.offset_for_timestamp(1004)) == found  # type: ignore[misc]
        newest = elsewhere(view.max_timestamp)
        assert isinstance(newest, TimestampOffset)
        assert newest.offset == 8
        view.close()
    store.close()


def test_a_view_of_segments_that_are_gone_is_taken_again(base: Path) -> None:
    """Another error fails the request, and takes the partition offline if a file is missing."""
    owner = Owner()
    store = owner.disk(base / "data", flush="os")
    log = store.open(A, TOPIC_ID, CONFIG)
    for number in range(9):
        log.append(batch(f"{number}".ljust(60)), leader_epoch=0)
    store.flush()
    view = log.view()
    log.delete_before(8)
    make_durable(owner, store)
    owner.settle(store)
    with pytest.raises(FileNotFoundError) as gone:
        view.read(0, bytes_max=1)
    assert log.read_failed(view, gone.value)
    view.close()
    assert log.refusal is None
    view = log.view()
    assert not log.read_failed(view, OSError(EIO, "Input/output error"))
    assert log.refusal is None
    assert not log.read_failed(view, FileNotFoundError(ENOENT, "No such file"))
    assert "No such file" in str(log.refusal)
    with pytest.raises(UnavailableError):
        log.view()
    store.close()


@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.usefixtures("cold_page_cache")
def test_what_is_in_memory_is_read_without_the_disk(base: Path, kept: int) -> None:
    owner = Owner()
    store = owner.disk(base / "data", flush="os", written_bytes_kept=kept)
    log = store.open(A, TOPIC_ID, LogConfig())
    for number in range(50):
        log.append(batch(f"{number}".ljust(300)), leader_epoch=0)
    assert log.read_cached(0, bytes_max=1 << 20) == log.read(0, bytes_max=1 << 20)
    assert log.read_cached(7, bytes_max=1000, up_to=20) == log.read(7, bytes_max=1000, up_to=20)
    assert log.read_cached(50, bytes_max=1) == b""
    store.flush()
    found = log.read_cached(0, bytes_max=1 << 20)
    assert found == (log.read(0, bytes_max=1 << 20) if kept else None)
    store.close()


def elsewhere(work: Callable[[], object]) -> object:
    """The result of a call on another thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(WAIT_SECONDS)
    return found[0]


def test_the_journal_has_nothing_of_a_log_whose_write_failed(base: Path) -> None:
    """Its entry would say that the data before it, which is not in the journal, had been flushed."""
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data")
        logs = [store.open(topic_partition, TOPIC_ID, LogConfig()) for topic_partition in (A, B)]
        for log in logs:
            log.append(batch("0"), leader_epoch=0)
        store.flush()
        hit = fail_on("write", ".log", code=EIO)
        files.refuse = lambda call, path: hit(call, path) if path.parent == logs[0].directory else None
        files.hold("kohort-flusher")
        for value in ("1" * BULK_BYTES, "2"):
            for log in logs:
                log.append(batch(value), leader_epoch=0)
            owner.run_turn()
            if len(value) > 1:
                files.await_held()
        files.release("kohort-flusher")
        owner.wait_for(lambda: logs[1].high_watermark == 3)
        assert (logs[0].high_watermark, logs[0].refusal is None) == (1, False)
        entries = [entry.topic_partition for entry in read_journal(journal_files(base / "data" / JOURNAL))]
        assert entries == [A, B, B]
        abandon(store)
    again = Owner().disk(base / "data")
    assert [again.open(log.topic_partition, TOPIC_ID, LogConfig()).end_offset for log in logs] == [1, 3]
    again.close()


def test_nothing_refers_to_the_bytes_of_a_batch_that_has_ended(base: Path) -> None:
    owner = Owner()
    store = owner.disk(base / "data")
    log = store.open(A, TOPIC_ID, LogConfig())
    log.append(batch("x"), leader_epoch=0)
    write = log.segments[-1].write
    assert write is not None
    store.flush()
    assert (write.flush_batch, write._pieces, log.flush_batch) == (None, [], None)
    log.append(batch("y"), leader_epoch=0)
    store.flush()
    assert log.high_watermark == 2
    store.close()


def test_files_of_a_deleted_partition_are_not_looked_for_in_its_successor(base: Path) -> None:
    """The background thread comes late, and finds another directory of that name."""
    owner = Owner()
    store = owner.disk(base / "data", flush="os")
    log = store.open(A, TOPIC_ID, CONFIG)
    for number in range(9):
        log.append(batch(f"{number}".ljust(60)), leader_epoch=0)
    store.flush()
    remove = log.drop_before(6)
    assert remove is not None
    store.delete(A)
    again = store.open(A, UUID(int=8), CONFIG)
    again.append(batch("successor"), leader_epoch=0)
    store.flush()
    remove()
    assert (again.directory / f"{0:020d}.log").exists()
    store.close()


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_the_last_stable_offset_below_the_log_start(base: Path, flush: str) -> None:
    """
    It is the base offset of the batch that holds the log start, which the disk thread reads. It does not move back, and it is
    known when the deletion is answered.
    """
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data", flush=flush)
        log = store.open(A, TOPIC_ID, LogConfig())
        for sequence in (0, 5, 10):
            records = [BatchRecord(None, b"v")] * 5
            log.append(
                build_batch(
                    records, timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
                ),
                leader_epoch=0,
            )
        store.flush()
        for log_start_offset, before, after in ((7, 0, 5), (12, 5, 10)):
            told: list[int] = []
            files.hold("kohort-flusher")
            with no_calls():
                log.delete_before(log_start_offset, lambda told=told: told.append(log.last_stable_offset))  # type: ignore[misc]
                owner.run_turn()
                assert (log.last_stable_offset, told) == (before, [])
            files.release("kohort-flusher")
            owner.wait_for(lambda told=told: bool(told))  # type: ignore[misc]
            assert (log.last_stable_offset, told) == (after, [after])
        abandon(store)
        if flush == "os":  # without a journal the log start is durable with the next checkpoint
            return
        store = owner.disk(base / "data")
        assert store.open(A, TOPIC_ID, LogConfig()).last_stable_offset == 10
        store.close()
        store = owner.disk(base / "data", wait_s=WAIT_SECONDS)
        owner.run_posted()
        with no_calls():
            log = store.open(A, TOPIC_ID, LogConfig())
            owner.wait_for(lambda: log.last_stable_offset == 10)
        store.close()
