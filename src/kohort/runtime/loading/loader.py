"""
The loader: reads a partition's log from its start to its end and replays it, window by window.

Of the records outside transactions, only the newest value and the newest tombstone of each key in a window are decoded and
replayed. A compacted log holds no more, so a shard must be able to load from that. A value is replayed even if a tombstone
follows it: a committed offset creates its group, which stays when the offset is deleted. Records of transactions are replayed
one by one, with their markers. Of a log whose records change earlier ones of their key, every record is replayed.

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
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from kohort.machine.shard import RecordSerde, Shard
from kohort.model.errors import CorruptError
from kohort.runtime.append.position import Position
from kohort.runtime.loading.ahead import Pause, ReadAhead, read_ahead
from kohort.runtime.loading.windows import LOAD_BUFFER_BYTES, Load, LoadSummary, Scan, scan_batches
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock, PartitionLog
from kohort.runtime.processors import PartitionExecutor
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
    is_compacted: bool = True,
    ahead: ReadAhead | None = None,
) -> Iterator[Pause]:
    """
    Replay the offsets `[start, end)` into the shard. Each `next` of the iterator is one step of some milliseconds. It returns
    `ahead` if the next step has to wait for a read.

    Args:
        now_ms: a steady clock, which ends the steps.
        buffer_bytes: the size of a window; one with numpy is up to twice as large.
        is_compacted: whether the newest record of a key stands for all before it.
        ahead: reads the log elsewhere; None to read it here.

    Raises:
        CorruptError: the log holds no batch of magic 2 where one must be, a batch with a wrong checksum or offset, or a
            transaction marker that cannot be read.
        StorageError: the log cannot be read.
    """
    under_way = Load(log, shard, serde, summary, now_ms or SystemClock().now_ms, buffer_bytes, is_compacted, ahead)
    offset = start
    while offset < end:
        following = yield from under_way.window(_scan_for(end - offset), offset, end)
        if following <= offset:
            raise CorruptError(f"the batches from offset {offset} on end at {following}")
        offset = following


def load_shard(
    log: PartitionLog,
    shard: Shard[Any],
    position: Position,
    *,
    serde: RecordSerde[Any],
    clock: Clock,
    buffer_bytes: int,
    is_compacted: bool,
    leader_epoch: int,
    metrics: ShardMetrics,
    executor: PartitionExecutor,
) -> Iterator[Pause]:
    """
    Replay a log into a new shard, one step per `next`, as `load`: up to the high watermark, and from there to the end, with a
    snapshot at each. Set its position.

    Raises:
        CorruptError: see `load`.
        StorageError: the log cannot be read.
    """
    summary = LoadSummary()
    started_ms = clock.now_ms()
    committed, end = log.high_watermark, log.end_offset
    replay = partial(
        load,
        log,
        shard,
        serde,
        summary,
        now_ms=clock.now_ms,
        buffer_bytes=buffer_bytes,
        is_compacted=is_compacted,
        ahead=read_ahead(log, executor),
    )
    yield from replay(start=log.log_start_offset, end=committed)
    if committed < end:
        position.registry.create(committed)
        yield from replay(start=committed, end=end)
    position.last_written_offset, position.last_committed_offset = end, committed
    ended_ms = clock.now_ms()
    metrics.loaded(started_ms=started_ms, ended_ms=ended_ms, records_set_aside=summary.set_aside_count)
    _log.log(
        logging.INFO if summary.records else logging.DEBUG,
        "shard.loaded partition=%s leader_epoch=%d records=%d replayed=%d set_aside=%d bytes=%d elapsed_ms=%d",
        log.topic_partition,
        leader_epoch,
        summary.records,
        summary.replayed,
        summary.set_aside_count,
        summary.bytes,
        ended_ms - started_ms,
    )


class _Numpy:
    """The module `columnar`, imported by a thread: the import of numpy would block the event loop for too long."""

    scan: ClassVar[Scan | None] = None
    is_asked_for: ClassVar[bool] = False


def _scan_for(count: int) -> Scan:
    """Return the scan with numpy if it is imported and so many records are worth it, else the one without."""
    if count < BULK_RECORDS_MIN:
        return scan_batches
    if not _Numpy.is_asked_for and ("numpy" in sys.modules or count >= IMPORT_RECORDS_MIN):
        _Numpy.is_asked_for = True
        if "numpy" in sys.modules:
            _import()
        else:
            threading.Thread(target=_import, name="kohort-import-numpy", daemon=True).start()
    return _Numpy.scan or scan_batches


def _import() -> None:
    try:
        with _without_threads_of_blas():
            _Numpy.scan = import_module("kohort.runtime.loading.columnar").scan_columns
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
