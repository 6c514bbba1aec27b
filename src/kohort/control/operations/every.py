"""Every operation of the control API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from kohort.control.kit import Kit
from kohort.control.operations.clock import clock_operations
from kohort.control.operations.events import event_operations
from kohort.control.operations.requests import fault_operations, hold_operations, journal_operations, scope_operations
from kohort.control.operations.snapshots import snapshot_operations
from kohort.control.operations.states import group_operations, topic_operations, transaction_operations
from kohort.control.web.api import Operation
from kohort.control.web.http import JSON, Response
from kohort.control.web.openapi import VERSION, text


class BrokerView(msgspec.Struct, frozen=True):
    """A broker: its addresses by listener, and whether it runs."""

    id: int
    rack: str | None
    is_running: bool
    listeners: dict[str, str]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """
    The process behind the port.

    Attributes:
        api: the version of the control API.
        kafka: the release of Apache Kafka that the brokers are like.
        run: a word of this run: the ids of faults and holds end with it.
    """

    api: str
    kafka: str
    cluster_id: str
    run: str
    brokers: Sequence[BrokerView]


def overview_operations(kit: Kit) -> list[Operation]:
    """The process, and the document."""
    broker = kit.node.broker

    async def overview() -> Overview:
        return Overview(
            api=VERSION,
            kafka=broker.config.release,
            cluster_id=kit.node.cluster_id,
            run=kit.run,
            brokers=[
                BrokerView(
                    node_id,
                    each.rack,
                    not each.is_fenced,
                    {name: f"{endpoint.host}:{endpoint.port}" for name, endpoint in each.endpoints.items()},
                )
                for node_id, each in kit.node.brokers.registered.items()
            ],
        )

    async def openapi() -> Response:
        return Response(200, text(operations_of(kit)), JSON)

    return [
        Operation("GET", "/", "Show the process and its brokers.", overview, answer=Overview),
        Operation("GET", "/openapi.json", "This document.", openapi, answer=dict[str, Any]),
    ]


ROOMS: Final[tuple[Callable[[Kit], list[Operation]], ...]] = (
    overview_operations,
    fault_operations,
    hold_operations,
    journal_operations,
    scope_operations,
    group_operations,
    transaction_operations,
    topic_operations,
    event_operations,
    clock_operations,
    snapshot_operations,
)


def operations_of(kit: Kit) -> list[Operation]:
    """All of them, over a kit."""
    return [operation for room in ROOMS for operation in room(kit)]
