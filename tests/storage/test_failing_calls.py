"""
A disk that fails: at every system call of a story, once or for good, with every error that disks have.

Whoever is hit is told KAFKA_STORAGE_ERROR; what was acknowledged is there after the next start; and where one partition's
directory fails, the others go on.
"""

import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from errno import EIO, ENOSPC, EOPNOTSUPP, EROFS
from functools import partial
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError, ErrorCode, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.flush_coordinator import BULK_BYTES
from kohort.storage.files import syscalls
from kohort.storage.log import LogConfig
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.segments.aborted import AbortedIndex
from kohort_lab.crashed_disk import Mark
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.conftest import LONG
from tests.storage.owner import TOPIC_ID, Owner, batch
from tests.storage.story import FIRST, GONE, SECOND, A, B, C, Known, Story, check_store, expect
from tests.storage.test_every_crash import open_store

EVERY = 1 if LONG else 17
"""How many calls lie between those that fail."""


def tell(story: Story) -> None:
    """What was refused is not asked again."""
    for round_ in range(3):
        for topic_partition in (A, B, GONE) * 4:
            attempt(story, partial(story.append, topic_partition, size=200))
        attempt(story, partial(story.append, C, size=BULK_BYTES + 10))
        attempt(story, story.flush)
        attempt(story, partial(story.raise_epoch, A, round_ + 1))
        attempt(story, partial(story.delete_before, B, 3))
        story.owner.clock.set(story.owner.clock.now_ms() + 60_000)
        attempt(story, story.flush)
        story.settle()
    attempt(story, partial(story.delete, GONE, FIRST))
    attempt(story, partial(story.append, GONE, topic_id=SECOND))
    attempt(story, story.flush)
    story.store.close()


def attempt(story: Story, action: Callable[[], object]) -> None:
    with suppress(StorageError):
        action()
    story.owner.run_posted()


@pytest.mark.parametrize("code", [EIO, ENOSPC])
@pytest.mark.parametrize("is_for_good", [False, True], ids=["once", "for good"])
def test_what_was_acknowledged_is_there_after_a_failure(base: Path, code: int, is_for_good: bool) -> None:
    for number in range(code % EVERY, calls(base), EVERY):
        asked = 0

        def refuse(_call: str, _path: Path, number: int = number) -> int | None:
            nonlocal asked
            asked += 1
            return code if asked == number + 1 or (is_for_good and asked > number) else None

        root = base / "failed"
        with FaultyFiles(root, refuse=refuse) as files, suppress(ConfigError):  # it could not be started
            tell(Story(root, files))
        *_, known = [Known(), *expect(files.operations)]
        with FaultyFiles(root):
            store = open_store(root)
            try:
                check_store(store, known)
            except AssertionError as error:
                raise AssertionError(f"call {number} failed: {error}") from error
            finally:
                store.close()
        shutil.rmtree(root)


def calls(base: Path) -> int:
    with FaultyFiles(base / "sound") as files:
        tell(Story(base / "sound", files))
    return sum(not isinstance(operation, Mark) for operation in files.operations)


# fmt: off
HITS = {  # what fails in the directory of t-0
    "a write: no space":    ("write", ".log", ENOSPC, "make room"),
    "a write: an error":    ("write", ".log", EIO, "look after the disk"),
    "a write: read-only":   ("write", ".log", EROFS, "writable"),
    "a new segment":        ("open", ".log", ENOSPC, "make room"),
    "an index":             ("open", ".index", ENOSPC, "make room"),
    "a snapshot":           ("open", ".snapshot", EIO, "look after the disk"),
}
# fmt: on


@pytest.mark.parametrize("what", HITS)
def test_one_partition_goes_offline_and_the_others_go_on(base: Path, what: str) -> None:
    call, suffix, code, hint = HITS[what]
    owner, other = Owner(), TopicPartition("t", 1)
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data")
        config = LogConfig(segment_bytes=300)
        logs = [store.open(partition, TOPIC_ID, config) for partition in (A, other)]
        for log in logs:
            log.append(batch("before"), leader_epoch=0)
        store.flush()
        hit = fail_on(call, suffix, code=code)
        files.refuse = lambda name, path: hit(name, path) if path.parent == logs[0].directory else None
        for _ in range(5):
            with suppress(UnavailableError):
                logs[0].append(batch("x" * 80), leader_epoch=0)
            logs[1].append(batch("x" * 80), leader_epoch=0)
        store.flush()
        with pytest.raises(UnavailableError, match=hint) as refused:
            logs[0].append(batch("later"), leader_epoch=0)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t-0 is offline" in str(refused.value)
        assert store.offline_reason is None
        metrics = store.flush_metrics()
        assert [log.is_offline for log in store.log_metrics()] == [True, False]
        assert metrics.flushes == 2
        assert metrics.flush_time_s > 0
        assert logs[1].high_watermark == 6
        acknowledged = logs[0].high_watermark
        files.refuse = lambda _name, _path: None
        store.close()
        store = open_store(base / "data")
        assert store.open(A, TOPIC_ID, config).end_offset >= acknowledged
        assert store.open(other, TOPIC_ID, config).end_offset == 6
        store.close()


