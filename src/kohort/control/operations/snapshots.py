"""The operations of the control API over snapshots of a broker in memory."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import msgspec

from kohort.control.kit import Kit
from kohort.control.web.api import Operation
from kohort.control.web.problems import Problem, not_found, too_many
from kohort.model.errors import ConfigError
from kohort.model.limits import SNAPSHOTS_MAX
from kohort.server.stores import Content


class NewSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        scope: the test to which the snapshot belongs.
    """

    scope: str = ""


class SnapshotView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A snapshot: what all logs had.

    Attributes:
        size_bytes: of the records; snapshots share them with the logs.
    """

    id: str
    scope: str
    partitions: int
    size_bytes: int


class SnapshotList(msgspec.Struct, frozen=True):
    """The snapshots of this run."""

    snapshots: Sequence[SnapshotView]


class Restored(msgspec.Struct, frozen=True):
    """
    Attributes:
        seconds: how long it took.
    """

    seconds: float


_EMPTY: Final[Content] = {}


def snapshot_operations(kit: Kit) -> list[Operation]:
    """Snapshots."""
    kept = kit.snapshots

    def view(snapshot_id: str) -> SnapshotView:
        scope, content = kept[snapshot_id]
        size_bytes = sum(each.size_bytes for each in content.values())
        return SnapshotView(id=snapshot_id, scope=scope, partitions=len(content), size_bytes=size_bytes)

    async def take(body: NewSnapshot) -> SnapshotView:
        if len(kept) >= SNAPSHOTS_MAX:
            raise too_many("snapshots", SNAPSHOTS_MAX)
        try:
            content = kit.node.content()
        except ConfigError as error:
            raise Problem(409, "not-in-memory", str(error)) from None
        snapshot_id = kit.next_id("snapshot")
        kept[snapshot_id] = body.scope, content
        return view(snapshot_id)

    async def every() -> SnapshotList:
        return SnapshotList([view(each) for each in kept])

    async def restore(snapshot_id: str) -> Restored:
        if snapshot_id not in kept:
            raise not_found("snapshot", snapshot_id)
        began = perf_counter()
        await kit.restore(kept[snapshot_id][1])
        return Restored(perf_counter() - began)

    async def forget(snapshot_id: str) -> None:
        kept.pop(snapshot_id, None)

    async def reset() -> Restored:
        began = perf_counter()
        for fault in list(kit.all_faults.values()):
            kit.remove_fault(fault.id)
        for hold in list(kit.all_holds.values()):
            kit.release(hold)
        kit.journal.clear()
        kit.topics.scopes.clear()
        await kit.restore(_EMPTY)
        return Restored(perf_counter() - began)

    path = "/snapshots/{snapshot_id}"
    return [
        Operation(
            "POST",
            "/snapshots",
            "Take a snapshot of all topics, groups and transactions of a broker in memory.",
            take,
            NewSnapshot,
            SnapshotView,
            problems=(409, 429),
            is_body_optional=True,
        ),
        Operation("GET", "/snapshots", "List the snapshots.", every, answer=SnapshotList),
        Operation(
            "POST",
            f"{path}/restore",
            "Go on with a snapshot. Connections are cut, and leader epochs rise.",
            restore,
            answer=Restored,
            problems=(404, 409),
        ),
        Operation("DELETE", path, "Forget a snapshot. One that is not there is no error.", forget),
        Operation(
            "POST",
            "/reset",
            "Begin with a clean broker at the same address: no topics, groups, faults, holds or journal. Snapshots stay.",
            reset,
            answer=Restored,
            problems=(409,),
        ),
    ]
