"""Statements of operators: what the nodes of a store have written, and what is wanted of them."""

from __future__ import annotations

from typing import Final

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.postgres import claims
from kohort.storage.postgres.connect import Connection
from kohort.storage.shared import Look, NodeRow

_LEADS: Final = b"""
SELECT leader_id, count(*), max(leader_epoch) FROM log WHERE state = 0 AND (topic, partition) <> ($1, $2) GROUP BY leader_id
"""
_SET_DRAINED: Final = b"UPDATE node SET drained = $2 WHERE node_id = $1"
_FORGET: Final = b"DELETE FROM node WHERE node_id = $1 AND incarnation = $2 AND state = 2"


class Leads(msgspec.Struct, frozen=True):
    """The partitions whose rows name a node as the leader: how many, and their highest leader epoch."""

    count: int = 0
    leader_epoch: int = -1


class Overview(msgspec.Struct, frozen=True):
    """
    What the rows say.

    Attributes:
        look: the rows of nodes by id, and that of the catalog's log.
        leads: by node. A node that has ended has the partitions that no other one has claimed since.
    """

    look: Look
    leads: dict[int, Leads]


def overview(connection: Connection, catalog: TopicPartition) -> Overview:
    """Read the rows; nothing is written."""
    look = claims.look(connection, catalog, None)
    return Overview(look, {row[0]: Leads(row[1], row[2]) for row in connection.execute(_LEADS, tuple(catalog))})


def set_drained(connection: Connection, node_id: int, *, is_drained: bool) -> None:
    """Want a node to lead nothing, or to lead again; the controller is given a hint."""
    connection.execute(_SET_DRAINED, (node_id, is_drained))
    claims.hint(connection)


def forget(connection: Connection, row: NodeRow) -> bool:
    """Delete the row of a node that has ended; False if it has joined again since."""
    return connection.execute(_FORGET, (row.node_id, row.incarnation)).rowcount > 0
