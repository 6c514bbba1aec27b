"""
Who runs the events of partitions: the thread that owns the node, or threads of our own.

Both keep the promise that shards are built on: events of one partition never run two at once.
"""

from collections.abc import Callable
from typing import Protocol

from kohort.runtime.ports import Defer
from kohort.runtime.wheel import Wheel


class PartitionExecutor(Protocol):
    """The events of one partition, and its share of time."""

    @property
    def wheel(self) -> Wheel:
        """For deadlines of this partition; used, and driven, under its exclusivity."""

    @property
    def is_inline(self) -> bool:
        """Whether `run` runs on the spot, so that a caller can be answered in the same call."""

    @property
    def may_wait(self) -> bool:
        """Whether the calling thread may wait for an event of this lane."""

    def run(self, event: Callable[[], None], reject: Callable[[], None], /) -> None:
        """Run `event` under the partition's exclusivity, behind those that wait; or `reject` when the processor is closed."""

    def run_first(self, event: Callable[[], None]) -> None:
        """As `run`, but before those that wait; dropped when the processor is closed."""

    def defer(self, event: Callable[[], None], /) -> None:
        """Run `event` behind everything that has arrived; dropped when the processor is closed."""

    def soon(self, event: Callable[[], None], /) -> None:
        """As `defer`, letting others have their turn first: how a load shares the thread."""

    def background(self, task: Callable[[], None], /) -> None:
        """Run `task` where it holds up no partition; dropped when the processor is closed."""

    def post(self, event: Callable[[], None], /) -> None:
        """Called by a background task: run `event` where this lane may be called from."""


class Processor(Protocol):
    """Makes the lanes of a runtime's partitions."""

    def lane(self, partition: int, /) -> PartitionExecutor: ...

    def close(self) -> None:
        """Run nothing from now on; on return nothing is running. What waited has been rejected."""


class InlineProcessor:
    """
    Runs everything on the thread that calls, which is the one that owns the node: for event loops and simulations.

    It is its own lane, for all partitions: a context that is called while it is busy keeps the call to itself.

    Args:
        wheel: driven by the owner.
        defer: runs something at the end of the present turn.
        soon: runs something after input and output had their turn.
        background: runs a task of a shard elsewhere, say on a thread. By default tasks run on the owner's thread, in a turn of
            their own.
        post: as `soon`, and may be called by background tasks; needed with `background`.
    """

    is_inline = True
    may_wait = True

    def __init__(
        self,
        wheel: Wheel,
        defer: Defer,
        soon: Defer,
        *,
        background: Defer | None = None,
        post: Defer | None = None,
    ) -> None:
        if background is not None and post is None:
            raise ValueError("tasks that run elsewhere need a way back")
        self.wheel = wheel
        self.defer = defer
        self.soon = soon
        self.background = background or soon
        self.post = post or soon

    def lane(self, _partition: int, /) -> PartitionExecutor:
        return self

    def run(self, event: Callable[[], None], _reject: Callable[[], None], /) -> None:
        event()

    def run_first(self, event: Callable[[], None]) -> None:
        event()

    def close(self) -> None:
        pass
