"""
The share coordinator of one node, as share groups and leaders of partitions ask it: one attempt, by a call.

Source: Kafka ShareCoordinatorService.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kohort.machine.front import Front
from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.machine.shard import Runner
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.share import operations
from kohort.share.errors import failure, not_available
from kohort.share.metrics import ShareMetrics
from kohort.share.operations import Answer
from kohort.share.states import ShareStates

_INITIALIZE: Final = "initialize share group state"
_READ: Final = "read share group state"
_WRITE: Final = "write share group state"
_DELETE: Final = "delete share group state"
_SUMMARY: Final = "read share group state summary"


class ShareCoordinator(Front[ShareStates]):
    """
    A `kohort.machine.ports.Persister` that tries once. Every share partition is an operation of its own.

    Args:
        now_ms: returns the present time.
    """

    def __init__(self, runner: Runner[ShareStates], now_ms: Callable[[], int], metrics: ShareMetrics) -> None:
        super().__init__(runner, ErrorCode.INVALID_REQUEST)
        self._now_ms = now_ms
        self._metrics = metrics

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        operation = Operation(operations.initialize, key, state_epoch, start_offset)
        self._run(_INITIALIZE, key, operation, partial(_tell_error, done))

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        done: Callable[[SharePartitionState | CoordinatorError], None],
        /,
    ) -> None:
        self._run(_READ, key, Operation(operations.read, key, leader_epoch), done)

    def write(
        self, key: SharePartitionKey, state: SharePartitionState, done: Callable[[CoordinatorError | None], None], /
    ) -> None:
        self._run(
            _WRITE, key, Operation(operations.write, key, state), partial(self._tell_written, done, self._now_ms())
        )

    def delete(self, key: SharePartitionKey, done: Callable[[CoordinatorError | None], None], /) -> None:
        self._run(_DELETE, key, Operation(operations.delete, key), partial(_tell_error, done))

    def summary(
        self, key: SharePartitionKey, done: Callable[[SharePartitionState | CoordinatorError], None], /
    ) -> None:
        if not self.is_active:
            done(not_available())
            return
        query = partial(_summary, key)
        on_error: Callable[[Exception], Answer] = partial(failure, _SUMMARY)
        done(self.runner.read(self._partition_of(key), query, on_error))

    def counts(self) -> Sequence[int]:
        """The number of share partitions of each shard here."""
        return self.runner.read_all(lambda shard, _: len(shard.states), lambda _: 0)

    def _run(self, what: str, key: SharePartitionKey, operation: Operation, done: Callable[[Answer], None]) -> None:
        if not self.is_active:
            done(not_available())
            return
        on_error: Callable[[Exception], Answer] = partial(failure, what)
        answer = self.runner.write(self._partition_of(key), operation, done, on_error)
        if answer is not None:
            done(answer)

    def _tell_written(self, done: Callable[[CoordinatorError | None], None], since_ms: int, answer: Answer) -> None:
        self._metrics.written(self._now_ms() - since_ms)
        _tell_error(done, answer)

    def _partition_of(self, key: SharePartitionKey) -> int:
        return self.partition_for(coordinator_key(key))


def coordinator_key(key: SharePartitionKey) -> str:
    """The name of a share partition, by which its coordinator is found. Source: Kafka SharePartitionKey.asCoordinatorKey."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"


def _tell_error(done: Callable[[CoordinatorError | None], None], answer: Answer) -> None:
    done(answer if isinstance(answer, CoordinatorError) else None)


def _summary(key: SharePartitionKey, shard: ShareStates, committed: int) -> Answer:
    return operations.summary(shard, committed, key)
