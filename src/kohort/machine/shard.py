"""
The contract between a state machine and the runtime that replicates it.

A *shard* is the state machine of one partition. Its handlers read the newest state and the request, and return a
`Result`: the records that say what changed, and the response. They change nothing themselves: `replay` does, in live
running as in loading, so that a shard loaded from the log equals the live one. What is not in the log (timers, parked
requests) is soft state: it may be changed by handlers, and is rebuilt or gone after a load.

Source: Kafka CoordinatorShard, CoordinatorResult, CoordinatorRuntime.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from kohort.model.image import ClusterImage, ImageDelta

R = TypeVar("R")
"""The records of a shard, decoded."""
R_contra = TypeVar("R_contra", contravariant=True)
T = TypeVar("T")
"""The response of an operation."""

Reply: TypeAlias = Callable[[T], None]
"""Answers one waiting request; the one who parked it calls it exactly once."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

RETRY_BACKOFF_MS = 500
"""How long a timer with `retry` waits after its operation failed. Source: Kafka CoordinatorTimerImpl."""


class Producer(msgspec.Struct, frozen=True):
    """
    In whose transaction records are written.

    Attributes:
        api_version: of the request that brought them (TxnOffsetCommit); how strictly the transaction is verified depends on it.
        guard: the log's, from when its verification began; the runtime sets it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    api_version: int = 0
    guard: object | None = None


class EndTransaction(msgspec.Struct, frozen=True):
    """
    The end of a producer's transaction in one partition, as the transaction coordinator decided it (WriteTxnMarkers).

    Attributes:
        coordinator_epoch: the leader epoch of the transaction coordinator's partition of `__transaction_state`.
        transaction_version: 2 if the marker's producer epoch is higher than the epoch of the data (KIP-890); 0 from clients
            that do not tell it.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0


class Release(msgspec.Struct, frozen=True):
    """A request that was parked, and what it is answered now."""

    reply: Reply[Any]
    response: Any

    def deliver(self) -> None:
        self.reply(self.response)


After: TypeAlias = Callable[[Exception | None], Iterable[Release]]


class Result(msgspec.Struct, Generic[R, T], frozen=True):
    """
    What handling one request produced; the caller appends, then replies.

    Attributes:
        records: what changed, in order; replayed at once and appended together.
        response: what the caller is answered when the records are committed. None means that the request is parked: the
            shard kept its `Reply` and will release it in a later result.
        releases: parked requests to answer together with this result's own response. If the records cannot be written they
            are not answered: `after` hears of it, and releases them with the error.
        after: called once when the records are committed (with None) or could not be written (with the error), under the
            shard's exclusivity and before any reply of this result leaves. It may change soft state; what it returns is
            answered at once. For a shard that must undo soft state by itself, or answers parked callers with the outcome.
        is_atomic: all records in one batch, or none. A result that is not atomic may be cut between records.
        replayed: whether `replay` is to see the records now (else they are only written).
    """

    records: Sequence[R] = ()
    response: T | None = None
    releases: Sequence[Release] = ()
    after: After | None = None
    is_atomic: bool = True
    replayed: bool = True


class RecordSerde(Protocol[R]):
    """Records to the bytes of a log record's key and value, and back."""

    def encode(self, record: R, /) -> tuple[bytes, bytes | None]:
        """The key and the value; a value of None is a tombstone."""

    def decode(self, key: bytes, value: bytes | None, /) -> R:
        """
        The record.

        Raises:
            UnknownRecordTypeError: the key names a type that is not known here.
            CorruptError: the bytes do not hold what the key promises.
        """


