"""
The values that pass between a shard and the runtime: the result of an operation, and whose transaction it belongs to.

Plain classes and no `msgspec.Struct`s: compiled code reads their attributes from fixed places, and every request makes some.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from kohort.machine.steps import Deadline, Operation, Wait, Wake

R = TypeVar("R")
"""The decoded records of a shard."""
T = TypeVar("T")
"""The response of an operation."""

Reply: TypeAlias = Callable[[T], None]
"""Answers one waiting request; a shard that parked the request calls it exactly once."""

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


class Release:
    """The reply to a parked request, with its response."""

    __slots__ = ("reply", "response")

    def __init__(self, reply: Reply[Any], response: Any) -> None:
        self.reply: Final = reply
        self.response: Final = response

    def deliver(self) -> None:
        self.reply(self.response)

    def __repr__(self) -> str:
        return f"Release({self.reply!r}, {self.response!r})"


class ParkedReply(Generic[T]):
    """
    The reply to a request that its shard may park, delivered once: by the shard, or by the runtime after the deadline of a
    write that the answer waits for. Whoever comes second is not heard.

    Attributes:
        on_error: turns an error into a response.
    """

    __slots__ = ("_reply", "on_error")

    def __init__(self, reply: Reply[T], on_error: Callable[[Exception], T]) -> None:
        self._reply: Reply[T] | None = reply
        self.on_error: Final = on_error

    def __call__(self, response: T) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(response)


After: TypeAlias = Callable[[Exception | None], Iterable[Release]]


class Result(Generic[R, T]):
    """
    The result of an operation: records to append, and the response.

    Attributes:
        records: the changes in order; replayed at once and appended together.
        response: answers the request when the records are committed. A `Wait` lets the request wait for another operation. None
            parks the request: the shard keeps its `Reply` and releases it in a later result. If the reply is a `ParkedReply`,
            the runtime answers the request with REQUEST_TIMED_OUT when this result's records, or the state that it has read,
            are not committed in time.
        releases: parked requests that are answered together with this result's response. If the records cannot be written
            they are not answered; `after` has to release them with the error. One with a `ParkedReply` has the deadline of
            this result.
        after: called once, with None when the records are committed or with the error if they cannot be written, under the
            shard's exclusivity and before any reply of this result. It may change soft state, and returns requests to answer
            at once. For a shard that reverts soft state by itself, or answers parked requests with the outcome.
        is_atomic: whether all records must be in one batch. Records that are not atomic may be split between batches.
        replayed: whether `replay` gets the records now; if not they are only written.
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
        "after",
        "deadlines",
        "effects",
        "has_steps",
        "is_atomic",
        "on_error",
        "otherwise",
        "records",
        "releases",
        "replayed",
        "response",
        "then",
        "wakes",
    )

    def __init__(
        self,
        records: Sequence[R] = (),
        response: T | Wait | None = None,
        releases: Sequence[Release] = (),
        after: After | None = None,
        is_atomic: bool = True,
        replayed: bool = True,
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
        self.releases: Final = releases
        self.after: Final = after
        self.is_atomic: Final = is_atomic
        self.replayed: Final = replayed
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
            "releases": self.releases,
            "after": self.after,
            "is_atomic": self.is_atomic,
            "replayed": self.replayed,
            "wakes": self.wakes,
            "deadlines": self.deadlines,
            "effects": self.effects,
            "then": self.then,
            "otherwise": self.otherwise,
            "on_error": self.on_error,
        }
        return Result(**(fields | changes))

    def __repr__(self) -> str:
        fields = (self.records, self.response, self.releases, self.after, self.is_atomic, self.replayed)
        return f"Result{fields!r}"
