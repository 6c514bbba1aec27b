"""
The runtime: runs the shards of one internal topic, one for each partition that this node leads.

It turns a state machine into a replicated one. A write operation runs on the newest state; its records are replayed and added
to the open batch of the partition; the batch is appended at the end of the turn; the reply leaves when the high watermark has
passed the batch. A query sees committed state and never waits. `kohort.machine.shard` is the contract of a shard; `DESIGN.md`
follows a request through all rooms.

Source: Kafka CoordinatorRuntime.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from kohort.machine.shard import Deadlines, Producer, RecordSerde, Result
from kohort.machine.steps import Operation
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import InvariantError, KohortError
from kohort.model.image import NO_TOPICS, ClusterImage, ImageDelta
from kohort.runtime.append.appender import OpenBatches
from kohort.runtime.context import Context
from kohort.runtime.environment import Environment
from kohort.runtime.loading.ahead import Pause
from kohort.runtime.loading.windows import LOAD_BUFFER_BYTES
from kohort.runtime.metrics import RuntimeMetrics, ShardMetrics
from kohort.runtime.ports import ADAPTIVE, Clock, PartitionLog, Verify
from kohort.runtime.processors import PartitionExecutor, Processor
from kohort.runtime.runner import Leads, PartitionRunner, S, T, not_coordinator
from kohort.runtime.slices import Slices
from kohort.runtime.states import State
from kohort.runtime.threaded.context import ThreadedContext
from kohort.wire.compression import Codec

_log = logging.getLogger("kohort.runtime")

WRITE_TIMEOUT_MS: Final = 5_000
"""Source: offsets.commit.timeout.ms, which is the deadline of every write of a coordinator."""

RELOAD_MS_MIN: Final = 500
RELOAD_MS_MAX: Final = 60_000
"""The back-off of a partition whose load failed. Kafka waits for a newer leader epoch, which one broker never gets."""
_DOUBLINGS_MAX: Final = 16


def skip_verification(_partition: int, _producer: Producer, verified: Callable[[Exception | None], None]) -> None:
    """Verify nothing: for programs that trust their producers."""
    verified(None)


class Runtime(PartitionRunner[S]):
    """
    The shards of a topic's partitions; implements `kohort.machine.shard.Runner`.

    With an `InlineProcessor`, all calls and replies are on the thread that owns the node. With a `ThreadedProcessor` any thread
    may call; replies are on the processor's threads and must not block, and no call returns its response.

    Args:
        make_shard: returns a new shard for (partition, snapshot registry, deadlines).
        serde: encodes and decodes the records of the shards.
        processor: runs the events of the partitions; several runtimes may share it.
        partition_count: the number of partitions of the topic, by which services find the partition of a key.
        image: the current cluster, for `Shard.on_loaded` and `Shard.on_image`. Default: no topics.
        verify: verifies the transaction of a producer before its records are written.
        write_timeout_ms: the deadline of a write. Source: offsets.commit.timeout.ms.
        linger_ms: how long a batch stays open: 0 for one batch per operation, ADAPTIVE (-1) until the operations that had
            arrived when it was opened are in it. Source: group.coordinator.append.linger.ms.
        codec: the compression of the batches. Source: offsets.topic.compression.codec.
        on_effects: called with a partition and the effects of each operation when its records are committed, in their order.
        load_buffer_bytes: the size of the window in which a load reads the log. Source: offsets.load.buffer.size.
        is_compacted: whether the newest record of a key stands for all before it, so that a load may leave those out.
        checks_state: whether an operation that changes state outside of `replay` fails, for tests of shards
            (`kohort.runtime.checked`).
    """

    def __init__(
        self,
        *,
        make_shard: Callable[[int, SnapshotRegistry, Deadlines], S],
        serde: RecordSerde[Any],
        clock: Clock,
        processor: Processor,
        partition_count: int = 1,
        image: ClusterImage | None = None,
        verify: Verify = skip_verification,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        linger_ms: int = ADAPTIVE,
        codec: Codec = Codec.NONE,
        on_effects: Callable[[int, Sequence[Any]], None] | None = None,
        load_buffer_bytes: int = LOAD_BUFFER_BYTES,
        is_compacted: bool = True,
        checks_state: bool = False,
    ) -> None:
        if linger_ms < ADAPTIVE:
            raise ValueError(f"linger_ms is {linger_ms}; it is -1 (adaptive), 0 or more")
        self._contexts: dict[int, Context[S]] = {}
        super().__init__(self._contexts.get, verify, clock, partition_count)
        self._image: ClusterImage = NO_TOPICS if image is None else image
        self._processor = processor
        self._queues = processor.event_queues()
        self._metrics: dict[int, ShardMetrics] = {}
        self._executors: dict[int, PartitionExecutor] = {}
        self._changing = threading.Lock()
        """Held while the dicts above change or are copied, and not during calls of other objects."""
        self._environment = Environment(
            make_shard=make_shard,
            serde=serde,
            clock=clock,
            linger_ms=linger_ms,
            codec=codec,
            write_timeout_ms=write_timeout_ms,
            on_failed=self._reload,
            slices=Slices(clock),
            open_batches=OpenBatches(),
            on_effects=_drop_effects if on_effects is None else on_effects,
            load_buffer_bytes=load_buffer_bytes,
            is_compacted=is_compacted,
        )
        self._is_closed = False
        self._checks_state = checks_state
        self.hold_load: Callable[[int, Callable[[], None]], bool] | None = None
        """Takes the function that goes on with a load, and calls it later; returns whether it does. For tests of clients."""

    def states(self) -> dict[int, State]:
        """The state of each known partition."""
        return {context.partition: context.state for context in self._known()}

    def metrics(self) -> RuntimeMetrics:
        """The measurements of all partitions so far."""
        with self._changing:
            shards = list(self._metrics.values())
        return RuntimeMetrics(
            shards,
            self.states().values(),
            self._environment.clock.now_ms(),
            events=self._queues.metrics(),
            thread_idle_ratio=self._processor.thread_idle_ratio,
        )

    # -- leadership --------------------------------------------------------------------------------------------

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> Future[None]:
        """
        Become the coordinator of a partition under `leader_epoch`. An epoch below the known one is ignored.

        Requests are answered with COORDINATOR_LOAD_IN_PROGRESS until the log is replayed.

        Returns:
            A future that is done when the partition is active, or has a CoordinatorError if this load does not make it active.
        """
        loaded: Future[None] = Future()
        loaded.set_running_or_notify_cancel()
        if self._is_closed:
            loaded.set_exception(not_coordinator())
            return loaded
        self._context(partition)
        self._executors[partition].run(
            partial(self._load, partition, log, leader_epoch, loaded), lambda: loaded.set_exception(not_coordinator())
        )
        return loaded

    def expect(self, partition: int) -> None:
        """
        Become the coordinator of a partition whose log this node does not have yet. Requests are answered with
        COORDINATOR_LOAD_IN_PROGRESS until `load`.
        """
        if not self._is_closed:
            self._context(partition)

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """
        Stop being the coordinator of a partition. An epoch that is not above the known one is ignored.

        Args:
            leader_epoch: the epoch of the new leader; None if the partition was deleted or moved away.
        """
        # Whether there is a context is known in the turn of the partition: a load may be queued before.
        executor = self._executors.get(partition)
        if executor is not None:
            executor.run(partial(self._unload, partition, leader_epoch), _nothing)

    def on_image(self, delta: ImageDelta) -> None:
        """
        Tell every active shard that the cluster changed, in an operation of each. One that fails runs again.

        A shard that becomes active later gets the newest image from `Shard.on_loaded`, and no delta.
        """
        for context in self._known():
            told = Operation(_tell_image, self._image, delta)
            self._executors[context.partition].run(partial(context.begin, told), _nothing)

    def close(self) -> None:
        """
        Unload all partitions, and answer all waiting requests with NOT_COORDINATOR. A second call does nothing.

        The processor goes on: it may run the events of other runtimes.

        Raises:
            InvariantError: called by a reply or an operation on a thread of the processor.
        """
        self._is_closed = True
        self._queues.close()
        for context in self._known():
            with self._changing:
                self._contexts.pop(context.partition, None)
            context.unload(State.CLOSED)
        self._environment.slices.finish()

    # -- operations --------------------------------------------------------------------------------------------

    def read_all(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        return [context.read(query, on_error) for context in self._known()]

    def led_by(self, leads: Leads) -> PartitionRunner[S]:
        """The operations as the APIs of one of several brokers see them."""

        def find(partition: int) -> Context[S] | None:
            return self._contexts.get(partition) if leads(partition) else None

        return PartitionRunner(find, self._verify, self._clock, self._partition_count)

    # -- operations for callers that wait ----------------------------------------------------------------------

    def submit(self, partition: int, operation: Callable[[S, int], Result[Any, T]]) -> Future[T]:
        """
        Run a write operation, and return a future of its response, which is set when the records are committed.

        The future fails with an InvariantError if the operation returns a result without a response, which would park the
        request: nobody could release it. It fails with a TypeError if the operation returns something else.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def reply(response: T | _Failed) -> None:
            if isinstance(response, _Failed):
                future.set_exception(response.error)
            else:
                future.set_result(response)

        untyped: Callable[[S, int], Any] = operation

        def checked(shard: S, now_ms: int) -> Result[Any, T]:
            returned = untyped(shard, now_ms)
            if not isinstance(returned, Result):
                raise TypeError(
                    f"the operation returned {type(returned).__name__}, and not a Result(records, response)"
                )
            if returned.response is None:
                raise InvariantError(
                    "the operation returned a Result without a response, so its caller would wait for ever; "
                    "give it one: Result(records, response)"
                )
            return returned

        on_error: Callable[[Exception], Any] = _Failed
        response = self.write(partition, checked, reply, on_error)
        if response is not None:
            reply(response)
        return future

    def query(self, partition: int, query: Callable[[S, int], T]) -> T:
        """
        Run a query, and return its response.

        Raises:
            CoordinatorError: the partition is not active.
            Exception: raised by the query.
        """
        answer: Any = self.read(partition, query, _Failed)
        if isinstance(answer, _Failed):
            raise answer.error
        return answer  # type: ignore[no-any-return]

    # -- loading -----------------------------------------------------------------------------------------------

    def _known(self) -> list[Context[S]]:
        with self._changing:
            return [self._contexts[partition] for partition in sorted(self._contexts)]

    def _context(self, partition: int) -> Context[S]:
        """Return the context of a partition, and make it if there is none."""
        context = self._contexts.get(partition)
        if context is not None:
            return context
        executor = self._queues.executor(partition)
        with self._changing:
            context = self._contexts.get(partition)
            if context is None:
                self._executors[partition] = executor
                metrics = self._metrics.setdefault(partition, ShardMetrics())
                make = self._context_kind(executor.is_inline)
                context = self._contexts[partition] = make(self._environment, partition, executor, metrics)
            return context

    def _context_kind(self, is_inline: bool) -> Callable[..., Context[S]]:
        if self._checks_state:
            from kohort.runtime.checked import CheckedContext, CheckedThreadedContext

            return CheckedContext if is_inline else CheckedThreadedContext
        return Context if is_inline else ThreadedContext

    def _load(self, partition: int, log: PartitionLog, leader_epoch: int, loaded: Future[None]) -> None:
        context = self._context(partition)
        is_newer = leader_epoch > context.leader_epoch
        if context.state in (State.LOADING, State.ACTIVE):
            if is_newer:
                # This node stays the leader: the log is written under the newer epoch from now on.
                context.raise_epoch(leader_epoch)
            if context.state is State.ACTIVE:
                loaded.set_result(None)
            else:
                context.loading.append(loaded)
        elif is_newer and not self._is_closed:
            context.loading.append(loaded)
            self._start_loading(context, log, leader_epoch)
        else:
            loaded.set_exception(not_coordinator())

    def _unload(self, partition: int, leader_epoch: int | None) -> None:
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch <= context.leader_epoch):
            return
        with self._changing:
            del self._contexts[partition]
        context.unload(State.CLOSED)

    def _start_loading(self, context: Context[S], log: PartitionLog, leader_epoch: int) -> None:
        try:
            steps = context.load(log, leader_epoch)
        except Exception as error:  # noqa: BLE001 -- a failed load must not stop other partitions
            self._load_failed(context, error)
            return
        generation = context.generation
        if self.hold_load is not None and self.hold_load(
            context.partition, lambda: self._step(context, steps, generation)
        ):
            return
        if log.log_start_offset == log.end_offset:
            # Nothing to read: the first client of a new group need not wait for a turn.
            self._step(context, steps, generation)
            return
        context.call_soon(lambda: self._step(context, steps, generation))

    def _step(self, context: Context[S], steps: Iterator[Pause], generation: int) -> None:
        """Run one step of a load, unless an unload or a newer load has overtaken it."""
        if context.state is not State.LOADING or context.generation != generation:
            return
        try:
            try:
                pause = next(steps)
            except StopIteration:
                context.activate(lambda shard, now_ms: shard.on_loaded(self._image, now_ms))
                return
        except Exception as error:  # noqa: BLE001 -- a failed load must not stop other partitions
            self._load_failed(context, error)
            return
        go_on = partial(context.call_soon, lambda: self._step(context, steps, generation))
        if pause is None:
            go_on()
        else:
            pause.when_read(go_on)

    def _load_failed(self, context: Context[S], error: Exception) -> None:
        """Stop a load, and begin another one after a back-off. The reason is logged again only if it changes."""
        failures, reason = context.load_failures, repr(error)
        level = logging.DEBUG if reason == context.load_error else logging.ERROR
        fields = "shard.load_failed partition=%s attempt=%d error=%s"
        traceback = None if isinstance(error, KohortError) else error
        _log.log(level, fields, context.name, failures + 1, error, exc_info=traceback)
        context.load_failures, context.load_error = failures + 1, reason
        context.unload(State.FAILED)
        delay_ms = min(RELOAD_MS_MIN << min(failures, _DOUBLINGS_MAX), RELOAD_MS_MAX)
        context.call_later(delay_ms, partial(self._reload_now, context, context.generation))

    def _reload(self, partition: int) -> None:
        """Load a partition that is out of step with its log again, under its current epoch."""
        context = self._contexts.get(partition)
        if context is not None:
            context.call_soon(partial(self._reload_now, context, context.generation))

    def _reload_now(self, context: Context[S], generation: int) -> None:
        """Load a failed partition under its current epoch, unless it was unloaded or loaded meanwhile."""
        if context.state is State.FAILED and context.generation == generation:
            assert context.log is not None, "a load has begun before"
            self._start_loading(context, context.log, context.leader_epoch)


def _nothing() -> None:
    """Reject an event of a closed runtime that no caller waits for."""


def _drop_effects(_partition: int, _effects: Sequence[Any]) -> None:
    """The effects of a program that has none."""


class _Failed:
    """Carries an error from `on_error` into a future."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _tell_image(shard: Any, now_ms: int, image: ClusterImage, delta: ImageDelta) -> Result[Any, None]:
    result: Result[Any, None] = shard.on_image(image, delta, now_ms)
    return result