class Timers(Protocol):
    """
    Deadlines of one shard. None survives an unload: the shard arms them anew when it has loaded.

    An expiry is an operation like any other: it runs under the shard's exclusivity and returns a result. A timer that was
    cancelled or replaced never runs, even when its expiry was queued already.
    """

    def schedule(
        self,
        key: str,
        delay_ms: int,
        operation: Callable[[int], "Result[Any, None]"],
        *,
        retry: bool = False,
        backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        """
        Call `operation(now_ms)` in `delay_ms`; replaces what was scheduled under `key`.

        With `retry` an operation that failed, or whose records could not be written, is called again after `backoff_ms`,
        until it succeeds or the shard is unloaded. Without, its failure is logged.
        """

    def schedule_if_absent(
        self,
        key: str,
        delay_ms: int,
        operation: Callable[[int], "Result[Any, None]"],
        *,
        retry: bool = False,
        backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        """As `schedule`, but an armed timer of that key stays as it is."""

    def cancel(self, key: str) -> None: ...

    def is_scheduled(self, key: str) -> bool: ...


class Executor(Protocol):
    """
    Work beside one shard, for what would take too long in an operation. Nothing of it survives an unload.

    A task runs on another thread and must not touch the shard. What it returned, or raised, is given to an operation.
    """

    def schedule(
        self,
        key: str,
        task: Callable[[], Any],
        operation: Callable[[Any, Exception | None, int], "Result[Any, None]"],
        /,
    ) -> bool:
        """
        Run `task()`, then `operation(found, error, now_ms)` under the shard's exclusivity, whose failure is logged.

        Returns:
            False when a task of that key is under way already; then this one is not taken.
        """

    def is_scheduled(self, key: str, /) -> bool: ...

    def cancel(self, key: str, /) -> None:
        """Forget a task: its operation will not run. A task that has begun goes on to its end."""


class BackgroundShard(Protocol):
    """A shard that has work to do beside itself."""

    def use_executor(self, executor: Executor, /) -> None:
        """Called once, before anything is replayed."""


class Shard(Protocol[R_contra]):
    """The state machine of one partition, as the runtime sees it."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: R_contra, /) -> None:
        """Apply one record. The only method that changes hard state. `offset` is the record's place in the log."""

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """The transaction of `producer_id` has ended: make its records visible, or drop them."""

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        """
        Take note of the leader epoch of the shard's partition.

        Called once before the first record is replayed, and again each time the epoch rises while the shard is loading or
        active. It never falls during the life of a shard.
        """

    def on_loaded(self, image: ClusterImage, now_ms: int, /) -> None:
        """Build the soft state, such as timers: the log has been replayed to its end."""

    def on_image(self, image: ClusterImage, delta: ImageDelta, now_ms: int, /) -> Result[Any, None]:
        """
        React to a change of the cluster; called on active shards only, as a write operation.

        If the records cannot be written, nothing calls this method again: use `Result.after`, or a timer with `retry`.
        """

    def on_unloaded(self) -> Iterable[Release]:
        """
        This node no longer runs the shard: what is parked is answered with what is returned.

        Whoever has many to answer returns an iterator that finds them one by one: it is advanced for some milliseconds at a
        time, with others' turns in between, while nothing else of the shard runs.
        """


class PlainShard(ABC, Generic[R]):
    """A shard without soft state, of a topic without transactions: what is left to write is `replay`."""

    @abstractmethod
    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: R, /) -> None:
        """Apply one record."""

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """
        Raises:
            TypeError: somebody wrote a transaction into the log of a shard that knows none.
        """
        end = "committed" if committed else "aborted"
        raise TypeError(
            f"{type(self).__name__} knows no transactions; one of producer {producer_id}, epoch {producer_epoch} was {end}"
        )

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        pass

    def on_loaded(self, image: ClusterImage, now_ms: int, /) -> None:
        pass

    def on_image(self, _image: ClusterImage, _delta: ImageDelta, _now_ms: int, /) -> Result[R, None]:
        return Result()

    def on_unloaded(self) -> Iterable[Release]:
        return ()


S_co = TypeVar("S_co", covariant=True)


class Runner(Protocol[S_co]):
    """
    Runs operations on the shards of one topic's partitions. What a service sees of the runtime.

    An operation is `operation(shard, now_ms) -> Result`; a query is `query(shard, committed_offset) -> response`.
    Errors, the operation's own included, are turned into a response by `on_error`, so that every caller is answered
    exactly once: by what is returned, or, where that is None, later through `reply`.
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
        """Run a write operation; the response when nothing has to be waited for, else None and `reply` is called later."""

    def write_transactional(
        self,
        partition: int,
        producer: Producer,
        operation: Callable[[S_co, int], Result[Any, T]],
        reply: Reply[T],
        on_error: Callable[[Exception], T],
    ) -> T | None:
        """
        Run a write operation whose records belong to a producer's transaction: pending until its end is written.

        The transaction is verified first. The records are a batch of their own, appended at once.
        """

    def end_transaction(
        self, partition: int, end: EndTransaction, reply: Reply[Exception | None], timeout_ms: int | None = None
    ) -> None:
        """
        Write the marker that ends a producer's transaction in a partition.

        `reply` is called once: with None when the marker is committed, or with the error. After a timeout the marker is in
        the log nevertheless; after any other error the transaction is as pending as before.
        """

    def read(self, partition: int, query: Callable[[S_co, int], T], on_error: Callable[[Exception], T]) -> T:
        """Ask the state as of the high watermark; never waits."""

    def write_all(
        self,
        operation: Callable[[S_co, int], Result[Any, T]],
        reply: Reply[Sequence[T]],
        on_error: Callable[[Exception], T],
    ) -> None:
        """A write operation on every shard that is known here; `reply` gets the responses by rising partition."""

    def read_all(self, query: Callable[[S_co, int], T], on_error: Callable[[Exception], T]) -> Sequence[T]:
        """A query of every shard that is known here, by rising partition."""
