"""The testing kit of one node: its faults, holds and journal, and the handlers that they wrap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from time import time
from typing import Any, TypeVar
from uuid import UUID

from kohort.control.cluster.events import Events
from kohort.control.cluster.groups import Groups
from kohort.control.cluster.inside import Inside
from kohort.control.cluster.points import Points
from kohort.control.cluster.topics import Topics
from kohort.control.requests.black_holes import BlackHoles
from kohort.control.requests.faults import Fault, FaultSpec
from kohort.control.requests.filters import Call
from kohort.control.requests.holds import Hold, HoldSpec
from kohort.control.requests.interception import Go, interceptor
from kohort.control.requests.journal import Journal, Kept
from kohort.control.requests.unfolded import unfolded
from kohort.control.web.problems import Problem, invalid, not_found, too_many
from kohort.control.web.waiting import Changes, Polls
from kohort.model.errors import ConfigError
from kohort.model.limits import FAULTS_MAX, HELD_MAX, HOLDS_MAX
from kohort.server.node import Node
from kohort.server.requests.dispatch import Throttle
from kohort.server.stores import Content
from kohort.wire.apis import ApiKey

T = TypeVar("T")


class Kit:
    """
    Implements `kohort.control.requests.interception.Rules`.

    Attributes:
        run: a word of this run of the process: handles of another run are unknown, and never mistaken.
        call_later: calls a function after some seconds: for delays of requests and answers.
        faults_changed, holds_changed, journal_changed: wake those who wait.
    """

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self.loop = loop
        self.call_later: Callable[[float, Go], object] = loop.call_later
        self.run = token_hex(3)
        self._number = 0
        self.all_faults: dict[str, Fault] = {}
        """By id, in the order in which they were added; also those that were removed."""
        self._by_api: dict[ApiKey, list[Fault]] = {}
        self._of_all: list[Fault] = []
        self._parked: dict[str, list[Go]] = {}
        self._black_holes = BlackHoles(node)
        self._silent: set[Go] = set()
        """Close the connections of requests without an answer: one a connection."""
        self.all_holds: dict[str, Hold] = {}
        self._leases: dict[str, asyncio.TimerHandle] = {}
        self._holding: list[Hold] = []
        self.snapshots: dict[str, tuple[str, Content]] = {}
        """By id: scope and content."""
        self.journal = Journal(self.name_of)
        self.inside = Inside(node)
        self.groups = Groups(self.inside)
        self.topics = Topics(self.inside)
        self.events = Events(node, self.inside, self.groups)
        self.points = Points(node, self.inside, self._holding)
        self.polls = Polls()
        self.faults_changed = Changes()
        self.holds_changed = Changes()
        self.journal_changed = Changes()

    def next_id(self, kind: str) -> str:
        """A new handle."""
        self._number += 1
        return f"{kind}-{self._number}-{self.run}"

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self.node.broker.catalog.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _found(self, kind: str, all_of_kind: dict[str, T], handle: str) -> T:
        found = all_of_kind.get(handle)
        if found is None:
            is_other = not handle.endswith(self.run) and handle.count("-") == 2
            hint = "; it belongs to another run of the broker: a restart ends all of them" if is_other else ""
            raise not_found(kind, handle, hint)
        return found

    # -- faults ------------------------------------------------------------------------------------------------

    def add_fault(self, spec: FaultSpec) -> Fault:
        """
        Raises:
            Problem: the values do not go together, or there are too many faults.
        """
        try:
            fault = Fault(self.next_id("fault"), spec, self.name_of, self.all_faults.get)
        except ValueError as error:
            raise invalid(str(error)) from None
        self._make_room("faults", self.all_faults, FAULTS_MAX, lambda each: each.is_removed)
        fault.on_hit.append(self.faults_changed.tell)
        self.all_faults[fault.id] = fault
        if fault.matcher.apis is None:
            self._of_all.append(fault)
            for faults in self._by_api.values():
                faults.append(fault)
        else:
            for api in fault.matcher.apis:
                self._by_api.setdefault(api, list(self._of_all)).append(fault)
        self._wrap()
        if fault.effect == "black_hole":
            self._black_holes.open(fault)
        # A Fetch that waits for records has begun without the fault: its client asks again.
        self.node.broker.fetches.complete_all()
        return fault

    def _make_room(self, what: str, all_of_kind: dict[str, T], limit: int, is_over: Callable[[T], bool]) -> None:
        if len(all_of_kind) < limit:
            return
        for handle, each in all_of_kind.items():
            if is_over(each):
                del all_of_kind[handle]
                return
        raise too_many(what, limit)

    def fault(self, fault_id: str) -> Fault:
        """Raises: Problem: there is no such fault in this run."""
        return self._found("fault", self.all_faults, fault_id)

    def remove_fault(self, fault_id: str) -> Fault | None:
        """Remove a fault; its counts stay. None if there is none."""
        fault = self.all_faults.get(fault_id)
        if fault is None or fault.is_removed:
            return fault
        fault.is_removed = True
        if fault.matcher.apis is None:
            self._of_all.remove(fault)
            apis = list(self._by_api)
        else:
            apis = list(fault.matcher.apis)
        for api in apis:
            self._by_api[api].remove(fault)
        self._black_holes.close(fault_id)
        for go in self._parked.pop(fault_id, []):
            self.loop.call_soon(go)
        self._wrap()
        self.faults_changed.tell()
        return fault

    # -- holds -------------------------------------------------------------------------------------------------

    def add_hold(self, spec: HoldSpec) -> Hold:
        """
        Raises:
            Problem: the values do not go together, or there are too many holds.
        """
        try:
            hold = Hold(self.next_id("hold"), spec, self.name_of, self.holds_changed.tell)
        except ValueError as error:
            raise invalid(str(error)) from None
        self._make_room("holds", self.all_holds, HOLDS_MAX, lambda each: each.is_ended)
        self.all_holds[hold.id] = hold
        self._holding.append(hold)
        self._renew(hold)
        self._wrap()
        self.points.watch()
        return hold

    def hold(self, hold_id: str) -> Hold:
        """A hold, whose lease begins anew. Raises: Problem: there is no such hold in this run."""
        found = self._found("hold", self.all_holds, hold_id)
        self._renew(found)
        return found

    def _renew(self, hold: Hold) -> None:
        self._drop_lease(hold)
        if not hold.is_ended:
            self._leases[hold.id] = self.loop.call_later(hold.spec.lease, partial(self.release, hold))

    def _drop_lease(self, hold: Hold) -> None:
        lease = self._leases.pop(hold.id, None)
        if lease is not None:
            lease.cancel()

    def release(self, hold: Hold, count: int | None = None) -> int:
        """Let the first ones go; None: all, and the hold ends. Returns how many went."""
        released = hold.let_go(count)
        if hold.is_ended and hold in self._holding:
            self._drop_lease(hold)
            self._holding.remove(hold)
            self._wrap()
            self.points.watch()
        for go in released:
            go()
        return len(released)

    # -- journal -----------------------------------------------------------------------------------------------

    def keep_journal(self, *, is_on: bool) -> None:
        """Keep the requests from now on, or no more."""
        self.journal.is_on = is_on
        self._wrap()

    # -- handlers ----------------------------------------------------------------------------------------------

    def _wrap(self) -> None:
        """Wrap the handlers of the APIs for which there is something to do, and no others."""
        for broker, dispatch in self.node.dispatches.items():
            dispatch.intercept_by(partial(self._wrapper, broker))

    def _wrapper(self, broker: int, api: ApiKey) -> Throttle | None:
        is_needed = self.journal.is_on or bool(self.faults(api)) or any(hold.is_about(api) for hold in self._holding)
        return interceptor(self, api, broker) if is_needed else None

    async def restore(self, content: Content) -> None:
        """
        Let the node go on with what it had stored once. Faults, holds and the journal stay; what was held has lost its client.

        Raises:
            Problem: the broker is not in memory.
        """
        for hold in self._holding:
            hold.drop()
        self.points.drop()
        self._parked.clear()
        self._black_holes.clear()
        self._silent.clear()
        try:
            await self.node.restore(content)
        except ConfigError as error:
            raise Problem(409, "not-in-memory", str(error)) from None
        self._wrap()
        self.points.watch()

    def close(self) -> None:
        """Let everything go that is held."""
        for hold in list(self._holding):
            self.release(hold)
        for fault_id in list(self._parked):
            self.remove_fault(fault_id)
        for end in list(self._silent):
            end()
        self._silent.clear()

    # -- rules of requests -------------------------------------------------------------------------------------

    def begin(self, call: Call) -> Kept | None:
        if not self.journal.is_on:
            return None
        kept = self.journal.begin(call, round(time() * 1_000))
        self.journal_changed.tell()
        return kept

    def unfolded(self, call: Call) -> Any:
        return unfolded(self.node.broker, call)

    def faults(self, api: ApiKey) -> list[Fault]:
        return self._by_api.get(api, self._of_all)

    def hold_of(self, call: Call, at: str) -> Hold | None:
        return next((hold for hold in self._holding if hold.wants(call, at)), None)

    def later(self, seconds: float, go: Go) -> None:
        self.call_later(seconds, go)

    def park(self, fault: Fault, go: Go) -> None:
        parked = self._parked.setdefault(fault.id, [])
        if len(parked) >= HELD_MAX:
            go()
        else:
            parked.append(go)

    def keep_silent(self, end: Go) -> Go:
        self._silent.add(end)
        return partial(self._silent.discard, end)

    def end(self, entry: Any, fault: Fault | None, response: Any) -> None:
        if entry is not None:
            self.journal.end(entry, None if fault is None else fault.id, response)
            self.journal_changed.tell()
