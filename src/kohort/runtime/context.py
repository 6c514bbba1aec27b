"""
The context of a partition: the life of its shard, which is loaded and unloaded. `kohort.runtime.states` shows its states.

Source: Kafka CoordinatorRuntime.CoordinatorContext.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from itertools import chain
from typing import Any

from kohort.machine.shard import Result
from kohort.machine.steps import Key, Operation
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.runtime.append.appender import Appender
from kohort.runtime.append.position import Position
from kohort.runtime.background import ShardExecutor
from kohort.runtime.environment import Environment
from kohort.runtime.loading.ahead import Pause
from kohort.runtime.loading.loader import load_shard
from kohort.runtime.loading.windows import STEP_MS
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.operations import Operations, S, returned
from kohort.runtime.ports import PartitionLog
from kohort.runtime.processors import PartitionExecutor
from kohort.runtime.states import NEXT, State
from kohort.runtime.waits import Deadlines, DueTable, Waiting, free

_log = logging.getLogger("kohort.runtime")


class Context(Operations[S]):
    """
    The runtime's record of one partition.

    Not thread-safe: every method is called under the exclusivity of the partition's executor.
    """

    def __init__(
        self, environment: Environment[S], partition: int, executor: PartitionExecutor, metrics: ShardMetrics
    ) -> None:
        super().__init__(environment, partition, executor, metrics)
        self._epoch_told = -1
        """The newest leader epoch that `shard` knows."""
        self.generation = 0
        """The number of loads, which tells the end of an old load from the end of a newer one."""
        self.load_failures = 0
        """How often a load has failed since the partition was active."""
        self.load_error = ""
        self.loading: list[Future[None]] = []
        """Futures that wait for the end of the load."""
        self._shard_executor: ShardExecutor | None = None

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

    # -- load and unload ---------------------------------------------------------------------------------------

    def load(self, log: PartitionLog, leader_epoch: int) -> Iterator[Pause]:
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
        self._shard_executor = ShardExecutor(self._executor, self._env.clock, self.write, self._metrics)
        self.shard.use_executor(self._shard_executor)
        return self._steps(log, self.shard)

    def _steps(self, log: PartitionLog, shard: S) -> Iterator[Pause]:
        self._tell_epoch()
        yield from load_shard(
            log,
            shard,
            self.position,
            serde=self._env.serde,
            clock=self._env.clock,
            buffer_bytes=self._env.load_buffer_bytes,
            is_compacted=self._env.is_compacted,
            leader_epoch=self.leader_epoch,
            metrics=self._metrics,
            executor=self._executor,
        )

    def run_deadline(self, key: Key) -> bool:
        """Let a deadline come now; False if there is none. For tests of clients."""
        armed = self._deadlines.get(key) if self.state is State.ACTIVE else None
        if armed is None:
            return False
        self._deadlines.move(armed, self._env.clock.now_ms())
        return True

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
            linger_ms=env.linger_ms,
            codec=env.codec,
            metrics=self._metrics,
        )
        self.move_to(State.ACTIVE)
        log.add_listener(self.on_high_watermark)
        begun = on_loaded(shard, env.clock.now_ms())
        if begun is not None:
            self.begin(Operation(returned, begun))
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
            assert self._held_event is not None
            self.fail([self._held_event], error)
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
            self._env.slices.begin(chain(self._dismiss(waiting, error), cancelled), self._executor, STEP_MS)
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

    def out_of_sync(self, end: int, expected: int, /) -> None:
        assert self.log is not None
        _log.error("shard.out_of_sync partition=%s end=%d expected=%d", self.log.topic_partition, end, expected)
        self.unload(State.FAILED)
        self._env.on_failed(self.partition)
