"""The operations of the control API over a kit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kohort.control.api import TIMEOUT, Operation, Parameter, seconds_of
from kohort.control.faults import FaultSpec, FaultView
from kohort.control.http import Response
from kohort.control.kit import Kit
from kohort.control.problems import timed_out

_SCOPE = Parameter("scope", str, "Of one test only.")


class FaultList(msgspec.Struct, frozen=True):
    """The faults of the broker, in the order in which they are asked."""

    faults: Sequence[FaultView]


def fault_operations(kit: Kit) -> list[Operation]:
    """Faults."""

    async def add(body: FaultSpec) -> Response:
        view = kit.add_fault(body).view()
        return Response(201, msgspec.json.encode(view), headers={"Location": f"/faults/{view.id}"})

    async def every(scope: str | None = None) -> FaultList:
        return FaultList([each.view() for each in kit.all_faults() if scope in (None, each.spec.scope)])

    async def one(fault_id: str, wait: int | None = None, timeout: float | None = None) -> FaultView:
        fault = kit.fault(fault_id)
        if wait is not None:
            seconds = seconds_of(timeout)
            if not await kit.fault_changes.until(lambda: fault.hits >= wait or fault.is_removed, seconds) or (
                fault.hits < wait
            ):
                reason = "was removed" if fault.is_removed else f"waited {seconds:g} s"
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
