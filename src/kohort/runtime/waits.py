"""
The requests that wait and the deadlines of one shard, as timelines: a failed append puts back those that its operations have
ended, and takes away those that they have begun.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from kohort.machine.shard import RETRY_BACKOFF_MS, Reply
from kohort.machine.steps import Deadline, Key, Operation, Wait
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.runtime.ports import Clock
from kohort.runtime.timers.wheel import Wheel, WheelTimer


class Due(Protocol):
    """An entry of a `DueTable`. Without a time it is never due."""

    key: Key
    at_ms: int | None
    timer: WheelTimer | None


E = TypeVar("E", bound=Due)


class SingleReply:
    """
    The reply to a request that waits. It is delivered once: whoever comes second is not heard.

    Attributes:
        on_error: turns an error into a response.
    """

    __slots__ = ("_reply", "on_error")

    def __init__(self, reply: Reply[Any], on_error: Callable[[Exception], Any]) -> None:
        self._reply: Reply[Any] | None = reply
        self.on_error: Final = on_error

    def __call__(self, response: Any) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(response)


class Waiting:
    """A request that waits."""

    __slots__ = ("at_ms", "key", "late", "replaced", "reply", "timer")

    def __init__(self, wait: Wait, now_ms: int, reply: Reply[Any], on_error: Callable[[Exception], Any]) -> None:
        self.key: Key = wait.key
        self.at_ms: int | None = None if wait.timeout_ms is None else now_ms + max(0, wait.timeout_ms)
        self.late: Final = wait.late
        self.replaced: Final = wait.replaced
        self.reply: Final = reply if isinstance(reply, SingleReply) else SingleReply(reply, on_error)
        self.timer: WheelTimer | None = None

    def again(self, wait: Wait, now_ms: int) -> "Waiting":
        """The same request with another wait."""
        return Waiting(wait, now_ms, self.reply, self.reply.on_error)

    def on_error(self, error: Exception) -> Any:
        return self.reply.on_error(error)


class Armed:
    """
    A deadline.

    Attributes:
        is_step: whether it was due at once when it was made: a step of a long work.
    """

    __slots__ = ("at_ms", "is_step", "key", "operation", "timer")

    def __init__(self, key: Key, at_ms: int, operation: Operation, *, is_step: bool = False) -> None:
        self.key: Key = key
        self.at_ms: int | None = at_ms
        self.operation: Final = operation
        self.is_step: Final = is_step
        self.timer: WheelTimer | None = None


class DueTable(Generic[E]):
    """
    Entries with a time, by key.

    Args:
        on_due: called when the time of an entry has come. The operation that it starts takes the entry out, if it is still
            there; if the operation is undone, the entry is due again after `RETRY_BACKOFF_MS`.
    """

    def __init__(self, registry: SnapshotRegistry, wheel: Wheel, clock: Clock, on_due: Callable[[E], None]) -> None:
        self._entries: _Entries[E] = _Entries(registry, self._restored)
        self._wheel = wheel
        self._clock = clock
        self._on_due = on_due
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> E | None:
        return self._entries.get(key)

    def has(self, entry: E) -> bool:
        return self._entries.get(entry.key) is entry

    def put(self, entry: E) -> None:
        """Add an entry, in place of one with the same key."""
        self.remove(entry.key)
        if not self._is_closed:
            self._entries.put(entry.key, entry)
            if entry.at_ms is not None:
                self._arm(entry, entry.at_ms)

    def insert(self, entry: E) -> None:
        """Add an entry without a timer, for an operation that begins now. A revert to an earlier state does not drop it."""
        if not self._is_closed:
            self._entries.insert(entry)

    def put_back(self, entry: E) -> None:
        """
        Let an entry be due again, unless there is one with its key: a part of its operation is written, so that a revert has
        not put it back.
        """
        if not self._is_closed and entry.key not in self._entries:
            entry.at_ms = self._clock.now_ms() + RETRY_BACKOFF_MS
            self._entries.insert(entry)
            self._arm(entry, entry.at_ms)

    def remove(self, key: Key) -> None:
        entry = self._entries.remove(key)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def move(self, entry: E, at_ms: int) -> None:
        """Give an entry another time. That is not taken back when the operation is."""
        entry.at_ms = at_ms
        timer = entry.timer
        if timer is not None and timer.is_armed:
            entry.timer = self._wheel.move(timer, at_ms)

    def close(self) -> Collection[E]:
        """
        Empty the table for good, and return the entries. Their timers have no effect any more; there may be thousands, so that
        the caller cancels them step by step.
        """
        self._is_closed = True
        entries, self._entries = self._entries, _Entries(SnapshotRegistry(), self._restored)
        return entries.values()

    def _arm(self, entry: E, at_ms: int) -> None:
        entry.timer = self._wheel.arm(at_ms, partial(self._on_due, entry))

    def _restored(self, entry: E) -> None:
        at_ms = entry.at_ms
        if self._is_closed or at_ms is None or (entry.timer is not None and entry.timer.is_armed):
            return
        now_ms = self._clock.now_ms()
        if at_ms <= now_ms:
            at_ms = entry.at_ms = now_ms + RETRY_BACKOFF_MS
        self._arm(entry, at_ms)


class _Entries(TimelineDict[Key, E]):
    """A timeline that tells which values a revert has put back."""

    __slots__ = ("_restored",)

    def __init__(self, registry: SnapshotRegistry, restored: Callable[[E], None]) -> None:
        super().__init__(registry)
        self._restored = restored

    def insert(self, entry: E) -> None:
        """Add an entry to the newest state and to all earlier ones: no revert drops it."""
        self._newest[entry.key] = entry

    def _restore(self, delta: dict[Key, E]) -> None:
        dropped = [self[key] for key in delta if key in self]
        super()._restore(delta)
        for entry in dropped:
            if self.get(entry.key) is not entry and entry.timer is not None:
                entry.timer.cancel()
        for key in delta:
            entry_now = self.get(key)
            if entry_now is not None:
                self._restored(entry_now)


def free(entries: Collection[Armed]) -> Iterator[None]:
    """Cancel the timers of a closed table, one in a step."""
    for entry in entries:
        if entry.timer is not None:
            entry.timer.cancel()
        yield


class Deadlines:
    """
    The deadlines of a shard, as the shard sees them.

    Attributes:
        now_ms: the time of the operation in progress.
    """

    def __init__(self, table: DueTable[Armed]) -> None:
        self._table: Final = table
        self.now_ms = 0

    def extend(self, key: Key, delay_ms: int) -> None:
        """
        Move a deadline to `delay_ms` after the beginning of the operation; no effect if there is none. That is not taken back
        with the operation.
        """
        armed = self._table.get(key)
        if armed is None:
            return
        at_ms = self.now_ms + delay_ms
        timer = armed.timer
        if timer is not None and timer.action is not None and at_ms >= timer.bucket_ms:
            # As `Wheel.move`: most deadlines are moved to a later time by heartbeats.
            armed.at_ms = timer.deadline_ms = at_ms
        else:
            self._table.move(armed, at_ms)


def apply(deadline: Deadline, table: DueTable[Armed], now_ms: int) -> None:
    if deadline.operation is None:
        table.remove(deadline.key)
    elif not deadline.keeps_earlier or table.get(deadline.key) is None:
        delay_ms = max(0, deadline.delay_ms)
        table.put(Armed(deadline.key, now_ms + delay_ms, deadline.operation, is_step=not delay_ms))
