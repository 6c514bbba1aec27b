"""Holds as values: requests, answers or points inside the broker that stop until they are released."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from kohort.control.requests.filters import Call, Filter, Matcher, NameOf, nearest
from kohort.model.limits import HELD_MAX
from kohort.server.requests.places import Facts, place_of
from kohort.server.requests.placing import select
from kohort.wire.apis import ApiKey

LEASE_SECONDS: Final = 60.0
LEASE_SECONDS_MAX: Final = 3_600.0
APPEND: Final = "append"
FLUSH: Final = "flush"
MARKER_WRITE: Final = "marker.write"
FETCH_COMPLETION: Final = "fetch.completion"
REBALANCE_COMPLETION: Final = "rebalance.completion"
COORDINATOR_LOAD: Final = "coordinator.load"
_PARTITIONS: Final = ("topic", "partition")
POINTS: Final = {
    APPEND: _PARTITIONS,
    FLUSH: _PARTITIONS,
    MARKER_WRITE: _PARTITIONS,
    FETCH_COMPLETION: _PARTITIONS,
    REBALANCE_COMPLETION: ("group",),
    COORDINATOR_LOAD: _PARTITIONS,
}
"""The points inside the broker, each with the filters that it knows."""


class HoldSpec(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    What `POST /holds` takes.

    Attributes:
        at: "request" holds requests before they have an effect, "reply" their answers.
        point: a point inside the broker instead of requests: "append" before a batch of a producer is written to a partition,
            "flush" before what was written counts as durable, "marker.write" before a transaction marker is written,
            "fetch.completion" before a Fetch that has waited is answered, "coordinator.load" while a coordinator loads a
            partition of its topic, all with the filters `topic` and `partition`; "rebalance.completion" before a group has its
            next generation or assignment, with the filter `group`.
        times: how many are held at most; all without it.
        lease: seconds after which the hold releases itself, unless a request to the control port names it before.
        scope: the test to which the hold belongs.
    """

    at: Literal["request", "reply"] = "request"
    point: str | None = None
    times: int | None = None
    lease: float = LEASE_SECONDS
    scope: str = ""


def _check_point(spec: HoldSpec, point: str) -> None:
    known = POINTS.get(point)
    if known is None:
        raise ValueError(f"there is no point {point!r}{nearest(point, list(POINTS))}; {', '.join(POINTS)}")
    given = [name for name in Filter.__struct_fields__ if getattr(spec, name) is not None]
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"the point {point} has the filters {' and '.join(known)}; it has no {unknown[0]}")
    if spec.at != "request":
        raise ValueError(f"at belongs to requests; {point} is a point inside the broker")


class HeldCall(msgspec.Struct, frozen=True):
    """Something that is held: a request, or what stands at a point."""

    api: str
    client_id: str
    connection: str
    text: str


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A hold as clients see it.

    Attributes:
        waiting: how many are held now; `held` lists them, the first ones at most.
        hits: how many have been held so far.
        is_ended: nothing is held any more: the hold was released as a whole, removed, or its lease has ended.
    """

    id: str
    scope: str
    waiting: int
    hits: int
    is_ended: bool
    held: Sequence[HeldCall]
    spec: HoldSpec


_SHOWN: Final = 100


class Hold:
    """
    A hold with what it holds. Whoever lets a request go calls a function of it.

    Raises:
        ValueError: the values do not go together.
    """

    def __init__(self, hold_id: str, spec: HoldSpec, name_of: NameOf, on_change: Callable[[], None]) -> None:
        self.id = hold_id
        self.spec = spec
        self.matcher = Matcher(spec, name_of)
        self.hits = 0
        self.is_ended = False
        self._on_change = on_change
        self._held: deque[tuple[HeldCall, Callable[[], None]]] = deque()
        if spec.point is not None:
            _check_point(spec, spec.point)
        if spec.times is not None and spec.times < 1:
            raise ValueError(f"times must be 1 or more; it is {spec.times}")
        if not 0 < spec.lease <= LEASE_SECONDS_MAX:
            raise ValueError(
                f"lease must be more than 0 and at most {LEASE_SECONDS_MAX:.0f} seconds; it is {spec.lease}"
            )

    def is_about(self, api: ApiKey) -> bool:
        """Whether requests of an API may be held."""
        return self.spec.point is None and (self.matcher.apis is None or api in self.matcher.apis)

    def wants(self, call: Call, at: str) -> bool:
        """Whether a request, or its answer, is to be held."""
        spec = self.spec
        if spec.point is not None or spec.at != at or not self._has_room or not self.matcher.may_match(call):
            return False
        return select(place_of(call.api, call.version), call.request, call.facts, self.matcher.matches) is not None

    @property
    def _has_room(self) -> bool:
        is_used_up = self.spec.times is not None and self.hits >= self.spec.times
        return not (self.is_ended or is_used_up or len(self._held) >= HELD_MAX)

    def take(self, call: Call, go: Callable[[], None]) -> None:
        """Hold a request, or its answer."""
        self._take(HeldCall(call.api.api_name, call.client_id, call.connection, ""), go)

    def take_point(self, point: str, facts: Facts, place: str, go: Callable[[], None]) -> bool:
        """Hold what stands at a point; False if the hold does not want it."""
        if self.spec.point != point or not self._has_room or not self.matcher.matches(facts):
            return False
        self._take(HeldCall("", "", "", f"{point} {place}"), go)
        return True

    def _take(self, held: HeldCall, go: Callable[[], None]) -> None:
        self.hits += 1
        self._held.append((held, go))
        self._on_change()

    @property
    def waiting(self) -> int:
        return len(self._held)

    def let_go(self, count: int | None = None) -> list[Callable[[], None]]:
        """Forget the first ones; None: all of them, and hold no more. The caller calls the functions, in this order."""
        if count is None:
            self.is_ended = True
            count = len(self._held)
        released = [self._held.popleft()[1] for _ in range(min(count, len(self._held)))]
        self._on_change()
        return released

    def drop(self) -> None:
        """Forget what is held: nobody waits for it any more."""
        self._held.clear()
        self._on_change()

    def view(self) -> HoldView:
        return HoldView(
            id=self.id,
            scope=self.spec.scope,
            waiting=len(self._held),
            hits=self.hits,
            is_ended=self.is_ended,
            held=[held for held, _ in list(self._held)[:_SHOWN]],
            spec=self.spec,
        )
