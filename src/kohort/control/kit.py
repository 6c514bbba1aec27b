"""The testing kit of one node: its faults, and the handlers that they wrap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import Any
from uuid import UUID

from kohort.control.faults import Fault, FaultSpec
from kohort.control.filters import Call
from kohort.control.interception import Go, Hold, interceptor
from kohort.control.problems import invalid, not_found, too_many
from kohort.control.waiting import Changes
from kohort.model.limits import FAULTS_MAX
from kohort.server.node import Node
from kohort.server.requests.dispatch import Throttle
from kohort.wire.apis import ApiKey


class Kit:
    """
    Implements `kohort.control.interception.Rules`.

    Attributes:
        run: a word of this run of the process: handles of another run are unknown, and never mistaken.
    """

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self.run = token_hex(3)
        self._number = 0
        self._faults: dict[str, Fault] = {}
        """By id, in the order in which they were added; also those that were removed."""
        self._by_api: dict[ApiKey, list[Fault]] = {}
        self._of_all: list[Fault] = []
        self._parked: dict[str, list[Go]] = {}
        self.fault_changes = Changes()

    def next_id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}-{self.run}"

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._node.broker.catalog.topic_by_id(topic_id)
        return None if topic is None else topic.name

    # -- faults ------------------------------------------------------------------------------------------------

    def add_fault(self, spec: FaultSpec) -> Fault:
        """
        Raises:
            Problem: the values do not go together, or there are too many faults.
        """
        active = sum(not fault.is_removed for fault in self._faults.values()) if len(self._faults) >= FAULTS_MAX else 0
        if active >= FAULTS_MAX:
            raise too_many("faults", FAULTS_MAX)
        try:
            fault = Fault(self.next_id("fault"), spec, self.name_of, self._faults.get)
        except ValueError as error:
            raise invalid(str(error)) from None
        if len(self._faults) >= FAULTS_MAX:
            del self._faults[next(each.id for each in self._faults.values() if each.is_removed)]
        fault.on_hit.append(self.fault_changes.tell)
        self._faults[fault.id] = fault
        if fault.matcher.apis is None:
            self._of_all.append(fault)
            for faults in self._by_api.values():
                faults.append(fault)
        else:
            for api in fault.matcher.apis:
                self._by_api.setdefault(api, list(self._of_all)).append(fault)
        self._wrap()
        return fault

    def fault(self, fault_id: str) -> Fault:
        """
        Raises:
            Problem: there is no such fault in this run.
        """
        found = self._faults.get(fault_id)
        if found is None:
            raise not_found("fault", fault_id, self._hint(fault_id))
        return found

    def _hint(self, handle: str) -> str:
        is_other = not handle.endswith(self.run) and handle.count("-") == 2
        return "; it belongs to another run of the broker: a restart ends all of them" if is_other else ""

    def all_faults(self) -> list[Fault]:
        return list(self._faults.values())

    def remove_fault(self, fault_id: str) -> Fault | None:
        """Remove a fault; its counts stay. None if there is none."""
        fault = self._faults.get(fault_id)
        if fault is None or fault.is_removed:
            return fault
        fault.is_removed = True
        if fault.matcher.apis is None:
            self._of_all.remove(fault)
        for faults in list(self._by_api.values()):
            if fault in faults:
                faults.remove(fault)
        for go in self._parked.pop(fault_id, []):
            self._loop.call_soon(go)
        self._wrap()
        self.fault_changes.tell()
        return fault

    def _wrap(self) -> None:
        for broker, dispatch in self._node.dispatches.items():
            dispatch.intercept_by(partial(self._wrapper, broker))

    def _wrapper(self, broker: int, api: ApiKey) -> Throttle | None:
        return interceptor(self, api, broker) if self.faults(api) else None

    # -- rules of requests -------------------------------------------------------------------------------------

    def begin(self, _call: Call) -> Any:
        return None

    def faults(self, api: ApiKey) -> list[Fault]:
        return self._by_api.get(api, self._of_all)

    def hold(self, _call: Call, _at: str) -> Hold | None:
        return None

    def later(self, seconds: float, go: Go) -> None:
        self._loop.call_later(seconds, go)

    def park(self, fault: Fault, go: Callable[[], None]) -> None:
        self._parked.setdefault(fault.id, []).append(go)

    def end(self, _entry: Any, _fault: Fault | None, _response: Any) -> None:
        pass
