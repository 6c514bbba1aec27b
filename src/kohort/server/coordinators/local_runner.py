"""
The shards of a coordinator as the APIs of one broker see them.

This is the one place where a request for a group or a transactional id that another broker coordinates is refused.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kohort.machine.shard import EndTransaction, Producer, Reply, Result, Runner
from kohort.model.errors import CoordinatorError, ErrorCode

S = TypeVar("S")
T = TypeVar("T")


class Leads(Protocol):
    """Whether a broker leads a partition of the coordinator's topic."""

    def __call__(self, partition: int, /) -> bool: ...


class LocalRunner(Generic[S]):
    """
    The `kohort.machine.shard.Runner` of one broker, over the runner of all brokers of the process.

    Requests for partitions that the broker does not lead are answered NOT_COORDINATOR.
    """

    def __init__(self, runner: Runner[S], leads: Leads) -> None:
        self._runner = runner
        self._leads = leads

    @property
    def partition_count(self) -> int:
        return self._runner.partition_count

    def write(
        self,
        partition: int,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        if not self._leads(partition):
            return on_error(_not_coordinator())
        return self._runner.write(partition, operation, reply, on_error)

    def write_transactional(
        self,
        partition: int,
        producer: Producer,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        if not self._leads(partition):
            return on_error(_not_coordinator())
        return self._runner.write_transactional(partition, producer, operation, reply, on_error)

    def end_transaction(
        self, partition: int, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None = None
    ) -> None:
        if self._leads(partition):
            self._runner.end_transaction(partition, end, reply, timeout_ms)
        else:
            reply(_not_coordinator())

    def read(self, partition: int, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> T:
        if not self._leads(partition):
            return on_error(_not_coordinator())
        return self._runner.read(partition, query, on_error)

    def read_all(self, query: Callable[[S, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        led = (partition for partition in range(self.partition_count) if self._leads(partition))
        return [self._runner.read(partition, query, on_error) for partition in led]


def _not_coordinator() -> CoordinatorError:
    return CoordinatorError(ErrorCode.NOT_COORDINATOR)
