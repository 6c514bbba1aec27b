"""The rows of nodes, as an operator reads and changes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any, Final, NamedTuple

from kohort.broker.catalog.catalog import CATALOG
from kohort.model.errors import ConfigError
from kohort.storage.postgres.claims import lease_ms
from kohort.storage.postgres.connect import Connection, check_schema
from kohort.storage.postgres.tools import operators
from kohort.storage.postgres.tools.operators import Leads, Overview
from kohort.storage.shared import NO_NODE, NodeRow, NodeState

LOOKS_S: Final = 0.05
"""Between two looks at the rows."""
WATCHED: Final = 3
"""A renewal is waited for during this part of the lease; nodes renew some times more often."""
_STATES: Final = {NodeState.LIVE: "live", NodeState.DRAINING: "stopping", NodeState.ENDED: "stopped"}
SILENT: Final = "silent"


class Status(NamedTuple):
    """The answer of `kohort cluster status`: a title, a row a node, and sentences of what is wrong."""

    title: str
    rows: list[dict[str, Any]]
    problems: list[str]


class Watched(NamedTuple):
    """The last look at the rows, and how long ago each node has renewed its lease; None if it has not while it was watched."""

    overview: Overview
    ages_s: dict[int, float | None]
    watched_s: float


def read_status(connection: Connection, shown: str) -> Status:
    """
    Watch the rows, and describe them.

    Raises:
        ConfigError: there is no store, or it has another version.
    """
    cluster_id = check_schema(connection, shown)
    lease = lease_ms(connection)
    watched = watch(connection, lease / 1000 / WATCHED)
    look, leads = watched.overview.look, watched.overview.leads
    rows = [described(row, watched) for _, row in sorted(look.nodes.items())]
    count = sum(each.count for each in leads.values())
    title = (
        f"cluster {cluster_id}: controller {_name(look.catalog.leader_id)} in epoch {look.catalog.leader_epoch}, "
        f"{count} partitions, lease {lease} ms"
    )
    return Status(title, rows, problems(rows, leads, look.catalog.leader_id, shown))


def watch(connection: Connection, seconds: float) -> Watched:
    """Look at the rows until every node has renewed its lease, or for some seconds."""
    begun = now = time.monotonic()
    seen = operators.overview(connection, CATALOG)
    renewed_at: dict[int, float] = {}
    while now - begun < seconds and any(
        row.state is not NodeState.ENDED and node_id not in renewed_at for node_id, row in seen.look.nodes.items()
    ):
        time.sleep(LOOKS_S)
        before, seen, now = seen, operators.overview(connection, CATALOG), time.monotonic()
        for node_id, row in seen.look.nodes.items():
            was = before.look.nodes.get(node_id)
            if was is not None and (was.incarnation, was.counter) != (row.incarnation, row.counter):
                renewed_at[node_id] = now
    ages = {node_id: now - renewed_at[node_id] if node_id in renewed_at else None for node_id in seen.look.nodes}
    return Watched(seen, ages, now - begun)


def described(row: NodeRow, watched: Watched) -> dict[str, Any]:
    """A row of the table."""
    look = watched.overview.look
    leads = watched.overview.leads.get(row.node_id, Leads())
    age_s = watched.ages_s[row.node_id]
    state = "drained" if row.state is NodeState.LIVE and row.is_drained else _STATES[row.state]
    is_ended = row.state is NodeState.ENDED
    if age_s is None and not is_ended:
        state, age_s = SILENT, watched.watched_s
    endpoints = {name: f"{host}:{port}" for name, (host, port) in row.registration.endpoints.items()}
    return {
        "node": row.node_id,
        "state": state,
        "controller": row.node_id == look.catalog.leader_id,
        "leads": leads.count,
        "epoch": leads.leader_epoch if leads.count else None,
        "lease_age_ms": None if is_ended or age_s is None else round(age_s * 1000),
        "behind": None if is_ended else max(look.catalog.next_offset - row.view, 0),
        "version": row.registration.version,
        "rack": row.registration.rack,
        "address": next(iter(endpoints.values()), None),
        "endpoints": endpoints,
        "is_drained": row.is_drained,
        "incarnation": str(row.incarnation),
    }


def problems(rows: list[dict[str, Any]], leads: Mapping[int, Leads], controller: int, shown: str) -> list[str]:
    """A sentence for each thing that is wrong."""
    if not rows:
        return [f"no node has joined {shown}: kohort serve --store {shown} --set node.id=1"]
    found = []
    for row in rows:
        if row["state"] == "stopped":
            found.append(
                f"node {row['node']} is stopped: start it, or, if it does not come back: "
                f"kohort cluster forget {quote(shown)} {row['node']}"
            )
        elif row["state"] == SILENT:
            found.append(
                f"node {row['node']} has not renewed its lease for {row['lease_age_ms']} ms at least: it is dead or paused, or "
                "does not reach the database"
            )
    running = {row["node"] for row in rows if row["state"] not in ("stopped", SILENT)}
    orphans = sum(each.count for node_id, each in leads.items() if node_id not in running)
    if orphans:
        found.append(f"{orphans} partitions have no leader")
    if controller not in running:
        found.append("the cluster has no controller")
    return found


def want_drained(connection: Connection, shown: str, node_id: int) -> None:
    """
    Want a node to lead nothing.

    Raises:
        ConfigError: it does not run, or no other node can lead.
    """
    nodes = _nodes(connection, shown)
    row = _known(nodes, node_id, shown)
    if row.state is NodeState.ENDED:
        raise ConfigError(f"node {node_id} is stopped, and leads nothing")
    if not any(other.may_lead for other in nodes.values() if other.node_id != node_id):
        raise ConfigError(f"no other node could lead the partitions of node {node_id}: start one, or end its drain")
    operators.set_drained(connection, node_id, is_drained=True)


def wait_until_drained(
    connection: Connection, node_id: int, timeout_s: float, on_progress: Callable[[int], None]
) -> None:
    """
    Wait until other nodes have claimed the partitions of a node.

    Raises:
        ConfigError: they have not in time.
    """
    deadline = time.monotonic() + timeout_s
    last = None
    while left := operators.overview(connection, CATALOG).leads.get(node_id, Leads()).count:
        if left != last:
            last = left
            on_progress(left)
        if time.monotonic() > deadline:
            raise ConfigError(
                f"node {node_id} leads {left} partitions after {timeout_s:g} s; the drain goes on as soon as there is a "
                "controller, see: kohort cluster status"
            )
        time.sleep(LOOKS_S)


def end_drain(connection: Connection, shown: str, node_id: int) -> None:
    """Let a node lead again. Raises: ConfigError: it is not drained."""
    if not _known(_nodes(connection, shown), node_id, shown).is_drained:
        raise ConfigError(f"node {node_id} is not drained")
    operators.set_drained(connection, node_id, is_drained=False)


def forget_node(connection: Connection, shown: str, node_id: int) -> None:
    """Delete the row of a stopped node. Raises: ConfigError: it runs, or its lease has not ended."""
    row = _known(_nodes(connection, shown), node_id, shown)
    if not operators.forget(connection, row):
        raise ConfigError(f"node {node_id} is not stopped: stop it first; the lease of a dead one ends by itself")


def _nodes(connection: Connection, shown: str) -> Mapping[int, NodeRow]:
    check_schema(connection, shown)
    return operators.overview(connection, CATALOG).look.nodes


def _known(nodes: Mapping[int, NodeRow], node_id: int, shown: str) -> NodeRow:
    row = nodes.get(node_id)
    if row is None:
        there = ", ".join(map(str, sorted(nodes))) or "none"
        raise ConfigError(f"{shown} has no node {node_id}; its nodes: {there}")
    return row


def _name(node_id: int) -> str:
    return "none" if node_id == NO_NODE else f"node {node_id}"