@pytest.mark.parametrize("how", ["read", "append", "bulk"])
def test_a_file_that_somebody_deleted_takes_its_partition_offline(base: Path, how: str) -> None:
    owner, other = Owner(), TopicPartition("t", 1)
    with FaultyFiles(base / "data"):
        store = owner.disk(base / "data")
        logs = [store.open(partition, TOPIC_ID, LogConfig()) for partition in (A, other)]
        for log in logs:
            log.append(batch("before"), leader_epoch=0)
        store.flush()
        (logs[0].directory / f"{0:020d}.log").unlink()
        if how != "bulk":  # its file was closed to make room for others
            segment = logs[0].segments[0]
            segment.close()
            assert segment.file is not None
            segment.file.close()
        act: Callable[[], object] = {
            "read": lambda: logs[0].read(0, bytes_max=1),
            "append": lambda: logs[0].append(batch("x"), leader_epoch=0),
            "bulk": lambda: logs[0].append(batch("x" * BULK_BYTES), leader_epoch=0),
        }[how]
        with suppress(UnavailableError):
            act()
        logs[1].append(batch("after"), leader_epoch=0)
        store.flush()
        owner.run_posted()
        with pytest.raises(UnavailableError, match="only Kohort may change that directory"):
            logs[0].read(0, bytes_max=1)
        assert logs[0].high_watermark == 1, "what is not on the disk was not acknowledged"
        assert logs[1].high_watermark == 2
        store.close()


