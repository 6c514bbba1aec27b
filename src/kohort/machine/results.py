"""
The values that pass between a shard and the runtime: the result of an operation, and whose transaction it belongs to.

Plain classes and no `msgspec.Struct`s: compiled code reads their attributes from fixed places, and every request makes some.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from kohort.machine.steps import Deadline, Operation, Wait, Wake

R = TypeVar("R")
"""The decoded records of a shard."""
T = TypeVar("T")
"""The response of an operation."""

Reply: TypeAlias = Callable[[T], None]
"""Answers one waiting request."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_NONE: Final[Any] = ()


class Producer:
    """
    The producer in whose transaction records are written.

    Attributes:
        adds_partition: whether the transaction coordinator adds the partition to the transaction, if it is not part of it
            (transaction version 2: Produce from version 12 on, TxnOffsetCommit from version 5 on); else it only verifies it.
        guard: issued by the log when the verification began; the runtime sets it.
    """

    __slots__ = ("adds_partition", "guard", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        adds_partition: bool = False,
        guard: object | None = None,
    ) -> None:
        self.transactional_id: Final = transactional_id
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch
        self.adds_partition: Final = adds_partition
        self.guard: Final = guard

    def with_guard(self, guard: object) -> "Producer":
        return Producer(self.transactional_id, self.producer_id, self.producer_epoch, self.adds_partition, guard)

    def _values(self) -> tuple[object, ...]:
        return self.transactional_id, self.producer_id, self.producer_epoch, self.adds_partition, self.guard

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producer) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Producer{self._values()!r}"


class EndTransaction:
    """
    The end of a producer's transaction in one partition, decided by the transaction coordinator (WriteTxnMarkers).

    Attributes:
        coordinator_epoch: the leader epoch of the transaction coordinator's partition of `__transaction_state`.
        transaction_version: 2 if the marker's producer epoch is higher than the epoch of the data (KIP-890); 0 from clients
            that do not tell it.
    """

    __slots__ = ("committed", "coordinator_epoch", "producer_epoch", "producer_id", "transaction_version")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch
        self.coordinator_epoch: Final = coordinator_epoch
        self.committed: Final = committed
        self.transaction_version: Final = transaction_version

    def _values(self) -> tuple[object, ...]:
        return self.producer_id, self.producer_epoch, self.coordinator_epoch, self.committed, self.transaction_version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EndTransaction) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"EndTransaction{self._values()!r}"


class Result(Generic[R, T]):
    """
    The result of an operation: records to append, and the response.

    Attributes:
        records: the changes in order; replayed at once and appended together.
        response: answers the request when the records are committed. A `Wait` lets the request wait for another operation. None
            is for operations that nobody waits for.
        is_atomic: whether all records must be in one batch. Records that are not atomic may be split between batches.
        wakes: requests that wait, and are answered together with this result's response. If the records cannot be written they
            wait on.
        deadlines: deadlines that begin now, and end with the operation if its records cannot be written.
        effects: values for the host of the runtime, which gets them when the records are committed.
        then: an operation that runs when the records are committed.
        otherwise: an operation that runs if the records cannot be written, after all operations of the batch were taken back;
            its last argument is the error.
        on_error: answers the request if the records cannot be written, or while it waits, in place of the `on_error` that came
            with the request. For errors that say more than the handler of the API knows.
        has_steps: whether the result may have wakes, deadlines, effects or operations, or lets its request wait.
    """

    __slots__ = (
        "deadlines",
        "effects",
        "has_steps",
        "is_atomic",
        "on_error",
        "otherwise",
        "records",
        "response",
        "then",
        "wakes",
    )

    def __init__(
        self,
        records: Sequence[R] = (),
        response: T | Wait | None = None,
        is_atomic: bool = True,
        *,
        wakes: Sequence[Wake] = _NONE,
        deadlines: Sequence[Deadline] = _NONE,
        effects: Sequence[Any] = _NONE,
        then: Operation | None = None,
        otherwise: Operation | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> None:
        self.records: Final = records
        # Typed without the wait: whoever has a response to look at has no request that waits.
        self.response: Final = cast("T | None", response)
        self.is_atomic: Final = is_atomic
        self.wakes: Final = wakes
        self.deadlines: Final = deadlines
        self.effects: Final = effects
        self.then: Final = then
        self.otherwise: Final = otherwise
        self.on_error: Final = on_error
        self.has_steps: Final = (
            wakes is not _NONE
            or deadlines is not _NONE
            or effects is not _NONE
            or then is not None
            or otherwise is not None
            or isinstance(response, Wait)
        )

    def replace(self, **changes: Any) -> "Result[R, Any]":
        """A copy with other values of some attributes."""
        fields = {
            "records": self.records,
            "response": self.response,
            "is_atomic": self.is_atomic,
            "wakes": self.wakes,
            "deadlines": self.deadlines,
            "effects": self.effects,
            "then": self.then,
            "otherwise": self.otherwise,
            "on_error": self.on_error,
        }
        return Result(**(fields | changes))

    def __repr__(self) -> str:
        fields = (self.records, self.response, self.is_atomic, self.wakes, self.deadlines, self.effects)
        return f"Result{fields!r}"
