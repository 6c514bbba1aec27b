"""
The store that several nodes share, as each of them uses it, and the rows in which nodes see each other.

Each node has a row with a counter, which it raises as long as it lives. Rows change by comparison only: with the incarnation of
the process, and, if another node changes it, with the counter that this one has seen.

Source: Kafka's controller has broker heartbeats and registrations (KIP-500, KIP-631) in this place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, Protocol
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.log import Log

NO_NODE: Final = -1


class NodeState(IntEnum):
    """The state in the row of a node."""

    LIVE = 0
    DRAINING = 1
    """It is to stop: its partitions get other leaders."""
    ENDED = 2
    """Its lease was given back, or ended by another node: it answers nothing any more."""


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What a node says of itself.

    Attributes:
        endpoints: the addresses that clients and other nodes are told, by name of the listener.
        version: of Kohort.
        process: where the process runs, for other processes of the same machine (`kohort.server.cluster.processes`).
    """

    endpoints: dict[str, tuple[str, int]] = {}
    rack: str | None = None
    version: str = ""
    process: str = ""


class NodeRow(msgspec.Struct, frozen=True):
    """
    The row of a node.

    Attributes:
        incarnation: of the process; another one with each start.
        counter: rises with each renewal of the lease, and when another process takes the row.
        view: the end offset of the catalog that the node has applied.
        is_drained: whether an operator wants other leaders of its partitions; renewals and starts of the node leave it so.
    """

    node_id: int
    incarnation: UUID
    counter: int
    state: NodeState
    view: int
    registration: Registration
    is_drained: bool = False

    @property
    def may_lead(self) -> bool:
        """Whether the node can take partitions."""
        return self.state is NodeState.LIVE and not self.is_drained


class Renewal(msgspec.Struct, frozen=True):
    """The row of this node as it is to be; the counter rises by one."""

    node_id: int
    incarnation: UUID
    view: int
    state: NodeState = NodeState.LIVE


class CatalogRow(msgspec.Struct, frozen=True):
    """The row of the catalog's log: the node that leads it, its leader epoch and next offset."""

    leader_id: int = NO_NODE
    leader_epoch: int = -1
    next_offset: int = 0


class Look(msgspec.Struct, frozen=True):
    """
    What a node has seen in the store.

    Attributes:
        nodes: by id.
        is_renewed: whether the renewal took effect. If not, another process has the row, or the lease was ended.
    """

    nodes: dict[int, NodeRow]
    catalog: CatalogRow
    is_renewed: bool = False


class Claim(msgspec.Struct, frozen=True):
    """A partition that this node is to lead in an epoch."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int


class SharedStore(Protocol):
    """
    Every method returns at once and calls `done` later, once, on the owner's thread. While the database cannot be reached,
    `look` and `join` give None, and the others are tried again until they succeed or the store is closed.
    """

    on_hint: Callable[[], None]
    """Called on the owner's thread when another node has changed something, soon after and not in all cases."""

    def look(self, renewal: Renewal | None, done: Callable[[Look | None], None], /) -> None:
        """Renew the lease, if there is one, and then read the rows."""

    def join(
        self,
        renewal: Renewal,
        registration: Registration,
        replaced: NodeRow | None,
        done: Callable[[bool | None], None],
        /,
    ) -> None:
        """Take the row of the node: if there is none, or if it still is `replaced`; its counter rises."""

    def end_lease(self, row: NodeRow, done: Callable[[bool], None], /) -> None:
        """End the lease of a node, unless it has changed its row since; whether it has ended."""

    def read_catalog(self, offset: int, up_to: int, done: Callable[[bytes], None], /) -> None:
        """Read whole batches of the catalog's log from `offset` on and below `up_to`: some of them, one at least."""

    def claim(self, node_id: int, claims: Sequence[Claim], done: Callable[[list[Log | None]], None], /) -> None:
        """
        Lead partitions: raise the leader epochs in the rows of their logs, which fences all others, and then read what the logs
        have become. None for a log whose row has a higher epoch, or which was deleted.
        """

    def stored_epochs(self, done: Callable[[dict[tuple[TopicPartition, UUID], int]], None], /) -> None:
        """The leader epochs in the rows of all logs that are in use."""

    def set_aside(self, logs: Sequence[tuple[TopicPartition, UUID]], done: Callable[[None], None], /) -> None:
        """Keep logs that belong to no topic, as strays."""

    def lead(self, log: Log, /) -> None:
        """Let `open` find a claimed log."""

    def leave(self, topic_partition: TopicPartition, /) -> None:
        """Forget a log that another node leads now. What it has not written fails."""

    def remove_topic(self, name: str, topic_id: UUID, /) -> None:
        """Delete all logs of a topic."""
