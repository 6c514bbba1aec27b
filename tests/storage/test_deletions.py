"""A partition that was deleted stays so, whatever a crash leaves of its directory; its successor by name gets nothing."""

import shutil
from pathlib import Path
from uuid import UUID

from kohort.storage.checkpoints import PARTITION_METADATA
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig
from tests.storage.owner import PARTITION, Owner, batch

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
    data_dir = crashed(tmp_path, store, "crashed")
    store.close()
    return kept, data_dir


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
