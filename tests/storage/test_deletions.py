"""A partition that was deleted stays so, whatever a crash leaves of its directory; its successor by name gets nothing."""

import shutil
import threading
from errno import EROFS
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore, open_logs
from kohort.storage.durability.checkpoints import write_epochs
from kohort.storage.durability.flush_coordinator import BULK_BYTES, CHECKPOINT_INTERVAL_MS
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.files.checkpoint_formats import PARTITION_METADATA, RECOVERY_POINTS
from kohort.storage.log import LogConfig
from kohort_lab.crashed_disk import ROOT, Removed, Renamed, Synced
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.storage.owner import PARTITION, WAIT_SECONDS, Owner, batch

FIRST, SECOND = UUID(int=1), UUID(int=2)


def crashed(tmp_path: Path, store: DiskStore, name: str) -> Path:
    """What the directory is now, as a process that died would leave it."""
    target = tmp_path / name
    shutil.copytree(store.data_dir, target, ignore=shutil.ignore_patterns("*-delete"))
    return target


def with_deleted(tmp_path: Path, *, is_succeeded: bool) -> tuple[Path, Path]:
    """
    A partition that a checkpoint has flushed, and that was deleted afterwards: its directory as it was before, and the data
    directory after the crash.
    """
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    store.open(PARTITION, FIRST, LogConfig()).append(batch("first's"), leader_epoch=0)
    store.close()
    store = owner.disk(tmp_path / "data")
    log = store.open(PARTITION, FIRST, LogConfig())
    log.append(batch("more"), leader_epoch=0)
    store.flush()
    kept = tmp_path / "kept"
    shutil.copytree(log.directory, kept)
    store.delete(PARTITION)
    if is_succeeded:
        store.open(PARTITION, SECOND, LogConfig()).append(batch("second's"), leader_epoch=0)
    store.flush()
    await_background(store)
    data_dir = crashed(tmp_path, store, "crashed")
    store.close()
    return kept, data_dir


def await_background(store: DiskStore) -> None:
    """Wait until the directories of deleted partitions are removed."""
    for submit in (store._flush_coordinator.submit, store._opened._removals._thread.submit):
        is_done = threading.Event()
        submit(is_done.set)
        assert is_done.wait(WAIT_SECONDS)


@pytest.mark.parametrize("process_min", [1, 6], ids=["by a process", "by the thread"])
def test_partitions_that_are_deleted_together_are_taken_out_of_the_checkpoint_files_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_min: int
) -> None:
    """The files name all partitions of the directory, so a write for each one takes as long as their square."""
    monkeypatch.setattr(open_logs, "REMOVED_BY_PROCESS_MIN", process_min)
    data_dir, owner = tmp_path / "data", Owner()
    partitions = [TopicPartition("deleted", index) for index in range(5)]
    store = owner.disk(data_dir)
    for each in partitions:
        store.open(each, FIRST, LogConfig()).append(batch("a"), leader_epoch=0)
    store.close()
    store = owner.disk(data_dir)
    are_renamed, written = threading.Event(), list[str]()
    store._flush_coordinator.submit(lambda: assert_set(are_renamed))

    def note(call: str, path: Path) -> None:
        if call == "rename":
            written.append(path.name)

    with FaultyFiles(data_dir, refuse=note):
        for each in partitions:
            store.delete(each)
        store.flush()
        are_renamed.set()
        await_background(store)
    assert not list(data_dir.glob("deleted-*"))
    assert [name for name in written if name.startswith(RECOVERY_POINTS)] == [f"{RECOVERY_POINTS}.tmp"]
    store.close()


def test_partitions_that_are_deleted_together_are_removed_by_one_job(tmp_path: Path) -> None:
    """Jobs that find nothing hold the interpreter one after the other; and what is renamed later has a job of its own."""
    store = Owner().disk(tmp_path / "data")
    for topic in "first", "second":
        partitions = [TopicPartition(topic, index) for index in range(5)]
        for each in partitions:
            store.open(each, FIRST, LogConfig()).append(batch("a"), leader_epoch=0)
        store.flush()
        is_held, are_renamed = threading.Event(), threading.Event()
        store._flush_coordinator.submit(is_held.set)
        store._flush_coordinator.submit(partial(assert_set, are_renamed))
        assert_set(is_held)
        for each in partitions:
            store.delete(each)
        store.flush()
        # The one that waits, unless it has begun, and the removal.
        assert store._flush_coordinator._background._jobs.qsize() <= 2
        are_renamed.set()
        await_background(store)
        assert not list(store.data_dir.glob("*-delete"))
    store.close()


