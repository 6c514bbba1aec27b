"""
Runs the shards of one internal topic: one per partition that this node leads.

It turns a plain state machine into a replicated one. A write operation runs on the newest state, its records are replayed
and put into the open batch of the partition; at the end of the turn the batch is appended; when the high watermark has
passed it, the reply leaves. A query sees what is committed and never waits. See `kohort.machine.shard` for what a shard
promises, and `DESIGN.md` for the way of a request.

Source: Kafka CoordinatorRuntime.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from kohort.machine.shard import RecordSerde, Reply, Result, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, KohortError
from kohort.model.image import ClusterImage
from kohort.runtime.context import Context, Environment, State
from kohort.runtime.ports import Clock, Defer, PartitionLog
from kohort.runtime.timers import ShardTimers
from kohort.runtime.wheel import Wheel

_log = logging.getLogger("kohort.runtime")

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

WRITE_TIMEOUT_MS = 5_000
"""Source: offsets.commit.timeout.ms, which bounds every write of a coordinator and not only commits."""


class Runtime(Generic[S]):
    """
    The shards of one topic's partitions; a `kohort.machine.shard.Runner` for its service.

    Not safe for threads: everything is called on the thread that owns the node, and every reply is made there.

    Args:
        partition_count: of the topic; what a key's partition is counted by.
        make_shard: a fresh shard for a partition, with the registry of its snapshots and its timers.
        image: the cluster as it is now; given to a shard when it has loaded, and whenever it changed.
        defer: runs something at the end of the present turn.
        soon: runs something after input and output had their turn: how a load shares the thread.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        make_shard: Callable[[int, SnapshotRegistry, ShardTimers], S],
        serde: RecordSerde[Any],
        image: ClusterImage,
        clock: Clock,
        wheel: Wheel,
        defer: Defer,
        soon: Defer,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
    ) -> None:
        self._partition_count = partition_count
        self._image = image
        self._soon = soon
        self._contexts: dict[int, Context[S]] = {}
        self._environment = Environment(
            make_shard=make_shard,
            serde=serde,
            clock=clock,
            wheel=wheel,
            defer=defer,
            write_timeout_ms=write_timeout_ms,
            on_failed=self._reload,
        )
        self._is_closed = False

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def states(self) -> dict[int, State]:
        """The state of every partition that is known here."""
        return {partition: context.state for partition, context in sorted(self._contexts.items())}

    # -- leadership --------------------------------------------------------------------------------------------

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> None:
        """
        Become the coordinator of a partition under `leader_epoch`; older epochs than the one known are ignored.

        Requests are answered COORDINATOR_LOAD_IN_PROGRESS from now on until the log has been replayed.
        """
        if self._is_closed:
            return
        context = self._contexts.get(partition)
        if context is None:
            context = self._contexts[partition] = Context(self._environment, partition)
        if context.leader_epoch >= leader_epoch:
            return
        if context.state in (State.LOADING, State.ACTIVE):
            # Led already, and going on to: the log will be written under the newer epoch.
            context.leader_epoch = leader_epoch
            return
        self._start_loading(context, log, leader_epoch)

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """
        Stop being the coordinator of a partition, since `leader_epoch` (None: because the partition is gone).

        An epoch that is not newer than the one known is ignored.
        """
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch <= context.leader_epoch):
            return
        del self._contexts[partition]
        context.unload(State.CLOSED)

    def on_image(self, deleted_topics: Sequence[str]) -> None:
        """The cluster changed: tell every shard that is active; one that becomes active later gets the newest image."""
        for context in list(self._contexts.values()):
            if context.state is State.ACTIVE:

                def tell(shard: S, _: int) -> Result[Any, None]:
                    shard.on_image(self._image, deleted_topics)
                    return Result()

                context.write(tell, None, lambda _: None)

    def close(self) -> None:
        """Unload everything; whoever waits is answered NOT_COORDINATOR. A second call does nothing."""
        self._is_closed = True
        for partition in list(self._contexts):
            self.unload(partition, None)

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
            return on_error(CoordinatorError(ErrorCode.NOT_COORDINATOR))
        return context.write(operation, reply, on_error)

    def read(self, partition: int, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        context = self._contexts.get(partition)
        if context is None:
            return on_error(CoordinatorError(ErrorCode.NOT_COORDINATOR))
        return context.read(query, on_error)

    def write_all(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[Sequence[T]],
        on_error: Callable[[Exception], T],
    ) -> None:
        gathered = _Gathered(sorted(self._contexts), reply)
        for partition in sorted(self._contexts):
            response = self._contexts[partition].write(operation, gathered.replier(partition), on_error)
            if response is not None:
                gathered.put(partition, response)
        gathered.finish()

    def read_all(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        return [self._contexts[partition].read(query, on_error) for partition in sorted(self._contexts)]

    # -- loading -----------------------------------------------------------------------------------------------

    def _start_loading(self, context: Context[S], log: PartitionLog, leader_epoch: int) -> None:
        if log.log_start_offset == log.end_offset:
            # Nothing to read: do not make the first client of a new group wait a turn for it.
            self._step(context, context.load(log, leader_epoch), context.generation)
            return
        steps = context.load(log, leader_epoch)
        generation = context.generation
        self._soon(lambda: self._step(context, steps, generation))

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
        self._soon(lambda: self._step(context, steps, generation))

    def _reload(self, partition: int) -> None:
        """A partition went out of step with its log: load it anew under the epoch it has."""
        context = self._contexts.get(partition)
        if context is None or context.log is None or self._is_closed:
            return
        log, leader_epoch = context.log, context.leader_epoch
        self._soon(lambda: self._reload_now(context, log, leader_epoch))

    def _reload_now(self, context: Context[S], log: PartitionLog, leader_epoch: int) -> None:
        if context.state is State.FAILED and self._contexts.get(context.partition) is context:
            self._start_loading(context, log, leader_epoch)


class _Gathered(Generic[T]):
    """Responses of several partitions, handed over when the last one is there."""

    def __init__(self, partitions: Iterable[int], reply: Reply[Sequence[T]]) -> None:
        self._waiting = set(partitions)
        self._responses: dict[int, T] = {}
        self._reply: Reply[Sequence[T]] | None = reply
        self._is_complete = False

    def replier(self, partition: int) -> Reply[T]:
        def reply(response: T) -> None:
            self.put(partition, response)
            self.finish_if_complete()

        return reply

    def put(self, partition: int, response: T) -> None:
        self._waiting.discard(partition)
        self._responses[partition] = response

    def finish(self) -> None:
        """Every operation has been started."""
        self._is_complete = True
        self.finish_if_complete()

    def finish_if_complete(self) -> None:
        if self._is_complete and not self._waiting and self._reply is not None:
            reply, self._reply = self._reply, None
            reply([self._responses[partition] for partition in sorted(self._responses)])
