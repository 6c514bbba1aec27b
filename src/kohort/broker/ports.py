"""
What the broker's handlers are given and give back, and what the broker needs of the coordinators. `server` provides it.

A handler is `handler(request, context, reply) -> response | NoResponse | None`: the response if it is known at once, None if
`reply(response)` is called later, exactly once, and a `NoResponse` if the client is not answered. Handlers do not raise on bad
input: they answer the protocol's error.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kohort.broker.catalog.view import Topic
from kohort.machine.ports import Persister, Verification
from kohort.machine.shard import EndTransaction, Reply
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import HoldAt

Cancel: TypeAlias = Callable[[], None]
"""Cancels a scheduled call; without effect once the call was made."""

CallLater: TypeAlias = Callable[[int, Callable[[], None]], Cancel]
"""
`call_later(delay_ms, function)`: call the function once in `delay_ms`, on the event-loop thread. With 0 it is a step of a long
work: it runs in a later turn, and requests go first.
"""


FLUSH_MS_MIN: Final = 5_000
"""
The least time that a request waits until what it has changed is durable. Kafka's timeouts are those of the followers, or of the
time before a change begins: nothing limits the leader's own append.
"""

Elsewhere: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""`elsewhere(work, done)`: call `work` on another thread, then `done` on the event-loop thread."""


def at_once(work: Callable[[], None], done: Callable[[], None]) -> None:
    """`Elsewhere` without another thread."""
    work()
    done()


def wait_at(hold: HoldAt, places: Sequence[TopicPartition], resume: Callable[[], None]) -> None:
    """A wait of long work (`kohort.server.requests.slices`) at a point; the first place that is held counts."""
    if not any(hold(place, resume) for place in places):
        resume()


class NoResponse(Enum):
    """A handler's return value for a request without a response. Source: Kafka RequestChannel.Response."""

    NO_OP = "nothing is sent"
    CLOSE_CONNECTION = "the connection is closed"


Context: TypeAlias = RequestContext

Handler: TypeAlias = Callable[[Any, Context, Reply[Any]], Any]


class MarkerWriter(Protocol):
    """A function that ends a transaction in one partition; it calls `done(code)` once, now or later."""

    def __call__(self, partition: int, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None: ...


class CoordinatorDirectory(Protocol):
    """The coordinators of this node, by their internal topics. It may grow after the broker was built."""

    def is_hosted(self, topic: str) -> bool: ...

    def marker_writer(self, topic: str) -> MarkerWriter | None:
        """The writer of transaction markers to a topic; None if they are appended to its logs like any batch."""

    @property
    def verification(self) -> Verification | None:
        """The transaction coordinator, as partition leaders ask it; None if this node hosts none."""

    @property
    def persister(self) -> Persister | None:
        """The share coordinator: one attempt each, the topic exists; None if this node hosts none."""


class NoCoordinators:
    """The directory of a broker without coordinators."""

    def is_hosted(self, _topic: str) -> bool:
        return False

    def marker_writer(self, _topic: str) -> MarkerWriter | None:
        return None

    @property
    def verification(self) -> Verification | None:
        return None

    @property
    def persister(self) -> Persister | None:
        return None


class PartitionLeader(NamedTuple):
    """
    The leader and the replicas of a partition.

    Attributes:
        leader_id: -1 if its replicas are stopped, or its log failed or cannot be opened.
        offline: the replicas that cannot be used.
        elr: the eligible leader replicas (KIP-966).
    """

    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()

    @property
    def is_offline(self) -> bool:
        return self.leader_id < 0


class Leadership(Protocol):
    """The leaders of partitions."""

    def leader(self, topic: Topic, index: int, /) -> PartitionLeader: ...
