"""
The contract between a state machine and the runtime that replicates it.

A *shard* is the state machine of one partition. Its handlers read the request and the newest state, and return a `Result`: the
records that describe the changes, and the response. Only `replay` changes hard state, live and during a load, so a loaded shard
equals the live one. State that is not in the log (who waits, what is under way) is soft state: handlers may change it, and a
load rebuilds or drops it.

Source: Kafka CoordinatorShard, CoordinatorResult, CoordinatorRuntime.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kohort.machine.bulk import RawRecords
from kohort.machine.results import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    EndTransaction,
    Producer,
    Reply,
    Result,
)
from kohort.machine.steps import Key
from kohort.model.image import ClusterImage, ImageDelta

__all__ = [
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "RETRY_BACKOFF_MS",
    "Deadlines",
    "EndTransaction",
    "Executor",
    "PlainShard",
    "Producer",
    "RecordSerde",
    "Reply",
    "Result",
    "Runner",
    "Shard",
]

R = TypeVar("R")
"""The decoded records of a shard."""
R_contra = TypeVar("R_contra", contravariant=True)
T = TypeVar("T")
"""The response of an operation."""

RETRY_BACKOFF_MS = 500
"""The delay before a failed operation of a deadline runs again. Source: Kafka CoordinatorTimerImpl."""


class RecordSerde(Protocol[R]):
    """Encodes records to the key and value bytes of the log, and decodes them."""

    def encode(self, record: R, /) -> tuple[bytes, bytes | None]:
        """Return key and value; the value of a tombstone is None."""

    def decode(self, key: bytes, value: bytes | None, /) -> R:
        """
        Return the record.

        Raises:
            UnknownRecordTypeError: the type in the key is unknown; a load skips the record.
            CorruptError: key or value cannot be decoded; a load sets the record aside.
        """


class Deadlines(Protocol):
    """The deadlines of one shard, which results have begun (`kohort.machine.steps.Deadline`)."""

    def extend(self, key: Key, delay_ms: int, /) -> None:
        """
        Move a deadline to `delay_ms` after the beginning of the operation; no effect if there is none. That is not taken back
        with the operation.
        """


class Executor(Protocol):
    """
    Background tasks of one shard, for work that takes too long for an operation. An unload cancels them.

    A task runs on another thread and must not touch the shard. An operation gets its result or exception.
    """

    def schedule(
        self,
        key: str,
        task: Callable[[], Any],
        operation: Callable[[Any, Exception | None, int], "Result[Any, None]"],
        /,
    ) -> bool:
        """
        Run `task()` on another thread, then `operation(result, error, now_ms)` under the shard's exclusivity. A failure of the
        operation is logged.

        A task whose work is long in compiled code returns a generator, which returns the result: other threads run at each
        `yield`.

        Returns:
            False if there is a task with the same key; then this one is not run.
        """

    def is_scheduled(self, key: str, /) -> bool: ...

    def cancel(self, key: str, /) -> None:
        """Cancel a task: its operation does not run. A task that has begun runs to its end."""


class Shard(Protocol[R_contra]):
    """The state machine of one partition."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: R_contra, /) -> None:
        """Apply one record, the one with this log offset. Replay alone changes hard state."""

    def replay_all(self, offset: int, producer_id: int, producer_epoch: int, records: Sequence[R_contra], /) -> None:
        """Replay the records of one operation in order; `offset` is the log offset of the first one."""

    def replay_bulk(self, records: RawRecords, replay_one: Callable[[int], None], /) -> Iterator[None]:
        """
        Replay records of a large log in order. Yields every millisecond or two; nothing else is replayed in between.

        Args:
            replay_one: decodes and replays one record by its index. For every record that is not of the usual form: it skips
                unknown types, and sets aside what cannot be decoded.
        """

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """End the transaction of a producer: make its records visible, or drop them."""

    def use_executor(self, executor: Executor, /) -> None:
        """Take the executor of background tasks; called once, before the first record is replayed."""

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        """
        Take note of the leader epoch of the shard's partition.

        Called once before the first record is replayed, and again each time the epoch rises while the shard is loading or
        active. It never falls during the life of a shard.
        """

    def on_loaded(self, image: ClusterImage, now_ms: int, /) -> Result[Any, Any] | None:
        """Build the soft state: the log has been replayed to its end. A result has deadlines and records."""

    def on_image(self, image: ClusterImage, delta: ImageDelta, now_ms: int, /) -> Result[Any, None]:
        """
        React to a change of the cluster; called on active shards only, as an operation.

        If the operation fails, or is undone because records cannot be written, the method is called again.
        """

    def on_unloaded(self) -> None:
        """Stop what the shard has begun outside: this node no longer runs it. The runtime answers the requests that wait."""


class PlainShard(ABC, Generic[R]):
    """
    A base for shards: every method except `replay` has a default, for a topic without transactions.

    Attributes:
        soft_state: the names of attributes that operations may change, since a restart may lose them. For runtimes that check
            it (`checks_state`).
    """

    soft_state: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: R, /) -> None:
        """Apply one record."""

    def replay_all(self, offset: int, producer_id: int, producer_epoch: int, records: Sequence[R], /) -> None:
        for record in records:
            self.replay(offset, producer_id, producer_epoch, record)
            offset += 1

    def replay_bulk(self, records: RawRecords, replay_one: Callable[[int], None], /) -> Iterator[None]:
        for index in range(len(records)):
            replay_one(index)
            yield

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """
        Raises:
            TypeError: the log holds a transaction, which this shard does not support.
        """
        end = "committed" if committed else "aborted"
        raise TypeError(
            f"{type(self).__name__} supports no transactions; one of producer {producer_id}, epoch {producer_epoch} was {end}"
        )

    def use_executor(self, executor: Executor, /) -> None:
        pass

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        pass

    def on_loaded(self, _image: ClusterImage, _now_ms: int, /) -> Result[R, Any] | None:
        return None

    def on_image(self, _image: ClusterImage, _delta: ImageDelta, _now_ms: int, /) -> Result[R, None]:
        return Result()

    def on_unloaded(self) -> None:
        pass


S_co = TypeVar("S_co", covariant=True)


class Runner(Protocol[S_co]):
    """
    The runtime as a service sees it: runs operations on the shards of a topic's partitions.

    An operation is `operation(shard, now_ms) -> Result`; a query is `query(shard, committed_offset) -> response`. `on_error`
    turns an error, also one that the operation raises, into a response. Every caller is answered exactly once: by the return
    value, or, if that is None, later through `reply`.
    """

    @property
    def partition_count(self) -> int: ...

    def write(
        self,
        partition: int,
        operation: Callable[[S_co, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        """Run a write operation, and return its response, or None if `reply` is called later."""

    def write_transactional(
        self,
        partition: int,
        producer: Producer,
        operation: Callable[[S_co, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        """
        Run a write operation in a producer's transaction: its records are pending until the transaction ends.

        The transaction is verified first, unless it has records in the partition. The records are a batch of their own, which
        is appended at once.
        """

    def end_transaction(
        self, partition: int, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None = None
    ) -> None:
        """
        Write the marker that ends a producer's transaction in a partition.

        `reply` is called once, with None when the marker is committed or with the error. After a timeout the marker is in the
        log; after any other error the transaction is still pending.
        """

    def read(self, partition: int, query: Callable[[S_co, int], T], on_error: Callable[[Exception], T]) -> T:
        """Query the state as of the high watermark; never waits on the owner's thread."""

    def read_all(self, query: Callable[[S_co, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        """Query every known partition, and return the responses in the order of partitions."""
