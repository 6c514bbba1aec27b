"""Operations that wait for the high watermark, by the offset that it has to reach, or until their deadline."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation, Wait
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.runtime.append.position import Position
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import Clock
from kohort.runtime.processors import PartitionExecutor
from kohort.runtime.serial_execution import Answer, SerialExecution
from kohort.runtime.states import State
from kohort.runtime.timers.wheel import WheelTimer
from kohort.runtime.waits import Armed, DueTable, Waiting

_log = logging.getLogger("kohort.runtime")
_ACTIVE: Final = State.ACTIVE


class DeferredEvent:
    """
    An operation whose records are appended and not committed, or that read uncommitted state.

    `reply` is None if no caller waits: after a timeout, or for an operation of the runtime.
    """

    __slots__ = ("deadline_ms", "on_error", "reply", "response")

    def __init__(
        self, response: Any, reply: Reply[Any] | None, on_error: Callable[[Exception], Any], deadline_ms: int
    ) -> None:
        self.response = response
        self.reply = reply
        self.on_error = on_error
        self.deadline_ms = deadline_ms

    @property
    def has_deadline(self) -> bool:
        """Whether a timeout is to be answered."""
        return self.reply is not None

    def complete(self, error: Exception | None, outbox: list[Answer]) -> None:
        """Add the replies with their responses to `outbox`."""
        reply, self.reply = self.reply, None
        if reply is not None:
            outbox.append((reply, self.response if error is None else self.on_error(error)))

    def expire(self, error: Exception) -> list[Answer]:
        """Return the answers to a timeout. The records stay in the log; a later `complete` does not answer again."""
        reply, self.reply = self.reply, None
        return [] if reply is None else [(reply, self.on_error(error))]


class StepHost(Protocol):
    """The context of the shard, for what an operation lets happen later."""

    waits: DueTable[Waiting]

    def carry_out(self, result: Result[Any, Any], later: Sequence[tuple[Waiting, Operation]], /) -> None:
        """Hand out the effects of a committed operation, run the operations of requests that it wakes, and its next one."""

    def repeat(self, due: Armed, /) -> None:
        """Let a deadline be due again whose operation has failed, unless it is due already."""

    def run_otherwise(self, operation: Operation, error: Exception, /) -> None:
        """Run the operation of a result whose records could not be written, with the error as its last argument."""


class StepEvent(DeferredEvent):
    """
    An operation with steps: requests that it wakes, effects, a next operation. Nothing leaves before the commit.

    Attributes:
        due: the deadline whose operation it is.
        own: the request of the operation, if it waits.
        answers: the requests that it has woken, which are out of the table of waits, with their responses.
    """

    __slots__ = ("_host", "_later", "_result", "answers", "due", "own")

    def __init__(
        self,
        host: StepHost,
        result: Result[Any, Any],
        reply: Reply[Any] | None,
        on_error: Callable[[Exception], Any],
        deadline_ms: int,
        due: Armed | None,
    ) -> None:
        response = result.response
        super().__init__(response, None if response is None else reply, on_error, deadline_ms)
        self.due = due
        self.own: Waiting | None = None
        self.answers: list[tuple[Waiting, Any]] = []
        self._later: list[tuple[Waiting, Operation]] = []
        self._host = host
        self._result = result

    def take(self, now_ms: int, woken: Waiting | None) -> None:
        """
        Within the operation: take its waits and wakes into the table.

        Args:
            woken: the request for which the operation runs, which is out of the table.

        Raises:
            InvariantError: the result lets a request wait, and there is none; or it does not answer the woken one.
        """
        waits: DueTable[Waiting] = self._host.waits
        wait: object = self._result.response
        if isinstance(wait, Wait):
            if woken is not None:
                own = woken.again(wait, now_ms)
            elif self.reply is not None:
                own = Waiting(wait, now_ms, self.reply, self.on_error)
            else:
                raise InvariantError(f"nobody can wait under {wait.key}: the operation has no caller")
            earlier = waits.get(wait.key)
            if earlier is not None:
                self.answers.append((earlier, earlier.replaced))
            waits.put(own)
            self.response = self.reply = None
            if woken is None:
                self.own = own
        elif woken is not None:
            if wait is None:
                raise InvariantError(f"the request that waits under {woken.key} was woken without a response")
            self.answers.append((woken, wait))
            self.response = self.reply = None
        for wake in self._result.wakes:
            waiting = waits.get(wake.key)
            if waiting is None:
                continue
            if isinstance(wake.answer, Operation):
                self._later.append((waiting, wake.answer))
            else:
                waits.remove(wake.key)
                self.answers.append((waiting, wake.answer))

    @property
    def has_deadline(self) -> bool:
        return self.reply is not None or bool(self.answers) or self._may_expire()

    def _may_expire(self) -> bool:
        """Whether the operation's own request, which waits, brought records."""
        return self.own is not None and len(self._result.records) > 0

    def complete(self, error: Exception | None, outbox: list[Answer]) -> None:
        super().complete(error, outbox)
        own, self.own = self.own, None
        answers, self.answers = self.answers, []
        if error is None:
            outbox.extend([(waiting.reply, response) for waiting, response in answers])
            self._host.carry_out(self._result, self._later)
            return
        if own is not None:
            outbox.append((own.reply, self.on_error(error)))
        for waiting, _ in answers:
            # The revert has put back those that wait on. It has not if the shard is unloaded.
            if not self._host.waits.has(waiting):
                outbox.append((waiting.reply, waiting.on_error(error)))
        if self.due is not None:
            self._host.repeat(self.due)
        if self._result.otherwise is not None:
            self._host.run_otherwise(self._result.otherwise, error)

    def expire(self, error: Exception) -> list[Answer]:
        expired = super().expire(error)
        if self._may_expire():
            own, self.own = self.own, None
            assert own is not None
            if self._host.waits.has(own):
                self._host.waits.remove(own.key)
            expired.append((own.reply, own.on_error(error)))
        answers, self.answers = self.answers, []
        return [*expired, *[(waiting.reply, waiting.on_error(error)) for waiting, _ in answers]]


