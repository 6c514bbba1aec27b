"""Logs that are used by several threads: one lock takes the place of the thread that owns a store."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import NO_SEQUENCE, HighWatermarkListener, PartitionLog
from kohort.runtime.threaded.processor import ThreadedProcessor


class LogOwner:
    """
    The owner of a store in a program with threads: a lock.

    Hand `defer` and `call_soon_threadsafe` to the store, open logs under `lock`, and give `share(log)` to the runtime. The
    callbacks of the store run on the processor's threads. Close the runtime first, then the store, then the processor.
    """

    def __init__(self, processor: ThreadedProcessor) -> None:
        self.processor = processor
        self.clock = processor.clock
        self.lock = threading.RLock()
        self._executor = processor.event_queues().executor(0)

    def defer(self, action: Callable[[], None], /) -> None:
        """Run `action` under the lock, on a thread of the processor; called from any thread."""

        def run() -> None:
            with self.lock:
                action()

        self._executor.defer(run)

    call_soon_threadsafe = defer

    def close(self) -> None:
        """Close the processor."""
        self.processor.close()

    def share(self, log: PartitionLog) -> "SharedLog":
        return SharedLog(log, self.lock)


class SharedLog:
    """`kohort.runtime.ports.PartitionLog` for threads: every call holds the lock of the store."""

    def __init__(self, log: PartitionLog, lock: AbstractContextManager[Any]) -> None:
        self._log = log
        self._lock = lock

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    @property
    def log_start_offset(self) -> int:
        with self._lock:
            return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        with self._lock:
            return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        with self._lock:
            return self._log.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        with self._lock:
            return self._log.batch_bytes_max

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        with self._lock:
            return self._log.append(batch, leader_epoch=leader_epoch)

    def start_verification(self, producer: Producer, now_ms: int, first_sequence: int = NO_SEQUENCE) -> object | None:
        with self._lock:
            return self._log.start_verification(producer, now_ms, first_sequence)

    def is_verifying(self, producer_id: int, guard: object) -> bool:
        with self._lock:
            return self._log.is_verifying(producer_id, guard)

    def append_transactional(
        self,
        batch: bytes | bytearray,
        *,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        guard: object | None,
    ) -> int:
        with self._lock:
            return self._log.append_transactional(
                batch,
                leader_epoch=leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                guard=guard,
            )

    def append_marker(self, end: EndTransaction, *, leader_epoch: int, timestamp_ms: int) -> int:
        with self._lock:
            return self._log.append_marker(end, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms)

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        with self._lock:
            return self._log.read(offset, bytes_max=bytes_max, up_to=up_to)

    def add_listener(self, listener: HighWatermarkListener) -> None:
        with self._lock:
            self._log.add_listener(listener)

    def remove_listener(self, listener: HighWatermarkListener) -> None:
        with self._lock:
            self._log.remove_listener(listener)
