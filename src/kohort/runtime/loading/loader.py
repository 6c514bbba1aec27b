"""
The loader: reads a partition's log from its start to its end and replays it, window by window.

Of the records outside transactions, only the newest value and the newest tombstone of each key in a window are decoded and
replayed. A compacted log holds no more, so a shard must be able to load from that. A value is replayed even if a tombstone
follows it: a committed offset creates its group, which stays when the offset is deleted. Records of transactions are replayed
one by one, with their markers.

A record that cannot be decoded is set aside (`set_aside`), and the rest is loaded.

A large log is read in large windows and with numpy, if numpy is installed (`columnar`). A thread imports it, and the load goes
on without it in the meantime.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

from kohort.machine.shard import RecordSerde, Shard
from kohort.model.errors import CorruptError
from kohort.runtime.loading.windows import LOAD_BUFFER_BYTES, Load, LoadSummary, load_window
from kohort.runtime.ports import PartitionLog
from kohort.runtime.timers.clock import SystemClock

_log = logging.getLogger("kohort.runtime")

BULK_RECORDS_MIN = 8_192
"""From so many records on numpy is used where it is there already."""
IMPORT_RECORDS_MIN = 100_000
"""From so many on it is imported."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def load(
    log: PartitionLog,
    shard: Shard[Any],
    serde: RecordSerde[Any],
    summary: LoadSummary,
    *,
    start: int,
    end: int,
    now_ms: Callable[[], int] | None = None,
    buffer_bytes: int = LOAD_BUFFER_BYTES,
) -> Iterator[None]:
    """
    Replay the offsets `[start, end)` into the shard. Each `next` of the iterator is one step of some milliseconds.

    Args:
        now_ms: a steady clock, which ends the steps.
        buffer_bytes: the size of a window; one with numpy is up to twice as large.

    Raises:
        CorruptError: the log holds no batch of magic 2 where one must be, a batch with a wrong checksum or offset, or a
            transaction marker that cannot be read.
        StorageError: the log cannot be read.
    """
    under_way = Load(log, shard, serde, summary, now_ms or SystemClock().now_ms, buffer_bytes)
    offset: int | None = start
    while offset is not None and offset < end:
        bulk = _Bulk.for_records(end - offset)
        under_way.begin_step()
        if bulk is None:
            following = yield from load_window(under_way, offset, end)
        else:
            following = yield from bulk.load_window(under_way, offset, end)
        if following is not None and following <= offset:
            raise CorruptError(f"the batches from offset {offset} on end at {following}")
        offset = following


class _Bulk:
    """The module `columnar`, imported by a thread: the import of numpy would block the event loop for too long."""

    module: ClassVar[Any] = None
    _is_asked_for: ClassVar[bool] = False

    @classmethod
    def for_records(cls, count: int) -> Any:
        """Return the module if it is imported and so many records are worth it, else None."""
        if count < BULK_RECORDS_MIN:
            return None
        if cls.module is None and not cls._is_asked_for:
            if "numpy" in sys.modules:
                cls._import()
            elif count >= IMPORT_RECORDS_MIN:
                cls._is_asked_for = True
                threading.Thread(target=cls._import, name="kohort-import-numpy", daemon=True).start()
        return cls.module

    @classmethod
    def _import(cls) -> None:
        cls._is_asked_for = True
        try:
            with _without_threads_of_blas():
                cls.module = import_module("kohort.runtime.loading.columnar")
        except ImportError:
            _log.info("load.without_numpy")


@contextmanager
def _without_threads_of_blas() -> Iterator[None]:
    """
    Keep OpenBLAS from starting threads during the import of numpy: that would stop all threads of this process for 40 ms
    instead of 5, and nothing here multiplies matrices.
    """
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        # Child processes inherit the environment, and may want the threads.
        os.environ.pop(_BLAS_THREADS, None)
