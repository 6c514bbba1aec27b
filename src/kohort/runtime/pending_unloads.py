"""
Incremental unloading of shards. Answering thousands of parked requests takes long, so it is done in slices of a few
milliseconds.
"""

import threading
from collections.abc import Iterator
from functools import partial

from kohort.runtime.loading.windows import STEP_MS
from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor


class PendingUnloads:
    """The unloads in progress of one runtime. An unload is an iterator: each item it yields is a possible pause."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changing = threading.Lock()
        self._in_progress: set[Iterator[None]] = set()
        self._running: set[Iterator[None]] = set()
        """The unloads of which a slice runs now. A reply in a slice may close the runtime, and so call `finish`."""
        self._has_time = True

    def begin(self, unload: Iterator[None], executor: PartitionExecutor) -> None:
        """Run an unload to its end: one slice now, the following ones as events of the partition."""
        with self._changing:
            self._in_progress.add(unload)
        self._run_slice(unload, executor)

    def finish(self) -> None:
        """Run all unloads to their end now; called when no executor runs events any more, or by a reply of a slice."""
        self._has_time = False
        with self._changing:
            in_progress, self._in_progress = self._in_progress, set()
        for unload in in_progress - self._running:
            for _ in unload:
                pass

    def _run_slice(self, unload: Iterator[None], executor: PartitionExecutor) -> None:
        if unload not in self._in_progress:
            return
        until_ms = self._clock.now_ms() + STEP_MS
        self._running.add(unload)
        try:
            for _ in unload:
                if self._has_time and self._clock.now_ms() >= until_ms:
                    executor.call_soon(partial(self._run_slice, unload, executor))
                    return
        finally:
            self._running.discard(unload)
        with self._changing:
            self._in_progress.discard(unload)
