"""
The context of a partition: its shard, log, deadlines, open batch and waiting replies. `kohort.runtime.states` shows its states.

Operations run one at a time (`kohort.runtime.serial_execution`). An operation that arrives while another one runs, or while a
new high watermark is processed, is queued.

Source: Kafka CoordinatorRuntime.CoordinatorContext.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar, cast

from kohort.machine.bulk import LongRecords
from kohort.machine.shard import EndTransaction, Producer, Reply, Result, Shard
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.append.appender import Appender
from kohort.runtime.append.deferred import DeferredEvent, DeferredQueue, StepEvent
from kohort.runtime.append.long_appends import LongAppend
from kohort.runtime.append.open_batch import OpenBatch
from kohort.runtime.append.position import Position
from kohort.runtime.background import ShardExecutor
from kohort.runtime.environment import Environment
from kohort.runtime.loading.loader import load_shard
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import PartitionLog
from kohort.runtime.processors import PartitionExecutor
from kohort.runtime.serial_execution import SerialExecution
from kohort.runtime.states import NEXT, State
from kohort.runtime.timers.wheel import WheelTimer
from kohort.runtime.waits import Armed, Deadlines, DueTable, Waiting, apply, free

_log = logging.getLogger("kohort.runtime")
_ACTIVE: Final = State.ACTIVE

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


class Context(SerialExecution, Generic[S]):
    """
    The runtime's record of one partition.

    Not thread-safe: every method is called under the exclusivity of the partition's executor.
    """

    def __init__(
        self, environment: Environment[S], partition: int, executor: PartitionExecutor, metrics: ShardMetrics
    ) -> None:
        super().__init__(partition, environment.clock, metrics)
        self._env = environment
        self._executor = executor
        self._linger_ms = environment.append_config.linger_ms
        self.state = State.INITIAL
        self.leader_epoch = -1
        self._epoch_told = -1
        """The newest leader epoch that `shard` knows."""
        self.shard: S | None = None
        self.position = Position()
        self.generation = 0
        """The number of loads, which tells the end of an old load from the end of a newer one."""
        self.load_failures = 0
        """How often a load has failed since the partition was active."""
        self.load_error = ""
        self.loading: list[Future[None]] = []
        """Futures that wait for the end of the load."""
        registry = self.position.registry
        self.waits: DueTable[Waiting] = DueTable(registry, executor.wheel, environment.clock, self._on_wait_over)
        self._deadlines: DueTable[Armed] = DueTable(registry, executor.wheel, environment.clock, self._on_deadline)
        self._extensions = Deadlines(self._deadlines)
        self._begun = 0
        """The number of operations that nobody waits for."""
        self._shard_executor: ShardExecutor | None = None
        self._appender: Appender | None = None
        self._deferred = DeferredQueue()
        self._timeout: WheelTimer | None = None
        self._high_watermark: int | None = None
        """The newest high watermark that is queued."""

    @property
    def is_inline(self) -> bool:
        """Whether a call can be answered before it returns."""
        return self._executor.is_inline

    # -- states ------------------------------------------------------------------------------------------------

    def move_to(self, state: State) -> None:
        """
        Raises:
            InvariantError: there is no such transition.
        """
        if state not in NEXT[self.state]:
            raise InvariantError(f"partition {self.partition} cannot go from {self.state.value} to {state.value}")
        self._metrics.moved(self.state, state)
        self.state = state

    def refusal(self) -> CoordinatorError:
        """The error of an operation in a state other than ACTIVE."""
        if self.state is State.LOADING:
            return CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return CoordinatorError(ErrorCode.NOT_COORDINATOR)

    # -- load and unload ---------------------------------------------------------------------------------------

    def load(self, log: PartitionLog, leader_epoch: int) -> Iterator[None]:
        """
        Return the steps of a load. When the iterator has ended the shard is loaded, and `activate` starts it.

        Raises:
            Exception: the shard could not be made.
        """
        self.move_to(State.LOADING)
        self.generation += 1
        self.log = log
        self.leader_epoch = leader_epoch
        self._epoch_told = -1
        self.position = Position()
        wheel, clock, registry = self._executor.wheel, self._env.clock, self.position.registry
        self.waits = DueTable(registry, wheel, clock, self._on_wait_over)
        self._deadlines = DueTable(registry, wheel, clock, self._on_deadline)
        self._extensions = Deadlines(self._deadlines)
        self.shard = self._env.make_shard(self.partition, self.position.registry, self._extensions)
        self._shard_executor = ShardExecutor(self._executor, self._env.clock, self._end_task, self._metrics)
        self.shard.use_executor(self._shard_executor)
        return self._steps(log, self.shard)

    def _steps(self, log: PartitionLog, shard: S) -> Iterator[None]:
        self._tell_epoch()
        yield from load_shard(
            log,
            shard,
            self.position,
            serde=self._env.serde,
            clock=self._env.clock,
            buffer_bytes=self._env.load_buffer_bytes,
            leader_epoch=self.leader_epoch,
            metrics=self._metrics,
        )

    def raise_epoch(self, leader_epoch: int) -> None:
        """Go on under a newer leader epoch, without a load."""
        self.leader_epoch = leader_epoch
        self._exclusively(self._tell_epoch)

    def _tell_epoch(self) -> None:
        if self.shard is not None and self._epoch_told < self.leader_epoch:
            self._epoch_told = self.leader_epoch
            self.shard.on_coordinator_epoch(self.leader_epoch)

    def activate(self, on_loaded: Callable[[S, int], Result[Any, Any] | None]) -> None:
        """Accept requests: the load has ended."""
        log, shard = self.log, self.shard
        assert log is not None
        assert shard is not None
        env = self._env
        self._appender = Appender(
            self,
            log,
            shard,
            self.position,
            serde=env.serde,
            clock=env.clock,
            config=env.append_config,
            metrics=self._metrics,
        )
        self.move_to(State.ACTIVE)
        log.add_listener(self.on_high_watermark)
        begun = on_loaded(shard, env.clock.now_ms())
        if begun is not None:
            self.begin(Operation(_return, begun))
        if log.high_watermark > self.position.last_committed_offset:
            self.on_high_watermark(log.high_watermark)
        self.load_failures, self.load_error = 0, ""
        while self.loading:
            self.loading.pop().set_result(None)

    def unload(self, state: State) -> None:
        """
        Stop the shard: go to FAILED or CLOSED, and answer all waiting requests with NOT_COORDINATOR.

        The order is Kafka's: listener, deadlines, tasks, deferred replies, the open batch, the shard. The requests that wait
        are answered in slices, between which other partitions run.
        """
        self.move_to(state)
        if self.log is not None:
            self.log.remove_listener(self.on_high_watermark)
        if self._shard_executor is not None:
            self._shard_executor.close()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        error = CoordinatorError(ErrorCode.NOT_COORDINATOR)
        waiting = self.waits.close()
        cancelled = free(self._deadlines.close())
        self.fail(list(self._deferred.take_all()), error)
        held, self._held = self._held, None
        if held is not None:
            held.close()
            self.fail([held.event], error)
            self._busy = False
        appender, self._appender = self._appender, None
        if appender is not None:
            self.fail(appender.close(), error)
        while self.loading:
            self.loading.pop().set_exception(error)
        self._deliver()
        shard, self.shard = self.shard, None
        if shard is not None:
            try:
                shard.on_unloaded()
            except Exception:  # noqa: BLE001 -- the shard is dropped even if it fails to unload
                _log.exception("shard.unload_failed partition=%s", self.name)
            self._env.pending_unloads.begin(chain(self._dismiss(waiting, error), cancelled), self._executor)
        if held is not None:
            # The actions that were queued behind the long operation.
            self._settle()

    def _dismiss(self, waiting: Collection[Waiting], error: Exception) -> Iterator[None]:
        """Answer the requests that wait."""
        for each in waiting:
            if each.timer is not None:
                each.timer.cancel()
            self._outbox.append((each.reply, each.on_error(error)))
            self._deliver()
            yield

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run an action of the runtime in a later turn, as an event of this partition."""
        self._executor.call_soon(self._measured(action))

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action of the runtime in `delay_ms`, as an event of this partition."""
        self._executor.wheel.arm(self._now_ms() + delay_ms, action)

    # -- operations --------------------------------------------------------------------------------------------

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
        deadline_ms = now_ms + (self._env.write_timeout_ms if timeout_ms is None else timeout_ms)
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
        if not records:
            registry.end()
        if not records and appender.batch is None and position.last_committed_offset >= position.last_written_offset:
            # All the state that the operation has read is committed.
            if step_event is not None:
                step_event.reply = None
                step_event.complete(None, self._outbox)
                return cast("T | None", step_event.response)
            return result.response
        response = result.response
        deadline_ms = now_ms + self._env.write_timeout_ms
        event: DeferredEvent
        if step_event is not None:
            event = step_event
        else:
            event = DeferredEvent(response, reply if response is not None else None, on_error, deadline_ms)
        if records:
            try:
                if type(records) is not list and isinstance(records, LongRecords):
                    steps = appender.append_in_steps(records, now_ms, producer)
                    self._hold(LongAppend(steps, event, now_ms))
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
        event = StepEvent(self, result, reply, on_error, now_ms + self._env.write_timeout_ms, armed)
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

    def start(self, operation: Operation) -> None:
        """Run an operation that nobody waits for, now or after the queued ones. If it fails it runs again."""
        self.begin(operation)

    def begin(self, operation: Operation) -> None:
        """Run an operation as one of a deadline that has come."""
        if self.state is not _ACTIVE:
            return
        self._begun += 1
        armed = Armed(("begun", str(self._begun)), self._now_ms(), operation)
        self._deadlines.insert(armed)
        self._on_deadline(armed)

    def _on_wait_over(self, waiting: Waiting) -> None:
        late = waiting.late
        operation = late if isinstance(late, Operation) else Operation(_return, Result(response=late))
        self._exclusively(partial(self._run_due, operation, self.waits, waiting))

    def _on_deadline(self, armed: Armed) -> None:
        self._exclusively(partial(self._run_due, armed.operation, self._deadlines, armed))

    def _run_due(self, operation: Operation, table: DueTable[Any], entry: Waiting | Armed) -> None:
        """Run an operation of a wait or a deadline, which may have ended while the event was queued."""
        if self.state is _ACTIVE and table.has(entry):
            self._run(operation, None, _nothing, None, entry)

    def _hold(self, held: LongAppend) -> None:
        """Append the records of a long operation in slices. The operations that arrive meanwhile are queued."""
        self._held = held
        if self.is_inline:
            self._env.long_appends.add(self._advance, self._executor)
        else:
            # The thread runs partitions, and no event loop.
            while self._held is held:
                self._step(held)

    def _advance(self) -> bool:
        """Run a slice of the long operation, and return whether it has ended."""
        held = self._held
        if held is None:
            return True
        self._step(held)
        if self._held is not None:
            return False
        self._busy = False
        self._settle()
        return True

    def _step(self, held: LongAppend) -> None:
        appender, event = self._appender, held.event
        assert appender is not None
        try:
            batch = held.next_step()
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            self._held = None
            self.position.registry.undo()
            self.fail([event], self._logged(error))
        else:
            if batch is None:
                return
            # From here on the event belongs to the batch, also if the append unloads the shard.
            self._held = None
            batch.events.append(event)
            appender.flush(batch)
        self._metrics.event_processing_time.record(self._now_ms() - held.since_ms)

    # -- calls of the appender ---------------------------------------------------------------------------------

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
            deadline_ms = events[0].deadline_ms
            if len(events) > 1:
                deadline_ms = min([event.deadline_ms for event in events])
            if deadline_ms < timeout.deadline_ms:
                self._timeout = self._executor.wheel.move(timeout, deadline_ms)

    def flush_later(self, batch: OpenBatch, /) -> None:
        linger_ms = self._linger_ms
        if linger_ms > 0:
            batch.linger = self._executor.wheel.arm(self._now_ms() + linger_ms, self._flush_open)
        else:
            self._executor.defer(self._flush_open)

    def _flush_open(self) -> None:
        """
        Append the open batch. If the batch of this timer was full before, its successor is appended a little early.
        """
        appender = self._appender
        if appender is not None:
            self._exclusively(appender.flush_open)

    def out_of_sync(self, end: int, expected: int, /) -> None:
        assert self.log is not None
        _log.error("shard.out_of_sync partition=%s end=%d expected=%d", self.log.topic_partition, end, expected)
        self.unload(State.FAILED)
        self._env.on_failed(self.partition)

    # -- the high watermark ------------------------------------------------------------------------------------

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
        for batch in self._deferred.take_up_to(committed):
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

    # -- tasks -------------------------------------------------------------------------------------------------

    def _end_task(
        self,
        is_current: Callable[[], bool],
        operation: Callable[[int], Result[Any, None]],
        on_failure: Callable[[Exception], None],
    ) -> None:
        def failed(error: Exception) -> None:
            # Nobody waits for the tasks of a shard that was unloaded.
            if self.state is _ACTIVE:
                on_failure(error)

        def run(_: S, now_ms: int) -> Result[Any, None]:
            if not is_current():
                return Result()
            result = operation(now_ms)
            # With a response the operation has a deadline, and a timeout is a failure.
            return result.replace(response=_DONE) if result.records else result

        self.write(run, _nothing, failed)

    def _logged(self, error: Exception) -> Exception:
        # The appender has logged errors of the log; a refused request is no error of the shard.
        if not isinstance(error, CoordinatorError | StorageError):
            _log.error("shard.operation_failed partition=%s", self.name, exc_info=error)
        return error

    @property
    def topic_partition(self) -> TopicPartition | None:
        return None if self.log is None else self.log.topic_partition


def _nothing(_: object) -> None:
    """Ignore the response of a timer's operation."""


def _return(_shard: Any, _now_ms: int, result: Result[Any, Any]) -> Result[Any, Any]:
    return result


_DONE: Any = object()


def _itself(error: Exception) -> Exception | None:
    return error