class DeferredBatch:
    """Operations that wait for the same offset since the same time."""

    __slots__ = ("events", "offset", "since_ms")

    def __init__(self, offset: int, since_ms: int, events: list[DeferredEvent]) -> None:
        self.offset = offset
        self.since_ms = since_ms
        self.events = events


class DeferredQueue:
    """
    Operations by the offset that the high watermark has to reach, lowest first.

    Source: Kafka DeferredEventQueue.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[DeferredBatch] = deque()

    def __len__(self) -> int:
        return sum(len(batch.events) for batch in self._queue)

    def add(self, offset: int, events: list[DeferredEvent], now_ms: int) -> None:
        """
        Raises:
            ValueError: `offset` is below the highest in the queue.
        """
        queue = self._queue
        if queue:
            newest = queue[-1]
            if offset < newest.offset:
                raise ValueError(f"cannot wait for offset {offset}: the queue has reached {newest.offset}")
            if offset == newest.offset and now_ms == newest.since_ms:
                newest.events.extend(events)
                return
        queue.append(DeferredBatch(offset, now_ms, events))

    def take_up_to(self, offset: int) -> DeferredBatch | None:
        """Remove and return the next operations that wait for `offset` or less; None if there are none."""
        queue = self._queue
        return queue.popleft() if queue and queue[0].offset <= offset else None

    def take_all(self) -> Iterator[DeferredEvent]:
        while self._queue:
            yield from self._queue.popleft().events

    def expired(self, now_ms: int) -> Iterator[tuple[DeferredEvent, int]]:
        """Yield the operations whose deadline has passed, and since when they wait; they stay in the queue."""
        for batch in self._queue:
            for event in batch.events:
                if event.has_deadline and event.deadline_ms <= now_ms:
                    yield event, batch.since_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of an operation that is not answered yet."""
        return min(
            (event.deadline_ms for batch in self._queue for event in batch.events if event.has_deadline),
            default=None,
        )


