"""Logs that are used by several threads: one lock takes the place of the thread that owns a store."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

from kohort.runtime.ports import PartitionLog
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

    def share(self, log: PartitionLog) -> PartitionLog:
        return cast("PartitionLog", SharedLog(log, self.lock))


class SharedLog:
    """`kohort.runtime.ports.PartitionLog` for threads, a proxy: every call and every look at an attribute holds the lock."""

    def __init__(self, log: PartitionLog, lock: AbstractContextManager[Any]) -> None:
        self._log = log
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            found = getattr(self._log, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                return found(*arguments, **named)

        return call