def test_the_new_name_of_a_directory_is_durable_before_a_file_in_it_is_removed(tmp_path: Path) -> None:
    """Else the old name comes back after a crash with a part of the files."""
    data_dir = tmp_path / "data"
    store = Owner().disk(data_dir)
    store.open(PARTITION, FIRST, LogConfig()).append(batch("a"), leader_epoch=0)
    store.flush()
    with FaultyFiles(data_dir) as files:
        store.delete(PARTITION)
        store.flush()
        await_background(store)
    done = files.operations
    renamed = next(at for at, each in enumerate(done) if isinstance(each, Renamed) and each.to.endswith("-delete"))
    removed = next(
        at for at, each in enumerate(done) if isinstance(each, Removed) and each.parent != ROOT and at > renamed
    )
    assert Synced(ROOT) in done[renamed:removed]
    store.close()


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_SECONDS)


def bring_back(kept: Path, data_dir: Path) -> Path:
    """The directory's new name was not durable, nor was anything that was made under the old one."""
    directory = data_dir / str(PARTITION)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(kept, directory)
    return directory


def test_a_directory_that_came_back_is_deleted_again(tmp_path: Path) -> None:
    kept, data_dir = with_deleted(tmp_path, is_succeeded=False)
    bring_back(kept, data_dir)
    store = Owner().disk(data_dir)
    assert list(store.partitions()) == []
    store.close()


def test_a_directory_that_came_back_without_its_owner_is_not_taken_for_its_successors(tmp_path: Path) -> None:
    """Else consumers of the new topic read the old one's records."""
    kept, data_dir = with_deleted(tmp_path, is_succeeded=True)
    (bring_back(kept, data_dir) / PARTITION_METADATA).write_bytes(b"")
    store = Owner().disk(data_dir)
    log = store.open(PARTITION, SECOND, LogConfig())
    assert log.end_offset == 1
    assert b"second's" in log.read(0, bytes_max=1000)
    store.close()


def test_a_directory_that_came_back_in_part_is_deleted_again(tmp_path: Path) -> None:
    """The journal's appends do not fit what is left of its segments, and the deletion comes behind them."""
    kept, data_dir = with_deleted(tmp_path, is_succeeded=False)
    (bring_back(kept, data_dir) / f"{0:020d}.log").unlink()
    store = Owner().disk(data_dir)
    assert list(store.partitions()) == []
    store.close()


@pytest.mark.parametrize("count", [3, 9], ids=["shorter than its namesake was cut", "longer"])
@pytest.mark.parametrize("when", ["after a checkpoint", "during one"])
@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_partition_made_again_does_not_begin_where_its_namesake_did(
    tmp_path: Path, flush: str, when: str, count: int
) -> None:
    """The checkpoint files name partitions, not topics: what they say of the old one would hide the new one's records."""
    owner = Owner()
    store = owner.disk(tmp_path / "data", flush=flush)
    log = store.open(PARTITION, FIRST, LogConfig())
    for _ in range(8):
        log.append(batch("first's"), leader_epoch=0)
    store.flush()
    log.delete_before(6)
    owner.clock.set(owner.clock.now_ms() + CHECKPOINT_INTERVAL_MS)
    log.append(batch("first's"), leader_epoch=0)
    owner.run_turn()
    if when == "after a checkpoint":
        store.flush()
        owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    store.delete(PARTITION)
    log = store.open(PARTITION, SECOND, LogConfig())
    for number in range(count):
        log.append(batch(f"second's {number}"), leader_epoch=0)
    owner.run_turn()
    store.flush()
    owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    data_dir = crashed(tmp_path, store, "crashed")
    store.close()
    store = Owner().disk(data_dir, flush=flush)
    log = store.open(PARTITION, SECOND, LogConfig())
    assert (log.log_start_offset, log.end_offset) == (0, count)
    store.close()


def test_a_partition_that_lost_its_directory_does_not_begin_where_it_did(tmp_path: Path) -> None:
    """What a start finds of no partition that is there, the next one of that name does not find either."""
    owner = Owner()
    store = owner.disk(tmp_path / "data", flush="os")
    log = store.open(PARTITION, FIRST, LogConfig())
    for _ in range(8):
        log.append(batch("first's"), leader_epoch=0)
    store.flush()
    log.delete_before(6)
    store.close()
    shutil.rmtree(log.directory)
    store = Owner().disk(tmp_path / "data", flush="os")
    store.forget_missing(PARTITION)
    store.open(PARTITION, SECOND, LogConfig()).append(batch("second's"), leader_epoch=0)
    store.flush()
    data_dir = crashed(tmp_path, store, "crashed")
    store.close()
    store = Owner().disk(data_dir, flush="os")
    log = store.open(PARTITION, SECOND, LogConfig())
    assert (log.log_start_offset, log.end_offset) == (0, 1)
    store.close()


