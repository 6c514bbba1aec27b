"""The operations of the control API over faults, holds, the journal and scopes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from kohort.control.kit import Kit
from kohort.control.requests.faults import FaultSpec, FaultView
from kohort.control.requests.filters import Filter
from kohort.control.requests.holds import HoldSpec, HoldView
from kohort.control.requests.journal import Entry
from kohort.control.web.api import TIMEOUT, Operation, Parameter, seconds_of
from kohort.control.web.http import Response
from kohort.control.web.problems import invalid, timed_out

_SCOPE: Final = Parameter("scope", str, "Of one test only.")
ENTRIES_SHOWN: Final = 100
ENTRIES_SHOWN_MAX: Final = 10_000


class FaultList(msgspec.Struct, frozen=True):
    """The faults of the broker, in the order in which they are asked."""

    faults: Sequence[FaultView]


class HoldList(msgspec.Struct, frozen=True):
    """The holds of the broker."""

    holds: Sequence[HoldView]


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        count: the first ones only. Without it all go, and the hold ends.
    """

    count: int | None = None


class JournalState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        is_on: whether requests are kept.
    """

    is_on: bool


class RequestList(msgspec.Struct, frozen=True):
    """
    Requests of the journal that match.

    Attributes:
        count: how many match; `requests` has the last `limit` of them.
        next: the number of the next request: `since` of a later call.
        dropped: requests that the journal has forgotten.
    """

    requests: Sequence[Entry]
    count: int
    next: int
    dropped: int


class ScopeView(msgspec.Struct, frozen=True):
    """The contents of a scope: faults and holds by their ids, topics by their names."""

    scope: str
    faults: Sequence[str]
    holds: Sequence[str]
    topics: Sequence[str]


def fault_operations(kit: Kit) -> list[Operation]:
    """Faults."""

    async def add(body: FaultSpec) -> Response:
        view = kit.add_fault(body).view()
        return Response(201, msgspec.json.encode(view), headers={"Location": f"/faults/{view.id}"})

    async def every(scope: str | None = None) -> FaultList:
        return FaultList([each.view() for each in kit.all_faults.values() if scope in (None, each.spec.scope)])

    async def one(fault_id: str, wait: int | None = None, timeout: float | None = None) -> FaultView:
        fault = kit.fault(fault_id)
        if wait is not None:
            seconds = seconds_of(timeout)
            await kit.faults_changed.until(lambda: fault.hits >= wait or fault.is_removed, seconds)
            if fault.hits < wait:
                reason = "it was removed" if fault.is_removed else f"waited {seconds:g} s"
                raise timed_out(f"{fault_id} has {fault.hits} hits and not {wait}: {reason}", fault.view())
        return fault.view()

    async def remove(fault_id: str) -> FaultView | None:
        fault = kit.remove_fault(fault_id)
        return None if fault is None else fault.view()

    waits = (Parameter("wait", int, "Answer when the fault has so many hits."), TIMEOUT)
    return [
        Operation("POST", "/faults", "Add a fault.", add, FaultSpec, FaultView, 201, problems=(422, 429)),
        Operation("GET", "/faults", "List the faults.", every, answer=FaultList, query=(_SCOPE,)),
        Operation(
            "GET",
            "/faults/{fault_id}",
            "Show a fault, or wait for its hits.",
            one,
            answer=FaultView,
            query=waits,
            problems=(404, 409),
        ),
        Operation(
            "DELETE",
            "/faults/{fault_id}",
            "Remove a fault. Its counts can still be read; a fault that is not there is no error.",
            remove,
            answer=FaultView,
        ),
    ]


def hold_operations(kit: Kit) -> list[Operation]:
    """Holds."""

    async def add(body: HoldSpec) -> Response:
        view = kit.add_hold(body).view()
        return Response(201, msgspec.json.encode(view), headers={"Location": f"/holds/{view.id}"})

    async def every(scope: str | None = None) -> HoldList:
        return HoldList([each.view() for each in kit.all_holds.values() if scope in (None, each.spec.scope)])

    async def one(hold_id: str, wait: int | None = None, timeout: float | None = None) -> HoldView:
        hold = kit.hold(hold_id)
        if wait is not None:
            seconds = seconds_of(timeout)
            await kit.holds_changed.until(lambda: hold.waiting >= wait or hold.is_ended, seconds)
            if hold.waiting < wait:
                reason = "it has ended" if hold.is_ended else f"waited {seconds:g} s"
                raise timed_out(f"{hold_id} holds {hold.waiting} and not {wait}: {reason}", hold.view())
        return hold.view()

    async def release(hold_id: str, body: Release) -> HoldView:
        hold = kit.hold(hold_id)
        if body.count is not None and body.count < 0:
            raise invalid(f"count must be 0 or more; it is {body.count}")
        kit.release(hold, body.count)
        return hold.view()

    async def remove(hold_id: str) -> HoldView | None:
        hold = kit.all_holds.get(hold_id)
        if hold is None:
            return None
        kit.release(hold)
        return hold.view()

    waits = (Parameter("wait", int, "Answer when so many are held."), TIMEOUT)
    return [
        Operation(
            "POST",
            "/holds",
            "Hold requests, answers or a point inside.",
            add,
            HoldSpec,
            HoldView,
            201,
            problems=(422, 429),
        ),
        Operation("GET", "/holds", "List the holds.", every, answer=HoldList, query=(_SCOPE,)),
        Operation(
            "GET",
            "/holds/{hold_id}",
            "Show a hold, or wait until it holds something. The lease begins anew.",
            one,
            answer=HoldView,
            query=waits,
            problems=(404, 409),
        ),
        Operation(
            "POST",
            "/holds/{hold_id}/release",
            "Let the first ones go, or all.",
            release,
            Release,
            HoldView,
            problems=(404, 422),
            is_body_optional=True,
        ),
        Operation("DELETE", "/holds/{hold_id}", "Let all go, and end the hold.", remove, answer=HoldView),
    ]


_FILTER: Final = tuple(
    Parameter(field.name, int if "int" in str(field.type) and field.name != "api" else str, "As in a fault.")
    for field in msgspec.structs.fields(Filter)
)


def journal_operations(kit: Kit) -> list[Operation]:
    """The journal."""
    journal = kit.journal

    async def requests(
        since: int = 0, limit: int = ENTRIES_SHOWN, wait: int | None = None, timeout: float | None = None, **given: Any
    ) -> RequestList:
        if not 0 <= limit <= ENTRIES_SHOWN_MAX:
            raise invalid(f"limit must be from 0 to {ENTRIES_SHOWN_MAX}; it is {limit}")
        if "api" in given:
            given["api"] = given["api"].split(",")
        wanted = Filter(**given)

        def found() -> list[Entry]:
            try:
                return list(journal.matching(wanted, since))
            except ValueError as error:
                raise invalid(str(error)) from None

        if wait is not None and not journal.is_on:
            raise invalid("the journal is off: PUT /journal with is_on true")
        if wait is not None and not await kit.journal_changed.until(lambda: len(found()) >= wait, seconds_of(timeout)):
            count = len(found())
            last = list(journal.matching(Filter()))[-10:]
            raise timed_out(f"{count} requests match and not {wait}; the state has the last ones", last)
        entries = found()
        shown = list(islice(entries, max(len(entries) - limit, 0), None))
        return RequestList(shown, len(entries), journal.next_seq, journal.dropped)

    async def keep(body: JournalState) -> JournalState:
        kit.keep_journal(is_on=body.is_on)
        return body

    async def clear() -> None:
        journal.clear()

    query = (
        *_FILTER,
        Parameter("since", int, "From this number on: `next` of an earlier answer."),
        Parameter("limit", int, f"How many are shown; {ENTRIES_SHOWN} by default. 0 counts only."),
        Parameter("wait", int, "Answer when so many match."),
        TIMEOUT,
    )
    return [
        Operation(
            "GET",
            "/requests",
            "List, count or wait for requests. Several APIs are separated by commas.",
            requests,
            answer=RequestList,
            query=query,
            problems=(409, 422),
        ),
        Operation("DELETE", "/requests", "Forget the requests so far.", clear),
        Operation("PUT", "/journal", "Keep requests, or keep none.", keep, JournalState, JournalState),
    ]


def scope_operations(kit: Kit) -> list[Operation]:
    """Scopes."""

    async def end(scope: str) -> ScopeView:
        faults = [each for each in kit.all_faults.values() if each.spec.scope == scope]
        holds = [each for each in kit.all_holds.values() if each.spec.scope == scope]
        for fault in faults:
            kit.remove_fault(fault.id)
        for hold in holds:
            kit.release(hold)
        for snapshot_id in [each for each, (owner, _) in kit.snapshots.items() if owner == scope]:
            del kit.snapshots[snapshot_id]
        topics = [name for name, each in kit.topics.scopes.items() if each == scope]
        for topic in topics:
            await kit.topics.delete(topic)
        return ScopeView(scope, [each.id for each in faults], [each.id for each in holds], topics)

    return [
        Operation(
            "DELETE",
            "/scopes/{scope}",
            "End what one test made. A scope that has nothing is no error.",
            end,
            answer=ScopeView,
        ),
    ]
