"""What the tests of the logs share: the thread that owns a store, and batches to append."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore
from kohort.storage.postgres import PostgresStore
from kohort.testing.virtual import VirtualNode
from kohort.wire.batches import BatchRecord, build_batch
from tests.storage.database import shared_database

TOPIC_ID = UUID(int=7)
PARTITION = TopicPartition("orders", 0)
WAIT_SECONDS = 120
AWAITED: dict[str, Any] = {"owner_flush_ms_max": math.inf, "owner_wait_ms": 120_000, "owner_flushes_max": 1 << 60}
"""Options of a store whose owner waits for every flush, so that its turn ends when all is durable."""


class Owner:
    """A node's thread: turns by hand, and what other threads post is run when somebody waits for it."""

    def __init__(self) -> None:
        self.node = VirtualNode()
        self.clock = self.node.clock
        self.defer = self.node.defer
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.call_soon_threadsafe = self._posted.put

    def run_turn(self) -> None:
        self.node.run_turn()

    def run_posted(self) -> None:
        """Run what was posted so far, each in a turn of its own."""
        while not self._posted.empty():
            self._posted.get()()
            self.run_turn()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Run turns, and what is posted, until the condition holds."""
        self.run_turn()
        while not condition():
            try:
                self._posted.get(timeout=WAIT_SECONDS)()
            except Empty:
                raise AssertionError(
                    f"nothing was posted in {WAIT_SECONDS} s that made the condition true; {_threads()}"
                ) from None
            self.run_turn()

    def settle(self, store: DiskStore) -> None:
        """Wait until the background thread of a store has nothing left to do."""
        done: list[bool] = []
        store._flush_coordinator.submit(lambda: self.call_soon_threadsafe(lambda: done.append(True)))
        self.wait_for(lambda: bool(done))

    def disk(self, data_dir: Path, **options: Any) -> DiskStore:
        """
        A store whose owner does not wait for flushes, however quick the disk is, and which reads from the disk what is there.
        """
        defaults = {
            "flush": "commit",
            "node_id": 1,
            "journal_file_bytes": 1 << 16,
            "owner_flush_ms_max": 0,
            "written_bytes_kept": 0,
        }
        options = {**defaults, **options}
        return DiskStore(
            data_dir, defer=self.defer, call_soon_threadsafe=self.call_soon_threadsafe, clock=self.clock, **options
        )

    def postgres(self, schema: str | None = None, **options: Any) -> PostgresStore:
        """A store in a database, a new one without a schema, which reads from the database what is there."""
        database = shared_database()
        return PostgresStore(
            database.url,
            defer=self.defer,
            call_soon_threadsafe=self.call_soon_threadsafe,
            clock=self.clock,
            schema=database.new_schema() if schema is None else schema,
            **{"written_bytes_kept": 0, **options},
        )


def abandon(store: DiskStore) -> None:
    """The process is gone: its threads, its files and its lock, and nothing of what an orderly stop does."""
    store.cleaner.stop()
    written = []
    for topic_partition in store.partitions():
        log = store.get(topic_partition)
        assert log is not None
        log.close("the process was killed")
        if log._active is not None and log._active.file is not None:
            written.append(log._active.file)
    store._flush_coordinator.stop()
    for file in written:
        file.close()
    store._lock.release()


@contextmanager
def no_calls() -> Iterator[None]:
    """
    The thread makes no call of the file system: any of them can hang. Calls of compiled code are not seen.

    A byte in a pipe wakes another thread; to close a file takes no disk.
    """
    made: list[str] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or function.__module__ not in ("posix", "io", "_io") or function.__name__ not in _CALLS:
            return
        if not frame.f_code.co_filename.endswith("handover.py"):
            made.append(f"{function.__name__} in {frame.f_code.co_filename}:{frame.f_lineno}")

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert not made, made


_CALLS = {
    "fstat",
    "listdir",
    "lstat",
    "mkdir",
    "open",
    "pread",
    "pwrite",
    "read",
    "rename",
    "replace",
    "scandir",
    "stat",
}
_CALLS |= {"access", "fdatasync", "fsync", "ftruncate", "pwritev", "statvfs", "unlink", "utime", "write"}


def _threads() -> str:
    """What the threads of stores are at."""
    frames = sys._current_frames()
    found = [
        f"{thread.name} at {frame.f_code.co_filename}:{frame.f_lineno}"
        for thread in threading.enumerate()
        if thread.name.startswith("kohort") and (frame := frames.get(thread.ident or 0)) is not None
    ]
    return ", ".join(found) or "no thread of a store is there"


def batch(*values: str, timestamp_ms: int = 1000, step_ms: int = 0) -> bytes:
    """One batch with a record per value; times rise by `step_ms`."""
    records = [
        BatchRecord(None, value.encode(), timestamp_ms=timestamp_ms + index * step_ms)
        for index, value in enumerate(values)
    ]
    return build_batch(records, timestamp_ms=timestamp_ms)
