"""
Loads of partitions and looks at the volume while clients are served: the owner's thread waits for a disk that answers, and
for no other.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.errors import NotYetError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN
from kohort.storage.log import LogConfig, Volume
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.storage.owner import TOPIC_ID, WAIT_SECONDS, Owner, batch, no_calls

A, B, C = (TopicPartition("t", partition) for partition in range(3))
NEW_ID = UUID(int=8)
CONFIG = LogConfig(segment_bytes=250)
LOADER = "kohort-load"


class Restarted:
    """A store with three partitions of nine records each, which was stopped, started again, and serves clients."""

    def __init__(self, files: FaultyFiles) -> None:
        self.files = files
        self.owner = Owner()
        store = self.owner.disk(files.root)
        for topic_partition in (A, B, C):
            for number in range(9):
                store.open(topic_partition, TOPIC_ID, CONFIG).append(batch(f"{number}".ljust(60)), leader_epoch=0)
        store.close()
        self.store = self.owner.disk(files.root, wait_s=WAIT_SECONDS, stop_s=0.05)
        self.owner.run_posted()

    def hang(self) -> None:
        """The load of the first partition hangs, and a request has found that out."""
        self.files.hold(LOADER)
        self.store._found.loads.start(0.001)
        with pytest.raises(NotYetError, match="t-0 cannot be used yet"):
            self.store.open(A, TOPIC_ID, CONFIG)
        self.files.await_held()
        self.store._found.loads.start(WAIT_SECONDS)

    def answer(self) -> None:
        """The disk answers, and the load ends."""
        late = self.store._found.loads._late
        assert late is not None
        self.files.release(LOADER)
        late.exception(WAIT_SECONDS)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.files.root.iterdir() if path.name.startswith("t-"))


@pytest.fixture
def restarted(base: Path) -> Iterator[Restarted]:
    with FaultyFiles(base / "data") as files:
        yield Restarted(files)


def test_a_load_is_waited_for(restarted: Restarted) -> None:
    with no_calls():
        assert restarted.store.open(A, TOPIC_ID, CONFIG).end_offset == 9
    restarted.store.close()


def test_a_load_that_hangs_holds_up_its_partition_and_other_loads(restarted: Restarted) -> None:
    """Nobody waits for a load behind it, and partitions that are loaded go on."""
    owner, store = restarted.owner, restarted.store
    log = store.open(C, TOPIC_ID, CONFIG)
    restarted.hang()
    for topic_partition in (A, B, B):
        with pytest.raises(NotYetError):
            store.get(topic_partition)
    assert log.append(batch("9"), leader_epoch=0) == 10
    owner.wait_for(lambda: log.high_watermark == 10)
    restarted.answer()
    assert [store.open(it, TOPIC_ID, CONFIG).end_offset for it in (A, B)] == [9, 9]
    store.close()
    assert (store.data_dir / CLEAN_SHUTDOWN).exists()


def test_a_load_that_fails_is_made_again(restarted: Restarted) -> None:
    store = restarted.store
    restarted.files.refuse = fail_on("open", ".log")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"t-0 cannot be loaded: .*Input/output error"):
            store.open(A, TOPIC_ID, CONFIG)
    restarted.files.refuse = lambda _call, _path: None
    assert store.open(A, TOPIC_ID, CONFIG).end_offset == 9
    store.close()


@pytest.mark.parametrize("is_opened_first", [False, True])
def test_a_partition_that_is_deleted_while_it_is_loaded(restarted: Restarted, *, is_opened_first: bool) -> None:
    """Its directory is renamed after the load, which may write there; a topic of the same name gets another one."""
    owner, store = restarted.owner, restarted.store
    restarted.hang()
    store.delete(A)
    with pytest.raises(NotYetError):
        store.open(A, NEW_ID, CONFIG)
    assert restarted.names() == ["t-0", "t-1", "t-2"]
    restarted.answer()
    if not is_opened_first:
        owner.wait_for(lambda: A not in store.partitions())
    log = store.open(A, NEW_ID, CONFIG)
    assert log.append(batch("successor"), leader_epoch=0) == 1
    owner.wait_for(lambda: log.high_watermark == 1)
    owner.settle(store)
    assert store.get(A) is log
    assert restarted.names() == ["t-0", "t-1", "t-2"]
    store.close()


def test_a_deleted_partition_whose_load_fails(restarted: Restarted) -> None:
    owner, store = restarted.owner, restarted.store
    restarted.hang()
    store.delete(A)
    restarted.files.refuse = fail_on("open", ".log")
    restarted.answer()
    owner.wait_for(lambda: A not in store.partitions())
    restarted.files.refuse = lambda _call, _path: None
    store.flush()
    owner.settle(store)
    assert restarted.names() == ["t-1", "t-2"]
    store.close()


def test_a_stop_waits_for_a_load_for_some_time(restarted: Restarted, caplog: pytest.LogCaptureFixture) -> None:
    """Then the directory is left for recovery."""
    restarted.hang()
    restarted.store.close()
    assert "the disk has not answered for 0.05 s" in caplog.text
    restarted.answer()
    assert not (restarted.store.data_dir / CLEAN_SHUTDOWN).exists()
    again = Owner().disk(restarted.store.data_dir)
    assert again.open(A, TOPIC_ID, CONFIG).end_offset == 9
    again.close()


def test_a_stop_takes_what_was_loaded(restarted: Restarted) -> None:
    """A deletion is finished, and the files of a log that nobody asked for again are closed."""
    owner, store = restarted.owner, restarted.store
    restarted.hang()
    store.delete(A)
    with pytest.raises(NotYetError):
        store.open(B, TOPIC_ID, CONFIG)
    restarted.answer()
    store._found.loads._futures[B].exception(WAIT_SECONDS)
    store.close()
    assert not any(log.segments[-1]._fd >= 0 for log in store._logs.values())
    assert B in store._logs
    assert (store.data_dir / CLEAN_SHUTDOWN).exists()
    again = owner.disk(store.data_dir)
    assert list(again.partitions()) == [B, C]
    again.close()


def test_a_look_at_a_volume_that_hangs(restarted: Restarted, monkeypatch: pytest.MonkeyPatch) -> None:
    store, going_on = restarted.store, threading.Event()
    with no_calls():
        known = store.volume()
    assert (known.total_bytes > known.usable_bytes > 0, known.problem) == (True, "")
    look = os.statvfs

    def hang(path: Path) -> os.statvfs_result:
        assert going_on.wait(WAIT_SECONDS)
        return look(path)

    monkeypatch.setattr(os, "statvfs", hang)
    store._volumes.start(0.001)
    for _ in range(2):
        assert store.volume() == Volume(problem="The disk of the data directory does not answer.")
    late = store._volumes._late
    assert late is not None
    going_on.set()
    late.exception(WAIT_SECONDS)
    assert store.volume().total_bytes == known.total_bytes
    store.close()
