"""
Runs the shards of one internal topic: one per partition that this node leads.

It turns a plain state machine into a replicated one. A write operation runs on the newest state, its records are replayed
and put into the open batch of the partition; at the end of the turn the batch is appended; when the high watermark has
passed it, the reply leaves. A query sees what is committed and never waits. See `kohort.machine.shard` for what a shard
promises, and `DESIGN.md` for the way of a request.

Source: Kafka CoordinatorRuntime.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec

from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import EndTransaction, Producer, RecordSerde, Reply, Result, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, KohortError
from kohort.model.image import ClusterImage, ImageDelta, TopicImage
from kohort.runtime.append.appender import ADAPTIVE, AppendConfig
from kohort.runtime.context import Context, Environment
from kohort.runtime.loading.loader import LOAD_BUFFER_BYTES
from kohort.runtime.metrics import RuntimeMetrics, ShardMetrics
from kohort.runtime.pending_unloads import PendingUnloads
from kohort.runtime.ports import Clock, PartitionLog, Verify
from kohort.runtime.processors import PartitionExecutor, Processor
from kohort.runtime.states import State
from kohort.runtime.threaded.context import ThreadedContext
from kohort.runtime.timers.shard_timers import ShardTimers
from kohort.wire.compression import Codec

_log = logging.getLogger("kohort.runtime")

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

WRITE_TIMEOUT_MS: Final = 5_000
"""Source: offsets.commit.timeout.ms, which bounds every write of a coordinator and not only commits."""


def skip_verification(_partition: int, _producer: Producer, verified: Callable[[Exception | None], None]) -> None:
    """Verifies nothing: for those who know their producers."""
    verified(None)


class NoTopics:
    """`kohort.model.image.ClusterImage` for shards that need no cluster."""

    def topic(self, _name: str) -> TopicImage | None:
        return None

    def topic_by_id(self, _topic_id: UUID) -> TopicImage | None:
        return None

    def topics(self) -> Iterable[TopicImage]:
        return ()


class Runtime(Generic[S]):
    """
    The shards of one topic's partitions; a `kohort.machine.shard.Runner` for its service.

    With an `InlineProcessor` everything is called on the thread that owns the node, and every reply is made there. With a
    `ThreadedProcessor` any thread may call, replies are made on the processor's threads and must not block, and no call is
    answered on the spot.

    Args:
        partition_count: of the topic; what a key's partition is counted by.
        make_shard: a fresh shard for a partition, with the registry of its snapshots and its timers.
        image: the cluster as it is now; given to a shard when it has loaded, and whenever it changed. Default: no topics.
        processor: runs the events of the partitions.
        verify: asks whether a producer's transaction goes on in a partition, before its records are taken.
        linger_ms: how long a batch stays open: 0 for one batch per operation, ADAPTIVE (-1) until the operations that had
            arrived when it was opened are in it. Source: group.coordinator.append.linger.ms.
        codec: the compression of the batches. Source: offsets.topic.compression.codec.
        load_buffer_bytes: the size of the window in which a load reads the log. Source: offsets.load.buffer.size.
    """

    def __init__(
        self,
        *,
        make_shard: Callable[[int, SnapshotRegistry, ShardTimers], S],
        serde: RecordSerde[Any],
        clock: Clock,
        processor: Processor,
        partition_count: int = 1,
        image: ClusterImage | None = None,
        verify: Verify = skip_verification,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        linger_ms: int = ADAPTIVE,
        codec: Codec = Codec.NONE,
        load_buffer_bytes: int = LOAD_BUFFER_BYTES,
    ) -> None:
        if linger_ms < ADAPTIVE:
            raise ValueError(f"linger_ms is {linger_ms}; it is -1 (adaptive), 0 or more")
        self._partition_count = partition_count
        self._image: ClusterImage = NoTopics() if image is None else image
        self._processor = processor
        self._queues = processor.event_queues()
        self._verify = verify
        self._contexts: dict[int, Context[S]] = {}
        self._metrics: dict[int, ShardMetrics] = {}
        self._executors: dict[int, PartitionExecutor] = {}
        self._changing = threading.Lock()
        """Held while the dicts above change or are copied, never while anything is called."""
        self._environment = Environment(
            make_shard=make_shard,
            serde=serde,
            clock=clock,
            append_config=AppendConfig(linger_ms, codec),
            write_timeout_ms=write_timeout_ms,
            on_failed=self._reload,
            pending_unloads=PendingUnloads(clock),
            load_buffer_bytes=load_buffer_bytes,
        )
        self._is_closed = False

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def states(self) -> dict[int, State]:
        """The state of every partition that is known here."""
        return {context.partition: context.state for context in self._known()}

    def metrics(self) -> RuntimeMetrics:
        """What has been measured so far."""
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
        Become the coordinator of a partition under `leader_epoch`; older epochs than the one known are ignored.

        Requests are answered COORDINATOR_LOAD_IN_PROGRESS from now on until the log has been replayed.

        Returns:
            Done when the partition is active; CoordinatorError when it will not be by this load.
        """
        loaded: Future[None] = Future()
        loaded.set_running_or_notify_cancel()
        if self._is_closed:
            loaded.set_exception(_not_coordinator())
            return loaded
        self._context(partition)
        self._executors[partition].run(
            partial(self._load, partition, log, leader_epoch, loaded), lambda: loaded.set_exception(_not_coordinator())
        )
        return loaded

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """
        Stop being the coordinator of a partition, since `leader_epoch` (None: because the partition is gone).

        An epoch that is not newer than the one known is ignored.
        """
        if partition in self._contexts:
            self._executors[partition].run(partial(self._unload, partition, leader_epoch), _nothing)

    def on_image(self, delta: ImageDelta) -> None:
        """
        Tell every active shard that the cluster changed, in a write operation of each.

        A shard that becomes active later gets the newest image from `Shard.on_loaded`, and no delta.
        """

        def tell(shard: S, now_ms: int) -> Result[Any, None]:
            return shard.on_image(self._image, delta, now_ms)

        for context in self._known():
            context.write(tell, None, lambda _: None)

    def close(self) -> None:
        """
        Unload everything; whoever waits is answered NOT_COORDINATOR. A second call does nothing.

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
        self._environment.pending_unloads.finish()

    # -- operations --------------------------------------------------------------------------------------------

    def write(
        self,
        partition: int,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        context = self._contexts.get(partition)
        if context is None:
            return on_error(_not_coordinator())
        return context.write(operation, reply, on_error)

    def write_transactional(
        self,
        partition: int,
        producer: Producer,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        context = self._contexts.get(partition)
        if context is None or context.log is None:
            return on_error(_not_coordinator())
        # If the transaction ends while it is verified, the guard makes the append fail.
        guard = context.log.start_verification(producer.producer_id)
        # With threads the verification may answer on any thread at any time, so every answer goes through `reply`. Inline it
        # answers on this thread: within the call, and then the response is returned, or later.
        may_return = context.is_inline
        returned: T | None = None

        def verified(error: Exception | None) -> None:
            nonlocal returned
            context = self._contexts.get(partition)
            if error is not None:
                response: T | None = on_error(error)
            elif context is None:
                response = on_error(_not_coordinator())
            else:
                response = context.write(operation, reply, on_error, msgspec.structs.replace(producer, guard=guard))
            if may_return:
                returned = response
            elif response is not None:
                reply(response)

        self._verify(partition, producer, verified)
        may_return = False
        return returned

    def end_transaction(
        self, partition: int, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None = None
    ) -> None:
        context = self._contexts.get(partition)
        if context is None:
            reply(_not_coordinator())
        else:
            context.end_transaction(end, reply, timeout_ms)

    def read(self, partition: int, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        context = self._contexts.get(partition)
        if context is None:
            return on_error(_not_coordinator())
        return context.read(query, on_error)

    def write_all(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[Sequence[T]],
        on_error: Callable[[Exception], T],
    ) -> None:
        contexts = sorted(self._known(), key=lambda context: context.partition)
        aggregator: ResponseAggregator[T, Sequence[T]] = ResponseAggregator(len(contexts), list, reply)
        for index, context in enumerate(contexts):
            aggregator.put(index, context.write(operation, aggregator.reply_to(index), on_error))
        responses = aggregator.finish()
        if responses is not None:
            reply(responses)

    def read_all(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        return [context.read(query, on_error) for context in self._known()]

    # -- operations of programs that wait ----------------------------------------------------------------------

    def submit(self, partition: int, operation: Callable[[S, int], Result[Any, T]]) -> Future[T]:
        """
        Run a write operation; the future holds its response once its records are committed, or the error.

        An operation that parks its caller (a response of None) leaves the future open for ever.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def reply(response: T | _Failed) -> None:
            if isinstance(response, _Failed):
                future.set_exception(response.error)
            else:
                future.set_result(response)

        on_error: Callable[[Exception], Any] = _Failed
        response = self.write(partition, operation, reply, on_error)
        if response is not None:
            reply(response)
        return future

    def query(self, partition: int, query: Callable[[S, int], T]) -> T:
        """
        The answer to a query.

        Raises:
            Exception: what the query raised, or CoordinatorError when the partition is not active.
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
        """The partition's context, made when there is none."""
        context = self._contexts.get(partition)
        if context is not None:
            return context
        executor = self._queues.executor(partition)
        with self._changing:
            context = self._contexts.get(partition)
            if context is None:
                self._executors[partition] = executor
                metrics = self._metrics.setdefault(partition, ShardMetrics())
                kind = Context if executor.is_inline else ThreadedContext
                context = self._contexts[partition] = kind(self._environment, partition, executor, metrics)
            return context

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
            loaded.set_exception(_not_coordinator())

    def _unload(self, partition: int, leader_epoch: int | None) -> None:
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch <= context.leader_epoch):
            return
        with self._changing:
            del self._contexts[partition]
        context.unload(State.CLOSED)

    def _start_loading(self, context: Context[S], log: PartitionLog, leader_epoch: int) -> None:
        if log.log_start_offset == log.end_offset:
            # Nothing to read: do not make the first client of a new group wait a turn for it.
            self._step(context, context.load(log, leader_epoch), context.generation)
            return
        steps = context.load(log, leader_epoch)
        generation = context.generation
        context.call_soon(lambda: self._step(context, steps, generation))

    def _step(self, context: Context[S], steps: Iterator[None], generation: int) -> None:
        """One step of a load; ignored when the load has been overtaken by an unload or by a newer one."""
        if context.state is not State.LOADING or context.generation != generation:
            return
        try:
            try:
                next(steps)
            except StopIteration:
                context.activate(lambda shard, now_ms: shard.on_loaded(self._image, now_ms))
                return
        except Exception as error:  # noqa: BLE001 -- one partition's load fails; the others go on
            if isinstance(error, KohortError):
                _log.error("shard.load_failed partition=%s error=%s", context.topic_partition, error)
            else:
                _log.exception("shard.load_failed partition=%s", context.topic_partition)
            context.unload(State.FAILED)
            return
        context.call_soon(lambda: self._step(context, steps, generation))

    def _reload(self, partition: int) -> None:
        """A partition went out of step with its log: load it anew under the epoch it has."""
        context = self._contexts.get(partition)
        if context is None or context.log is None or self._is_closed:
            return
        log, leader_epoch = context.log, context.leader_epoch
        context.call_soon(lambda: self._reload_now(context, log, leader_epoch))

    def _reload_now(self, context: Context[S], log: PartitionLog, leader_epoch: int) -> None:
        if context.state is State.FAILED and self._contexts.get(context.partition) is context:
            self._start_loading(context, log, leader_epoch)


def _not_coordinator() -> CoordinatorError:
    return CoordinatorError(ErrorCode.NOT_COORDINATOR)


def _nothing() -> None:
    """A closed runtime neither loads nor unloads."""


class _Failed:
    """What `on_error` makes of an error on its way into a future."""

    def __init__(self, error: Exception) -> None:
        self.error = error