def test_a_read_that_fails_once(base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost by it: the request fails, and the next one reads. The same failure is logged once."""
    owner, offline, failures = Owner(), [], [EIO, EIO]
    store = owner.disk(base / "data")
    store.open(A, TOPIC_ID, LogConfig()).append(batch("v"), leader_epoch=0)
    store.close()
    store = owner.disk(base / "data")
    log = store.open(A, TOPIC_ID, LogConfig())
    log.when_offline(lambda: offline.append(True))
    pread = os.pread

    def failing(fd: int, size: int, position: int) -> bytes:
        if failures:
            raise OSError(failures.pop(), "Input/output error")
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", failing)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="cannot be read"):
            log.read(0, bytes_max=1)
    assert len(log.read(0, bytes_max=1)) > 0
    assert (log.refusal, offline) == (None, [])
    assert [record.levelname for record in caplog.records if "read_failed" in record.message] == ["ERROR"]
    store.close()


def test_a_directory_that_cannot_be_used_is_a_sentence(base: Path) -> None:
    with FaultyFiles(base / "data", refuse=lambda _call, _path: EROFS), pytest.raises(ConfigError, match="writable"):
        Owner().disk(base / "data")
    with FaultyFiles(base / "data"):
        Owner().disk(base / "data").close()


def test_a_file_system_that_allocates_nothing_has_a_journal_all_the_same(base: Path) -> None:
    """Some know no fallocate, and not every C library writes zeros instead. It only saves time."""
    with FaultyFiles(base / "data", refuse=fail_on("allocate", ".journal", code=EOPNOTSUPP)):
        store = Owner().disk(base / "data")
        log = store.open(A, TOPIC_ID, LogConfig())
        log.append(batch("v"), leader_epoch=0)
        store.flush()
        assert (log.high_watermark, store.offline_reason) == (1, None)
        store.close()


def test_a_directory_that_becomes_a_topics_and_cannot_be_written_to_goes_offline(base: Path) -> None:
    """Nothing is appended to it: its topic is not known after a crash. The next start tries again."""
    with FaultyFiles(base / "data") as files:
        store = Owner().disk(base / "data")
        store.open(A, TOPIC_ID, LogConfig()).append(batch("v"), leader_epoch=0)
        store.close()
        (base / "data" / str(A) / "partition.metadata").unlink()
        files.refuse = fail_on("open", "partition.metadata", code=EROFS)
        owner = Owner()
        store = owner.disk(base / "data")
        log = store.open(A, TOPIC_ID, LogConfig())
        log.append(batch("refused"), leader_epoch=0)
        owner.wait_for(lambda: log.refusal is not None)
        assert "make that file system writable" in str(log.refusal)
        assert log.high_watermark == 1
        store.close()
        files.refuse = lambda _call, _path: None
        store = Owner().disk(base / "data")
        assert store.open(A, TOPIC_ID, LogConfig()).end_offset == 1
        store.close()


def test_an_entry_that_the_system_takes_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = syscalls.write
    monkeypatch.setattr(syscalls, "write", lambda fd, data: write(fd, data[:10]))
    index = AbortedIndex(tmp_path / "0.txnindex")
    entries = [AbortedTxn(7, first, first + 1, first) for first in range(3)]
    for entry in entries:
        index.append(entry)
    assert AbortedIndex(tmp_path / "0.txnindex").entries == entries


@pytest.mark.parametrize("owner_flush_ms_max", [0, math.inf], ids=["by the flusher", "by the owner"])
def test_a_failed_flush_is_never_tried_again(base: Path, owner_flush_ms_max: float) -> None:
    owner = Owner()
    synced: list[Path] = []

    def refuse(call: str, path: Path) -> int | None:
        if call == "sync" and path.suffix == ".journal":
            synced.append(path)
            return EIO if len(synced) > 1 else None
        return None

    with FaultyFiles(base / "data", refuse=refuse):
        store = owner.disk(base / "data", owner_flush_ms_max=owner_flush_ms_max)
        log = store.open(A, TOPIC_ID, LogConfig())
        log.append(batch("before"), leader_epoch=0)
        for _ in range(3):
            with suppress(UnavailableError):
                store.flush()
        assert len(synced) == 2
        assert log.high_watermark == 0
        assert "offline since a flush failed" in (store.offline_reason or "")
        with pytest.raises(UnavailableError, match="look after the disk, whose errors"):
            log.append(batch("later"), leader_epoch=0)
        store.close()


def test_a_checkpoint_that_failed_is_over(base: Path) -> None:
    """Nobody waits for it, and it holds on to nothing."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = store.open(A, TOPIC_ID, LogConfig())
        log.append(batch("before"), leader_epoch=0)
        store.flush()
        files.refuse = fail_on("sync", ".log")
        store._flush_coordinator.want_checkpoint()
        owner.wait_for(lambda: store.offline_reason is not None)
        assert store._flush_coordinator.checkpoints.running is None
        store.close()


def test_segments_that_cannot_be_taken_out_take_their_partition_offline_alone(base: Path) -> None:
    """The checkpoint that deletes them is over all the same: one that never ended would be the last, and the journal grow."""
    owner, other = Owner(), TopicPartition("t", 1)
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data")
        logs = [store.open(partition, TOPIC_ID, LogConfig(segment_bytes=300)) for partition in (A, other)]
        for _ in range(9):
            for log in logs:
                log.append(batch("x" * 80), leader_epoch=0)
        store.flush()
        hit = fail_on("rename", ".log", code=EROFS)
        files.refuse = lambda name, path: hit(name, path) if path.parent == logs[0].directory else None
        for log in logs:
            log.delete_before(8)
        store.flush()
        owner.wait_for(lambda: logs[1].first_base_offset > 0 and logs[0].refusal is not None)
        assert store._flush_coordinator.checkpoints.running is None
        with pytest.raises(UnavailableError, match=r"t-0 is offline .* make that file system writable"):
            logs[0].read(8, bytes_max=1)
        assert logs[1].append(batch("more"), leader_epoch=0) == 10
        store.flush()
        assert logs[1].high_watermark == 10
        files.refuse = lambda _name, _path: None
        store.close()
        store = open_store(base / "data")
        assert (logs[0].log_start_offset, store.open(A, TOPIC_ID, LogConfig()).log_start_offset) == (8, 8)
        store.close()


@pytest.mark.parametrize("where", [".journal", ".log"], ids=["a flush", "a checkpoint"])
@pytest.mark.parametrize("owner_flush_ms_max", [0, math.inf], ids=["by the flusher", "by the owner"])
def test_what_is_no_error_of_the_disk_ends_a_store_too(base: Path, owner_flush_ms_max: float, where: str) -> None:
    """No memory, no thread: whoever waits must not wait for ever, nor a checkpoint last for ever."""

    def refuse(call: str, path: Path) -> int | None:
        if call == "sync" and path.suffix == where:
            raise MemoryError("no room for it")
        return None

    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data", owner_flush_ms_max=owner_flush_ms_max)
        log = store.open(A, TOPIC_ID, LogConfig())
        log.append(batch("before"), leader_epoch=0)
        store.flush()
        files.refuse = refuse
        with suppress(UnavailableError):
            log.append(batch("x"), leader_epoch=0)
        store._flush_coordinator.want_checkpoint()
        owner.wait_for(lambda: store.offline_reason is not None)
        assert "no room for it; look at what the log says of it" in (store.offline_reason or "")
        files.refuse = lambda _call, _path: None
        store.close()
