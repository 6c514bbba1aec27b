"""Operations on the partitions of a runtime: on all of them, or on those that one of several brokers leads."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from kohort.machine.shard import EndTransaction, Producer, Reply, Result, Shard
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.runtime.context import Context
from kohort.runtime.ports import Clock, PartitionLog, Verify

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


Leads: TypeAlias = Callable[[int], bool]
"""Whether a broker leads a partition."""


class PartitionRunner(Generic[S]):
    """
    A `kohort.machine.shard.Runner`. Requests for other partitions than its own are answered NOT_COORDINATOR.

    Args:
        find: returns a partition; None for one that is not its own.
        partition_count: of the topic.
    """

    def __init__(
        self, find: Callable[[int], Context[S] | None], verify: Verify, clock: Clock, partition_count: int
    ) -> None:
        self.find = find
        self._verify = verify
        self._clock = clock
        self._partition_count = partition_count

    @property
    def partition_count(self) -> int:
        return self._partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        """Take the partition count of the topic, which another node has made with other configurations."""
        self._partition_count = count

    def write(
        self,
        partition: int,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        context = self.find(partition)
        if context is None:
            return on_error(not_coordinator())
        return context.write(operation, reply, on_error)

    def write_transactional(
        self,
        partition: int,
        producer: Producer,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        context = self.find(partition)
        if context is None or context.log is None:
            return on_error(not_coordinator())
        # If the transaction ends while it is verified, the guard makes the append fail.
        log = context.log
        try:
            guard = log.start_verification(producer, self._clock.now_ms())
        except CoordinatorError as error:
            return on_error(error)
        if guard is None:
            # The transaction is open here. If it ends before the append, the append fails.
            return context.write(operation, reply, on_error, producer)
        waiting = _VerifiedWrite(self, partition, producer, operation, reply, on_error, log, guard, context.is_inline)
        self._verify(partition, producer, waiting.verified)
        return waiting.returned()

    def end_transaction(
        self, partition: int, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None = None
    ) -> None:
        context = self.find(partition)
        if context is None:
            reply(not_coordinator())
        else:
            context.end_transaction(end, reply, timeout_ms)

    def read(self, partition: int, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        context = self.find(partition)
        if context is None:
            return on_error(not_coordinator())
        return context.read(query, on_error)

    def read_all(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        found = map(self.find, range(self._partition_count))
        return [context.read(query, on_error) for context in found if context is not None]


def not_coordinator() -> CoordinatorError:
    return CoordinatorError(ErrorCode.NOT_COORDINATOR)


class _VerifiedWrite(Generic[S, T]):
    """
    An operation that waits for the verification of its producer's transaction.

    With threads the verification may answer on any thread at any time, so every answer goes through `reply`. Inline it answers
    on this thread: within the call, and then the response is returned, or later. A class, because a compiled closure would be
    left to the garbage collector.
    """

    def __init__(
        self,
        runner: PartitionRunner[S],
        partition: int,
        producer: Producer,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
        log: PartitionLog,
        guard: object,
        may_return: bool,
    ) -> None:
        self._runner = runner
        self._partition = partition
        self._producer = producer
        self._operation = operation
        self._reply = reply
        self._on_error = on_error
        self._log = log
        self._guard = guard
        self._may_return = may_return
        self._response: T | None = None

    def verified(self, error: Exception | None) -> None:
        response = self._write() if error is None else self._on_error(error)
        if self._may_return:
            self._response = response
        elif response is not None:
            self._reply(response)

    def _write(self) -> T | None:
        producer, operation, reply, on_error = self._producer, self._operation, self._reply, self._on_error
        context = self._runner.find(self._partition)
        if context is None:
            return on_error(not_coordinator())
        if producer.adds_partition and not self._log.is_verifying(producer.producer_id, self._guard):
            # The marker of the previous transaction came while the coordinator waited for its end.
            return self._runner.write_transactional(self._partition, producer, operation, reply, on_error)
        return context.write(operation, reply, on_error, producer.with_guard(self._guard))

    def returned(self) -> T | None:
        """The response; None if it is given to `reply`."""
        self._may_return = False
        return self._response