class DeferredExecution(SerialExecution):
    """The operations of one partition that wait for the high watermark, or for their deadline."""

    def __init__(self, partition: int, executor: PartitionExecutor, clock: Clock, metrics: ShardMetrics) -> None:
        super().__init__(partition, clock, metrics)
        self.state = State.INITIAL
        self.position = Position()
        self._executor = executor
        self._deferred = DeferredQueue()
        self._timeout: WheelTimer | None = None
        self._high_watermark: int | None = None
        """The newest high watermark that is queued."""

    def fail(self, events: list[DeferredEvent], error: Exception, /) -> None:
        for event in events:
            try:
                event.complete(error, self._outbox)
            except Exception as failure:  # noqa: BLE001 -- the failure of one completion must not stop the others
                self._completion_failed(event, failure)

    def _completion_failed(self, event: DeferredEvent, failure: Exception) -> None:
        _log.error("shard.completion_failed partition=%s", self.name, exc_info=failure)
        self._outbox.extend(event.expire(failure))

    def wait(self, offset: int, events: list[DeferredEvent], now_ms: int, /) -> None:
        if not events:
            # The batch holds a part of an operation that is not atomic; the operation waits for its last batch.
            return
        self._deferred.add(offset, events, now_ms)
        timeout = self._timeout
        if timeout is None or not timeout.is_armed:
            deadline_ms = self._deferred.next_deadline_ms
            if deadline_ms is not None:
                self._timeout = self._executor.wheel.arm(deadline_ms, self._on_timeout)
        else:
            # The first one is the earliest: the operations of a batch have one timeout.
            deadline_ms = events[0].deadline_ms
            if deadline_ms < timeout.deadline_ms:
                self._timeout = self._executor.wheel.move(timeout, deadline_ms)

    def on_high_watermark(self, offset: int) -> None:
        """Process a new high watermark. While an operation runs, the newest one is queued before all other events."""
        if not self._busy:
            self._busy = True
            try:
                self._commit(offset)
            finally:
                self._busy = False
                if self._outbox or self._queue:
                    self._settle()
            return
        if self._high_watermark is None:
            self._queue.appendleft(self._commit_newest)
        self._high_watermark = offset

    def _commit_newest(self) -> None:
        offset, self._high_watermark = self._high_watermark, None
        assert offset is not None
        self._commit(offset)

    def _commit(self, offset: int) -> None:
        position = self.position
        if self.state is not _ACTIVE or offset <= position.last_committed_offset:
            return
        committed = position.snapshot_at_most(offset)
        position.update_last_committed_offset(committed)
        outbox = self._outbox
        now_ms = self._now_ms()
        while (batch := self._deferred.take_up_to(committed)) is not None:
            answered = len(outbox)
            for event in batch.events:
                if not isinstance(event, StepEvent):
                    if event.reply is not None:
                        outbox.append((event.reply, event.response))
                        event.reply = None
                    continue
                try:
                    event.complete(None, outbox)
                except Exception as failure:  # noqa: BLE001 -- the failure of one completion must not stop the others
                    self._completion_failed(event, failure)
            if len(outbox) > answered:
                self._metrics.event_purgatory_time.record(now_ms - batch.since_ms, len(outbox) - answered)

    def _on_timeout(self) -> None:
        self._exclusively(self._expire_waiting)

    def _expire_waiting(self) -> None:
        """Answer the requests whose deadline has passed. Their records stay in the log, and their events in the queue."""
        now_ms = self._now_ms()
        error = CoordinatorError(ErrorCode.REQUEST_TIMED_OUT)
        for event, since_ms in self._deferred.expired(now_ms):
            expired = event.expire(error)
            if expired:
                self._metrics.event_purgatory_time.record(now_ms - since_ms, len(expired))
                self._outbox.extend(expired)
        deadline_ms = self._deferred.next_deadline_ms
        self._timeout = None if deadline_ms is None else self._executor.wheel.arm(deadline_ms, self._on_timeout)
