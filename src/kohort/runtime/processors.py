"""
Where the events of partitions run: on the thread that owns the node, or on threads of a processor.

Both ways keep the promise that shards are built on: two events of one partition never run at the same time.
"""

import time
from collections.abc import Callable
from typing import Protocol

from kohort.runtime.metrics import EventMetrics, IdleRatio
from kohort.runtime.ports import Defer
from kohort.runtime.timers.wheel import Wheel


class PartitionExecutor(Protocol):
    """Runs the events of one partition, one at a time."""

    @property
    def wheel(self) -> Wheel:
        """The timing wheel of this partition's deadlines; used and advanced under the partition's exclusivity."""

    @property
    def is_inline(self) -> bool:
        """Whether `run` runs the event before it returns, so that a request can be answered in the same call."""

    @property
    def may_wait(self) -> bool:
        """Whether the calling thread may block until an event of this partition has run."""

    def run(self, event: Callable[[], None], reject: Callable[[], None], /) -> None:
        """Run `event` after the queued events; call `reject` instead if the processor is closed."""

    def run_first(self, event: Callable[[], None]) -> None:
        """Run `event` before the queued events; drop it if the processor is closed."""

    def defer(self, event: Callable[[], None], /) -> None:
        """Run `event` at the end of the current turn; drop it if the processor is closed."""

    def call_soon(self, event: Callable[[], None], /) -> None:
        """Run `event` in a later turn, so that other partitions and input and output come in between."""

    def run_in_background(self, task: Callable[[], None], /) -> None:
        """Run `task` outside the partition's exclusivity; drop it if the processor is closed."""

    def call_soon_threadsafe(self, event: Callable[[], None], /) -> None:
        """Run `event` under the partition's exclusivity; called by background tasks, from any thread."""


class EventQueues(Protocol):
    """The event queues of one runtime, one per partition."""

    def executor(self, partition: int, /) -> PartitionExecutor: ...

    def metrics(self) -> EventMetrics | None:
        """Measurements of all events; None if events run inline, where each shard measures its own."""

    def close(self) -> None:
        """Run no more events. On return no event is running, and the queued ones have been rejected."""


class Processor(Protocol):
    """Runs the events of several runtimes. A runtime closes its event queues and never the processor."""

    def event_queues(self) -> EventQueues:
        """Return event queues for a new runtime."""

    @property
    def thread_idle_ratio(self) -> float:
        """The fraction of time, 0 to 1, that the threads waited for work since this was last read."""


class InlineProcessor:
    """
    Runs every event on the calling thread, which owns the node: for event loops and simulations.

    The processor is the event queue and the executor of every partition. A partition that is busy queues the event by itself.

    Args:
        wheel: advanced by the owner.
        defer: runs a callback at the end of the current turn.
        call_soon: runs a callback in a later turn.
        background: runs a background task, for example on a thread. Default: `call_soon`, on the owner's thread.
        call_soon_threadsafe: as `call_soon`, from any thread; required with `background`.

    Raises:
        ValueError: `background` without `call_soon_threadsafe`.
    """

    is_inline = True
    may_wait = True

    def __init__(
        self,
        wheel: Wheel,
        defer: Defer,
        call_soon: Defer,
        *,
        background: Defer | None = None,
        call_soon_threadsafe: Defer | None = None,
    ) -> None:
        if background is not None and call_soon_threadsafe is None:
            raise ValueError("background tasks need call_soon_threadsafe to return their results")
        self.wheel = wheel
        self.defer = defer
        self.call_soon = call_soon
        self.run_in_background = background or call_soon
        self.call_soon_threadsafe = call_soon_threadsafe or call_soon
        self._idle_ratio = IdleRatio(1, time.thread_time_ns)

    @property
    def thread_idle_ratio(self) -> float:
        """The fraction of time that the owner's thread used no processor time. Read it on that thread."""
        return self._idle_ratio.read()

    def event_queues(self) -> EventQueues:
        return self

    def executor(self, _partition: int, /) -> PartitionExecutor:
        return self

    def metrics(self) -> EventMetrics | None:
        return None

    def run(self, event: Callable[[], None], _reject: Callable[[], None], /) -> None:
        event()

    def run_first(self, event: Callable[[], None]) -> None:
        event()

    def close(self) -> None:
        pass
