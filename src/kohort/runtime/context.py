"""
One partition's shard and everything the runtime knows of it.

```
INITIAL ──▸ LOADING ──▸ ACTIVE
   │           │  ▴        │
   │           ▾  │        │
   │         FAILED ◂──────┤
   ▾           ▾           ▾
 CLOSED ◂──────┴───────────┘
```

Operations run one at a time: what arrives while one runs, or while the high watermark's consequences are drawn, waits in a
queue of the partition. Replies leave when the state is consistent again, so a reply may well cause the next operation.

Source: Kafka CoordinatorRuntime.CoordinatorContext.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from kohort.machine.shard import RecordSerde, Release, Reply, Result, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import (
    CoordinatorError,
    ErrorCode,
    InvariantError,
    RecordTooLargeError,
)
from kohort.model.ids import TopicPartition
from kohort.runtime.batch import BATCH_OVERHEAD_BYTES, OpenBatch, Pair, size_bytes
from kohort.runtime.deferred import Answer, DeferredQueue, Waiting, answers
from kohort.runtime.loader import LoadSummary, load
from kohort.runtime.ports import Clock, Defer, PartitionLog
from kohort.runtime.timers import ShardTimers
from kohort.runtime.wheel import Wheel, WheelTimer
from kohort.wire.batches import encode_batch

_log = logging.getLogger("kohort.runtime")

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

GROUP_BATCH_BASE_SEQUENCE = 0
"""Kafka's coordinators write base sequence 0 though their batches have no producer id (seen in every log of 4.2.1)."""