@pytest.mark.parametrize("is_stray", [False, True])
def test_a_directory_that_cannot_be_renamed_is_nobody_elses(base: Path, *, is_stray: bool) -> None:
    """A log that cannot be taken up, and not be moved away either: the next topic of that name must not write to it."""
    with FaultyFiles(base / "data") as files:
        store = Owner().disk(base / "data")
        store.open(PARTITION, FIRST, LogConfig()).append(batch("first's"), leader_epoch=0)
        store.close()
        strange = base / "data" / str(PARTITION) / "7.log"
        strange.write_bytes(b"")
        store = Owner().disk(base / "data")
        files.refuse = fail_on("rename", str(PARTITION), code=EROFS)
        if is_stray:
            store.rename_to_stray(PARTITION)
        else:
            store.delete(PARTITION)
        store.flush()
        files.refuse = lambda _call, _path: None
        log = store.open(PARTITION, SECOND, LogConfig())
        log.append(batch("second's"), leader_epoch=0)  # the directory is made later, by the disk thread
        store.flush()
        with pytest.raises(UnavailableError, match="make that file system writable"):
            log.append(batch("second's"), leader_epoch=0)
        assert log.high_watermark == 0
        assert sorted(path.name for path in log.directory.glob("*.log")) == [f"{0:020d}.log", "7.log"]
        store.close()


def test_a_journal_that_was_being_removed_counts_no_more(tmp_path: Path) -> None:
    """What half of it would bring back, the other half had taken away."""
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    store.open(PARTITION, FIRST, LogConfig()).append(batch("first's"), leader_epoch=0)
    store.flush()
    journal = crashed(tmp_path, store, "before") / "journal"
    store.delete(PARTITION)
    store.close()
    shutil.copytree(journal, tmp_path / "data" / "journal.old")
    store = owner.disk(tmp_path / "data")
    assert list(store.partitions()) == []
    assert not (tmp_path / "data" / "journal.old").exists()
    store.close()


@pytest.mark.parametrize("by", ["a checkpoint", "a flush past the journal"])
def test_a_partition_made_again_does_not_miss_the_files_of_its_namesake(base: Path, by: str) -> None:
    """They are gone when their flush comes to them. The new one has none yet, and is well."""
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data")
        log = store.open(PARTITION, FIRST, LogConfig())
        thread = "kohort-storage" if by == "a checkpoint" else "kohort-flusher"
        files.hold(thread)
        log.append(batch("first's" if by == "a checkpoint" else "x" * (BULK_BYTES + 1)), leader_epoch=0)
        if by == "a checkpoint":
            store._flush_coordinator.want_checkpoint()
        owner.run_turn()
        files.await_held()
        store.delete(PARTITION)
        log = store.open(PARTITION, SECOND, LogConfig())
        files.release(thread)
        store.flush()
        owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
        owner.run_posted()
        assert log.refusal is None
        assert log.append(batch("second's"), leader_epoch=0) == 1
        store.close()


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_partition_made_again_does_not_get_its_namesakes_leader_epochs(base: Path, flush: str) -> None:
    """They were on their way to the disk. Who asks where an epoch of the new one ends would be told of the old one's."""
    owner = Owner()
    with FaultyFiles(base / "data") as files:
        store = owner.disk(base / "data", flush=flush)
        log = store.open(PARTITION, FIRST, LogConfig())
        log.append(batch("first's", "first's"), leader_epoch=0)
        owner.run_turn()
        files.hold("kohort-storage")
        log.become_leader(7)
        store._flush_coordinator.want_checkpoint()
        owner.run_turn()
        files.await_held()
        store.delete(PARTITION)
        log = store.open(PARTITION, SECOND, LogConfig())
        for _ in range(3):
            log.append(batch("second's"), leader_epoch=0)
        begun: list[bool] = []
        store._flush_coordinator.submit(lambda: owner.call_soon_threadsafe(lambda: begun.append(True)))
        files.release("kohort-storage")
        owner.wait_for(lambda: bool(begun))
        crashed(base, store, "crashed")
        store.close()
    store = Owner().disk(base / "crashed")
    assert {epoch for epoch, _ in store.open(PARTITION, SECOND, LogConfig()).epochs.entries} <= {0, 1}
    store.close()


def test_a_checkpoint_of_a_deleted_log_leaves_its_successors_epochs_alone(tmp_path: Path) -> None:
    """The checkpoint has begun before the deletion; the directory of that name belongs to another partition when it writes."""
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    first = store.open(PARTITION, FIRST, LogConfig())
    first.become_leader(7)
    text = first.epochs.to_text()
    store.delete(PARTITION)
    second = store.open(PARTITION, SECOND, LogConfig())
    second.append(batch("second's"), leader_epoch=0)
    store.flush()
    assert second.directory.exists()
    write_epochs((first, text))
    assert not (second.directory / CHECKPOINT_NAME).exists()
    assert not list(second.directory.glob("*.tmp"))
    store.close()
