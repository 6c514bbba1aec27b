"""A cleaned segment is put in place on a disk that hangs: the owner's thread goes on, and readers read what is there."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.compacted import end_transaction, make_durable, newest, open_log, put, roll
from tests.storage.owner import PARTITION, TOPIC_ID, WAIT_SECONDS, Owner, batch, no_calls

BESIDE = TopicPartition("beside", 0)
STEPS = (
    ("rename", ".log"),
    ("rename", ".timeindex"),
    ("sync", str(PARTITION)),
    ("rename", ".log.swap"),
    ("rename", ".index.swap"),
    ("rename", ".txnindex.swap"),
    ("rename", ".checksums.swap"),
    ("unlink", ".log.deleted"),
)
"""The calls with which the background thread puts a segment in place; the first one of each kind."""


class Swapping:
    """A log of two segments that become one, and the swap hangs before a call."""

    def __init__(self, files: FaultyFiles, call: str, ending: str) -> None:
        self.owner = Owner()
        self.store = self.owner.disk(files.root)
        self.log = open_log(self.store)
        for _ in range(2):
            for key in "ab":
                put(self.log, (key, f"{self.log.end_offset}"))
            put(self.log, ("c", "aborted"), producer_id=7, base_sequence=0, transactional=True)
            end_transaction(self.log, 7, committed=False)
            roll(self.log)
        put(self.log, ("d", "last"))
        make_durable(self.owner, self.store)
        self.wanted = newest(self.log)
        del self.wanted[b"c"]
        self.beside = self.store.open(BESIDE, TOPIC_ID, LogConfig())
        self.failure: OSError | None = None
        """Raised by the call that hangs, when it goes on."""
        self._hanging, self._going_on = threading.Event(), threading.Event()
        self._call, self._ending = call, ending
        files.refuse = self._hang
        with no_calls():
            self.store.cleaner.clean()
            self.owner.wait_for(self._hanging.is_set)

    def _hang(self, call: str, path: Path) -> None:
        is_hit = call == self._call and path.name.endswith(self._ending) and self.log.end_offset
        if is_hit and threading.current_thread().name == "kohort-storage" and not self._hanging.is_set():
            self._hanging.set()
            self.owner.call_soon_threadsafe(lambda: None)
            assert self._going_on.wait(WAIT_SECONDS)
            if self.failure is not None:
                raise self.failure

    def end(self) -> None:
        self._going_on.set()
        self.owner.wait_for(lambda: not self.store.cleaner.in_progress)


@pytest.fixture(params=STEPS, ids=" ".join)
def swapping(base: Path, request: pytest.FixtureRequest) -> Iterator[Swapping]:
    with FaultyFiles(base / "data") as files:
        yield Swapping(files, *request.param)


def test_readers_go_on(swapping: Swapping) -> None:
    log, owner = swapping.log, swapping.owner
    view, segment = log.view(), log.segments[0]
    assert newest(log) == swapping.wanted
    assert segment.time_index.last == segment.max_timestamp
    assert [each.first_offset for each in log.aborted_transactions(0, log.read(0, bytes_max=1))] == [2, 6]
    swapping.beside.append(batch("beside"), leader_epoch=0)
    owner.wait_for(lambda: swapping.beside.high_watermark == 1)
    swapping.end()
    assert newest(view) == newest(log) == swapping.wanted  # type: ignore[arg-type]
    view.close()
    assert not [path for path in log.directory.iterdir() if path.suffix in (".swap", ".deleted")]
    swapping.store.close()
    again = Owner().disk(swapping.store.data_dir)
    assert newest(open_log(again)) == swapping.wanted
    again.close()


def test_the_segment_is_dropped_meanwhile(swapping: Swapping) -> None:
    """None of its files is left, whatever names they had."""
    log, owner, store = swapping.log, swapping.owner, swapping.store
    log.delete_before(log.end_offset - 1)
    swapping.end()
    make_durable(owner, store)
    owner.settle(store)
    assert {path.name[:20] for path in log.directory.glob("*.*") if path.name[0] == "0"} == {
        f"{log.end_offset - 1:020d}"
    }
    assert newest(log) == {b"d": swapping.wanted[b"d"]}
    store.close()


def test_the_partition_is_deleted_meanwhile(swapping: Swapping) -> None:
    """The files of its successor are left alone."""
    owner, store = swapping.owner, swapping.store
    store.delete(PARTITION)
    log = store.open(PARTITION, UUID(int=8), LogConfig())
    log.append(batch("successor"), leader_epoch=0)
    swapping.end()
    owner.wait_for(lambda: log.high_watermark == 1)
    owner.settle(store)
    assert sorted(path.name for path in store.data_dir.glob("orders*")) == [str(PARTITION)]
    assert len(log.read(0, bytes_max=1)) > 0
    store.close()


def test_a_swap_that_fails_takes_the_log_offline_and_the_next_start_finishes_it(base: Path) -> None:
    with FaultyFiles(base / "data") as files:
        swapping = Swapping(files, "rename", ".log.swap")
        swapping.failure = OSError(errno.EIO, "the disk is broken")
        swapping.end()
        assert "the disk is broken" in (swapping.log.refusal or "")
        assert swapping.store.cleaner.offsets == {}  # the log is not clean
        swapping.store.close()
        again = Owner().disk(swapping.store.data_dir)
        assert newest(open_log(again)) == swapping.wanted
        again.close()


def test_a_swap_that_fails_after_the_partition_was_deleted_is_no_failure(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyFiles(base / "data") as files:
        swapping = Swapping(files, "rename", ".log.swap")
        swapping.failure = OSError(errno.EIO, "the disk is broken")
        swapping.store.delete(PARTITION)
        swapping.end()
        assert "log.offline" not in caplog.text
        swapping.store.close()