class State(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_NEXT = {
    State.INITIAL: {State.LOADING, State.CLOSED},
    State.LOADING: {State.ACTIVE, State.FAILED, State.CLOSED},
    State.ACTIVE: {State.FAILED, State.CLOSED},
    State.FAILED: {State.LOADING, State.CLOSED},
    State.CLOSED: set[State](),
}


class Environment(msgspec.Struct, Generic[S], frozen=True):
    """What every context of one runtime shares."""

    make_shard: Callable[[int, SnapshotRegistry, ShardTimers], S]
    serde: RecordSerde[Any]
    clock: Clock
    wheel: Wheel
    defer: Defer
    write_timeout_ms: int
    on_failed: Callable[[int], None]
    """Told when a partition went to FAILED by itself and wants to be loaded again."""


class Context(Generic[S]):
    """
    The runtime's record of one partition.

    Not safe for threads: it belongs to the thread that runs the node.
    """

    def __init__(self, environment: Environment[S], partition: int) -> None:
        self._env = environment
        self.partition = partition
        self.state = State.INITIAL
        self.leader_epoch = -1
        self.shard: S | None = None
        self.log: PartitionLog | None = None
        self.registry = SnapshotRegistry()
        self.timers = ShardTimers(environment.wheel, environment.clock, self._expire)
        self.last_written = 0
        self.last_committed = 0
        self.generation = 0
        """Counts loads, so that the end of an old one is never taken for the end of a newer one."""
        self._batch: OpenBatch | None = None
        self._deferred = DeferredQueue()
        self._timeout: WheelTimer | None = None
        self._busy = False
        self._queue: deque[Callable[[], None]] = deque()
        self._outbox: list[Answer] = []

    # -- states ------------------------------------------------------------------------------------------------

    def move_to(self, state: State) -> None:
        """
        Raises:
            InvariantError: the diagram above has no such arrow.
        """
        if state not in _NEXT[self.state]:
            raise InvariantError(f"partition {self.partition} cannot go from {self.state.value} to {state.value}")
        self.state = state

    def refusal(self) -> CoordinatorError:
        """Why an operation cannot run now."""
        if self.state is State.LOADING:
            return CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return CoordinatorError(ErrorCode.NOT_COORDINATOR)

    # -- load and unload ---------------------------------------------------------------------------------------

    def load(self, log: PartitionLog, leader_epoch: int) -> Iterator[None]:
        """
        Load the shard, a step at a time; the iterator's end leaves it loaded, and `activate` starts it.

        Raises:
            StorageError: the log cannot be read, or holds what is no record.
        """
        self.move_to(State.LOADING)
        self.generation += 1
        self.log = log
        self.leader_epoch = leader_epoch
        self.registry = SnapshotRegistry()
        self.shard = self._env.make_shard(self.partition, self.registry, self.timers)
        return self._steps(log, self.shard)

    def _steps(self, log: PartitionLog, shard: S) -> Iterator[None]:
        summary = LoadSummary()
        started_ms = self._env.clock.now_ms()
        committed, end = log.high_watermark, log.end_offset
        yield from load(log, shard, self._env.serde, summary, start=log.log_start_offset, end=committed)
        self.registry.create(committed)
        yield from load(log, shard, self._env.serde, summary, start=committed, end=end)
        self.registry.create(end)
        self.last_written, self.last_committed = end, committed
        _log.log(
            logging.INFO if summary.records else logging.DEBUG,
            "shard.loaded partition=%s leader_epoch=%d records=%d replayed=%d bytes=%d elapsed_ms=%d",
            log.topic_partition,
            self.leader_epoch,
            summary.records,
            summary.replayed,
            summary.bytes,
            self._env.clock.now_ms() - started_ms,
        )

    def activate(self, on_loaded: Callable[[S, int], None]) -> None:
        """The load has ended: take requests from now on."""
        assert self.log is not None
        assert self.shard is not None
        self.move_to(State.ACTIVE)
        self.log.listen(self._on_high_watermark)
        on_loaded(self.shard, self._env.clock.now_ms())
        if self.log.high_watermark > self.last_committed:
            self._on_high_watermark(self.log.high_watermark)

    def unload(self, state: State) -> None:
        """
        Stop: go to FAILED or CLOSED, and answer whoever waits with NOT_COORDINATOR.

        Order as in Kafka: listener, timers, deferred replies, the open batch, the shard.
        """
        self.move_to(state)
        error = CoordinatorError(ErrorCode.NOT_COORDINATOR)
        if self.log is not None:
            self.log.unlisten(self._on_high_watermark)
        self.timers.cancel_all()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        for event in self._deferred.take_all():
            self._outbox.extend(event.complete(error))
        if self._batch is not None:
            batch, self._batch = self._batch, None
            for event in batch.events:
                self._outbox.extend(event.complete(error))
        shard, self.shard = self.shard, None
        if shard is not None:
            try:
                self._outbox.extend(answers(shard.on_unloaded()))
            except Exception:  # noqa: BLE001 -- a shard that fails to say goodbye is gone all the same
                _log.exception("shard.unload_failed partition=%d", self.partition)
        # What was told of the failure above may have armed some anew.
        self.timers.cancel_all()
        self._deliver()

    # -- operations --------------------------------------------------------------------------------------------

    def write(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
    ) -> T | None:
        """Run a write operation, now or when its turn comes; see `kohort.machine.shard.Runner.write`."""
        if self._busy:
            self._queue.append(lambda: self._write_queued(operation, reply, on_error))
            return None
        if self.state is not State.ACTIVE:
            return on_error(self.refusal())
        self._busy = True
        try:
            return self._run(operation, reply, on_error)
        finally:
            self._busy = False
            if self._outbox or self._queue:
                self._settle()

    def read(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        """Ask the state as of the high watermark."""
        if self.state is not State.ACTIVE:
            return on_error(self.refusal())
        assert self.shard is not None
        try:
            return query(self.shard, self.last_committed)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            return on_error(self._logged(error))

    def _write_queued(
        self, operation: Callable[[S, int], Result[Any, T]], reply: Reply[T] | None, on_error: Callable[[Exception], T]
    ) -> None:
        response = on_error(self.refusal()) if self.state is not State.ACTIVE else self._run(operation, reply, on_error)
        if response is not None and reply is not None:
            self._outbox.append((reply, response))

    def _run(
        self, operation: Callable[[S, int], Result[Any, T]], reply: Reply[T] | None, on_error: Callable[[Exception], T]
    ) -> T | None:
        assert self.shard is not None
        now_ms = self._env.clock.now_ms()
        try:
            result = operation(self.shard, now_ms)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            return on_error(self._logged(error))
        if not result.records and self._is_settled():
            if result.after is not None:
                self._outbox.extend(answers(result.after(None)))
            if result.releases:
                self._outbox.extend(answers(result.releases))
            return result.response
        response = result.response
        event = Waiting(
            response,
            reply if response is not None else None,
            on_error,
            result.releases,
            result.after,
            now_ms + self._env.write_timeout_ms,
        )
        if result.records:
            try:
                self._append(result, event, now_ms)
            except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
                self._outbox.extend(event.complete(self._logged(error)))
        elif self._batch is not None and self._batch.pairs:
            self._batch.events.append(event)
        else:
            self._await(self.last_written, [event])
        return None

    def _is_settled(self) -> bool:
        """Whether everything that has been read or written so far is committed."""
        return self.last_committed >= self.last_written and (self._batch is None or not self._batch.pairs)

    # -- appending ---------------------------------------------------------------------------------------------

    def _append(self, result: Result[Any, Any], event: Waiting, now_ms: int) -> None:
        """
        Replay records and put them into the open batch.

        Raises:
            CoordinatorError: nothing of this result was kept; the event is the caller's to fail.
        """
        assert self.log is not None
        encode = self._env.serde.encode
        pairs = [encode(record) for record in result.records]
        bytes_max = self.log.batch_bytes_max
        if result.is_atomic:
            needed = size_bytes(pairs)
            batch = self._batch
            if batch is None or batch.bytes_left < needed:
                if needed > bytes_max - BATCH_OVERHEAD_BYTES:
                    raise CoordinatorError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"{len(pairs)} records need {needed} bytes; a batch holds {bytes_max}",
                    )
                batch = self._room_for(needed, now_ms)
            self._replay_into(batch, result, pairs, needed)
        else:
            for index, pair in enumerate(pairs):
                needed = size_bytes([pair])
                part = msgspec.structs.replace(result, records=result.records[index : index + 1])
                self._replay_into(self._room_for(needed, now_ms), part, [pair], needed)
        assert self._batch is not None
        self._batch.events.append(event)

    def _room_for(self, needed: int, now_ms: int) -> OpenBatch:
        batch = self._batch
        if batch is not None and batch.pairs and batch.bytes_left < needed:
            self._flush()
            batch = self._batch
        if self.state is not State.ACTIVE or self.log is None:
            raise self.refusal()
        if batch is None:
            batch = self._batch = OpenBatch(
                base_offset=self.last_written, bytes_max=self.log.batch_bytes_max, opened_ms=now_ms
            )
            self._env.defer(self._flush_at_end_of_turn)
        return batch

    def _replay_into(self, batch: OpenBatch, result: Result[Any, Any], pairs: list[Pair], needed: int) -> None:
        assert self.shard is not None
        offset = batch.next_offset
        if result.replayed:
            try:
                replay = self.shard.replay
                for record in result.records:
                    replay(offset, -1, -1, record)
                    offset += 1
            except Exception as error:
                # Memory is half changed: everything since the batch was opened goes back.
                _log.exception("shard.replay_failed partition=%d", self.partition)
                failure = InvariantError(f"replaying a record of partition {self.partition} failed: {error}")
                self._fail_batch(failure)
                raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        batch.pairs.extend(pairs)
        batch.bytes_left -= needed

    def _flush_at_end_of_turn(self) -> None:
        if self._busy:
            self._queue.append(self._flush)
            return
        self._busy = True
        try:
            self._flush()
        finally:
            self._busy = False
            if self._outbox or self._queue:
                self._settle()

    def _flush(self) -> None:
        """Append the open batch; on failure memory goes back to what it was before the batch."""
        batch = self._batch
        if batch is None:
            return
        if not batch.pairs:
            self._batch = None
            return
        assert self.log is not None
        data = encode_batch(batch.pairs, batch.opened_ms, base_sequence=GROUP_BATCH_BASE_SEQUENCE)
        try:
            if len(data) > self.log.batch_bytes_max:
                raise RecordTooLargeError(
                    f"a batch of {len(data)} bytes; the partition takes {self.log.batch_bytes_max}"
                )
            end = self.log.append(data, leader_epoch=self.leader_epoch)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            _log.warning("shard.append_failed partition=%s error=%s", self.log.topic_partition, error)
            self._fail_batch(error)
            return
        self._batch = None
        if end != batch.next_offset:
            # Somebody else wrote to this partition: what was replayed has other offsets than the log.
            self._deferred.add(self.last_written, batch.events)
            self._out_of_sync(end, batch.next_offset)
            return
        self.last_written = end
        self.registry.create(end)
        self._await(end, batch.events)

    def _fail_batch(self, error: Exception) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self.registry.revert_to(batch.base_offset)
        for event in batch.events:
            self._outbox.extend(event.complete(error))

    def _out_of_sync(self, end: int, expected: int) -> None:
        assert self.log is not None
        _log.error("shard.out_of_sync partition=%s end=%d expected=%d", self.log.topic_partition, end, expected)
        self.unload(State.FAILED)
        self._env.on_failed(self.partition)

    # -- the high watermark ------------------------------------------------------------------------------------

    def _await(self, offset: int, events: list[Waiting]) -> None:
        self._deferred.add(offset, events)
        if self._timeout is None or not self._timeout.is_armed:
            deadline_ms = self._deferred.next_deadline_ms
            if deadline_ms is not None:
                self._timeout = self._env.wheel.arm(deadline_ms, self._on_timeout)

    def _on_high_watermark(self, offset: int) -> None:
        if self._busy:
            self._queue.append(lambda: self._commit(offset))
            return
        self._busy = True
        try:
            self._commit(offset)
        finally:
            self._busy = False
            if self._outbox or self._queue:
                self._settle()

    def _commit(self, offset: int) -> None:
        if self.state is not State.ACTIVE or offset <= self.last_committed:
            return
        committed = self.last_written
        if offset < committed:
            # Snapshots lie at the ends of batches, and only what has a snapshot can be read: stop at the last one below.
            committed = max((epoch for epoch in self.registry.epochs if epoch <= offset), default=self.last_committed)
        self.last_committed = committed
        self.registry.delete_up_to(committed)
        outbox = self._outbox
        for event in self._deferred.take_up_to(committed):
            if event.after is None and not event.releases:
                if event.reply is not None:
                    outbox.append((event.reply, event.response))
                    event.reply = None
                continue
            try:
                outbox.extend(event.complete(None))
            except Exception:  # noqa: BLE001 -- one completion's failure must not keep the others waiting
                _log.exception("shard.completion_failed partition=%d", self.partition)

    def _on_timeout(self) -> None:
        """Answer those who have waited too long; what they wrote stays, and they stay in the queue, mute."""
        now_ms = self._env.clock.now_ms()
        for event in self._deferred.expired(now_ms):
            answer = event.expire(CoordinatorError(ErrorCode.REQUEST_TIMED_OUT))
            if answer is not None:
                self._outbox.append(answer)
        deadline_ms = self._deferred.next_deadline_ms
        self._timeout = None if deadline_ms is None else self._env.wheel.arm(deadline_ms, self._on_timeout)
        if not self._busy:
            self._settle()

    # -- timers ------------------------------------------------------------------------------------------------

    def _expire(
        self,
        is_current: Callable[[], bool],
        operation: Callable[[int], Result[Any, None]],
        on_failure: Callable[[Exception], None],
    ) -> None:
        def failed(error: Exception) -> None:
            # A timer of a shard that is gone is rebuilt when it loads again.
            if self.state is State.ACTIVE:
                on_failure(error)

        def run(_: S, now_ms: int) -> Result[Any, None]:
            if not is_current():
                return Result()
            result = operation(now_ms)

            def after(error: Exception | None) -> Iterable[Release]:
                if error is not None:
                    failed(error)
                return () if result.after is None else result.after(error)

            return msgspec.structs.replace(result, after=after) if result.records else result

        self.write(run, None, failed)

    # -- leaving the exclusive part ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Answer who is to be answered, and run what arrived meanwhile, until nothing is left."""
        while self._outbox or self._queue:
            self._deliver()
            if self._queue and not self._busy:
                self._busy = True
                try:
                    self._queue.popleft()()
                finally:
                    self._busy = False

    def _deliver(self) -> None:
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            for reply, response in outbox:
                try:
                    reply(response)
                except Exception:  # noqa: BLE001 -- one caller's failure must not keep the others waiting
                    _log.exception("shard.reply_failed partition=%d", self.partition)

    def _logged(self, error: Exception) -> Exception:
        if not isinstance(error, CoordinatorError):
            _log.error("shard.operation_failed partition=%d", self.partition, exc_info=error)
        return error

    @property
    def topic_partition(self) -> TopicPartition | None:
        return None if self.log is None else self.log.topic_partition
