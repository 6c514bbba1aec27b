"""
The operations of a partition: requests, deadlines that have come, and woken requests, on the newest state of its shard.

Operations run one at a time (`kohort.runtime.serial_execution`). An operation that arrives while another one runs, or while a
new high watermark is processed, is queued.

Source: Kafka CoordinatorRuntime.CoordinatorContext.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from kohort.machine.bulk import LongRecords
from kohort.machine.shard import EndTransaction, Producer, Reply, Result, Shard
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.runtime.append.appender import Appender, Owner
from kohort.runtime.append.deferred import DeferredEvent, StepEvent
from kohort.runtime.append.open_batch import OpenBatch
from kohort.runtime.environment import Environment
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.processors import PartitionExecutor
from kohort.runtime.states import State
from kohort.runtime.waits import Armed, Deadlines, DueTable, Waiting, apply

_log = logging.getLogger("kohort.runtime")
_ACTIVE: Final = State.ACTIVE

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


class Operations(Owner, Generic[S]):
    """
    Runs the operations of one partition.

    Attributes:
        is_inline: whether a call can be answered before it returns.
    """

    def __init__(
        self, environment: Environment[S], partition: int, executor: PartitionExecutor, metrics: ShardMetrics
    ) -> None:
        super().__init__(partition, executor, environment.clock, metrics)
        self._env = environment
        self._linger_ms = environment.linger_ms
        self._open_batches = environment.open_batches
        self._write_timeout_ms = environment.write_timeout_ms
        self.is_inline = executor.is_inline
        self.shard: S | None = None
        registry = self.position.registry
        self.waits: DueTable[Waiting] = DueTable(registry, executor.wheel, environment.clock, self._on_wait_over)
        self._deadlines: DueTable[Armed] = DueTable(registry, executor.wheel, environment.clock, self._on_deadline)
        self._extensions = Deadlines(self._deadlines)
        self._begun = 0
        """The number of operations that nobody waits for."""
        self._appender: Appender | None = None
        self._held_event: DeferredEvent | None = None
        """The event of the long operation `_held`."""

    def refusal(self) -> CoordinatorError:
        """The error of an operation in a state other than ACTIVE."""
        if self.state is State.LOADING or self.state is State.INITIAL:
            return CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return CoordinatorError(ErrorCode.NOT_COORDINATOR)

    def write(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None = None,
    ) -> T | None:
        """Run a write operation, now or after the queued ones; see `kohort.machine.shard.Runner.write`."""
        if self._busy:
            # Not a lambda: its cells would cost 50 ns in every operation.
            self._enqueue(partial(self._write_queued, operation, reply, on_error, producer))
            return None
        if self.state is not _ACTIVE:
            return on_error(self.refusal())
        self._busy = True
        try:
            return self._run(operation, reply, on_error, producer)
        finally:
            self._busy = self._held is not None
            if self._outbox or self._queue:
                self._settle()

    def end_transaction(self, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None) -> None:
        """Append a transaction's marker; see `kohort.machine.shard.Runner.end_transaction`."""
        self._exclusively(lambda: self._end_transaction(end, reply, timeout_ms))

    def _end_transaction(self, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None) -> None:
        if self.state is not _ACTIVE or self._appender is None:
            self._outbox.append((reply, self.refusal()))
            return
        now_ms = self._now_ms()
        deadline_ms = now_ms + (self._write_timeout_ms if timeout_ms is None else timeout_ms)
        event = DeferredEvent(None, reply, _itself, deadline_ms)
        try:
            self._appender.end_transaction(end, event, now_ms)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            self.fail([event], self._logged(error))

    def read(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        """Query the state as of the high watermark."""
        if self.state is not _ACTIVE:
            return on_error(self.refusal())
        assert self.shard is not None
        try:
            return query(self.shard, self.position.last_committed_offset)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            return on_error(self._logged(error))

    def _write_queued(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None,
    ) -> None:
        is_active = self.state is _ACTIVE
        response = self._run(operation, reply, on_error, producer) if is_active else on_error(self.refusal())
        if response is not None and reply is not None:
            self._outbox.append((reply, response))

    def _run(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None,
        due: Waiting | Armed | None = None,
    ) -> T | None:
        """
        Run an operation.

        Args:
            due: the request that was woken, or the deadline, for which the operation runs. It is in its table.
        """
        shard, appender = self.shard, self._appender
        assert shard is not None
        now_ms = self._extensions.now_ms = self._now_ms()
        position = self.position
        registry = position.registry
        registry.begin()
        step_event: StepEvent | None = None
        try:
            if due is not None:
                self._take_out(due)
            # The first way is a direct call in compiled code.
            result: Result[Any, T] = (
                operation.run(shard, now_ms) if isinstance(operation, Operation) else operation(shard, now_ms)
            )
            # Also what is no Result is answered.
            records = result.records
            if result.on_error is not None:
                on_error = result.on_error
            if due is not None or result.has_steps:
                step_event = self._take_steps(result, reply, on_error, now_ms, due)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            registry.undo()
            self._logged(error)
            # A request that was woken waits on.
            return on_error(error) if due is None else None
        assert appender is not None
        has_records = bool(records)
        if not has_records:
            registry.end()
        if (
            not has_records
            and appender.batch is None
            and position.last_committed_offset >= position.last_written_offset
        ):
            # All the state that the operation has read is committed.
            if step_event is not None:
                step_event.reply = None
                step_event.complete(None, self._outbox)
                return cast("T | None", step_event.response)
            return result.response
        response = result.response
        deadline_ms = now_ms + self._write_timeout_ms
        event: DeferredEvent
        if step_event is not None:
            event = step_event
        else:
            event = DeferredEvent(response, reply if response is not None else None, on_error, deadline_ms)
        if has_records:
            try:
                if type(records) is not list and isinstance(records, LongRecords):
                    self._append_long(appender.append_in_steps(records, now_ms, producer), event, now_ms)
                    return None
                appender.append(result, event, now_ms, producer)
            except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
                registry.undo()
                self.fail([event], self._logged(error))
            self._metrics.event_processing_time.record(self._now_ms() - now_ms)
        elif appender.batch is not None:
            appender.batch.events.append(event)
        else:
            self.wait(position.last_written_offset, [event], now_ms)
        return None

    # -- steps -------------------------------------------------------------------------------------------------

    def _take_out(self, due: Waiting | Armed) -> None:
        if isinstance(due, Waiting):
            self.waits.remove(due.key)
        else:
            self._deadlines.remove(due.key)

    def _take_steps(
        self,
        result: Result[Any, T],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        now_ms: int,
        due: Waiting | Armed | None,
    ) -> StepEvent:
        """Begin what the operation lets happen later, within the operation."""
        armed = due if isinstance(due, Armed) else None
        event = StepEvent(self, result, reply, on_error, now_ms + self._write_timeout_ms, armed)
        event.take(now_ms, due if isinstance(due, Waiting) else None)
        for deadline in result.deadlines:
            apply(deadline, self._deadlines, now_ms)
        return event

    def carry_out(self, result: Result[Any, Any], later: Sequence[tuple[Waiting, Operation]], /) -> None:
        if result.effects:
            try:
                self._env.on_effects(self.partition, result.effects)
            except Exception:  # noqa: BLE001 -- the failure of one effect must not stop the partition
                _log.exception("shard.effect_failed partition=%s", self.name)
        for waiting, operation in later:
            self._exclusively(partial(self._run_due, operation, self.waits, waiting))
        if result.then is not None:
            self.begin(result.then)

    def repeat(self, due: Armed, /) -> None:
        self._deadlines.put_back(due)

    def run_otherwise(self, operation: Operation, error: Exception, /) -> None:
        self.begin(Operation(operation.function, *operation.arguments, error))

    def begin(self, operation: Operation) -> None:
        """
        Run an operation that nobody waits for, as one of a deadline that has come: now or after the queued ones. If it fails it
        runs again.
        """
        if self.state is not _ACTIVE:
            return
        self._begun += 1
        armed = Armed(("begun", str(self._begun)), self._now_ms(), operation)
        self._deadlines.insert(armed)
        self._on_deadline(armed)

    def _on_wait_over(self, waiting: Waiting) -> None:
        late = waiting.late
        operation = late if isinstance(late, Operation) else Operation(returned, Result(response=late))
        self._exclusively(partial(self._run_due, operation, self.waits, waiting))

    def _on_deadline(self, armed: Armed) -> None:
        run = partial(self._exclusively, partial(self._run_due, armed.operation, self._deadlines, armed))
        if armed.is_step:
            self._executor.call_soon(run)
        else:
            run()

    def _run_due(self, operation: Operation, table: DueTable[Any], entry: Waiting | Armed) -> None:
        """Run an operation of a wait or a deadline, which may have ended while the event was queued."""
        if self.state is _ACTIVE and table.has(entry):
            self._run(operation, None, _nothing, None, entry)

    def _append_long(self, steps: Generator[None, None, OpenBatch], event: DeferredEvent, since_ms: int) -> None:
        """Append the records of a long operation in slices. The operations that arrive meanwhile are queued."""
        held = self._held = self._append_in_slices(steps, event, since_ms)
        self._held_event = event
        if self.is_inline:
            self._env.slices.add(held, self._executor, 0)
        else:
            # The thread runs partitions, and no event loop.
            for _ in held:
                pass

    def _append_in_slices(
        self, steps: Generator[None, None, OpenBatch], event: DeferredEvent, since_ms: int
    ) -> Generator[None, None, None]:
        appender = self._appender
        assert appender is not None
        try:
            batch = yield from steps
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            self._held = None
            self.position.registry.undo()
            self.fail([event], self._logged(error))
        else:
            # From here on the event belongs to the batch, also if the append unloads the shard.
            self._held = None
            batch.events.append(event)
            appender.flush(batch)
        self._metrics.event_processing_time.record(self._now_ms() - since_ms)
        self._busy = False
        self._settle()

    # -- appends -----------------------------------------------------------------------------------------------

    def flush_later(self, batch: OpenBatch, /) -> None:
        linger_ms = self._linger_ms
        if linger_ms > 0:
            batch.linger = self._executor.wheel.arm(self._now_ms() + linger_ms, self.flush_open)
        elif self.is_inline:
            self._open_batches.add(self)
        else:
            self._executor.defer(self.flush_open)

    def flush_open(self) -> None:
        """
        Append the open batch. If the batch of this timer was full before, its successor is appended a little early.
        """
        appender = self._appender
        if appender is not None:
            self._exclusively(appender.flush)

    def _logged(self, error: Exception) -> Exception:
        # The appender has logged errors of the log; a refused request is no error of the shard.
        if not isinstance(error, CoordinatorError | StorageError):
            _log.error("shard.operation_failed partition=%s", self.name, exc_info=error)
        return error


def _nothing(_: object) -> None:
    """Ignore the response of a timer's operation."""


def returned(_shard: Any, _now_ms: int, result: Result[Any, Any]) -> Result[Any, Any]:
    return result


def _itself(error: Exception) -> Exception | None:
    return error
