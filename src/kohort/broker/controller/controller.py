"""
The controller: the node that leads the catalog. It registers nodes and fences them, and gives partitions their leaders.

It compares the rows of the nodes with their registrations, and makes one change at a time. Each change can be made again, so a
controller that dies in the middle of one is followed by another that finishes it.

Source: Kafka ClusterControlManager, ReplicationControlManager, BrokerHeartbeatManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import CATALOG, Catalog
from kohort.broker.catalog.view import CatalogChange, Setting, Topic
from kohort.broker.controller.leases import LeaseWatch
from kohort.broker.controller.registrations import RegisteredNode, Registrations, registered
from kohort.broker.partitions.replication import ReplicationControl
from kohort.broker.ports import CallLater
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta
from kohort.storage.shared import NodeRow, NodeState, SharedStore

_log = logging.getLogger("kohort.broker")

RETRY_MS: Final = 500
"""The pause after a change that could not be written."""


class EndLease(NamedTuple):
    """End the lease of a node that has not renewed it."""

    row: NodeRow


class Fence(NamedTuple):
    """Take the partitions of a node that answers nothing any more."""

    node_id: int
    node: RegisteredNode


class Register(NamedTuple):
    """Let a node lead partitions."""

    row: NodeRow


class Drain(NamedTuple):
    """Take the partitions of a node that is to stop."""

    node_id: int
    node: RegisteredNode


Step = EndLease | Fence | Register | Drain


def next_step(
    rows: Mapping[int, NodeRow], nodes: Mapping[int, RegisteredNode], watch: LeaseWatch, own_id: int
) -> Step | None:
    """The next change that the rows of the nodes ask for. Nodes that are gone come first: clients wait for their partitions."""
    for node_id, row in sorted(rows.items()):
        if row.state is not NodeState.ENDED and node_id != own_id and watch.is_over(row):
            return EndLease(row)
    for node_id, node in sorted(nodes.items()):
        of_node = rows.get(node_id)
        is_gone = of_node is None or of_node.state is NodeState.ENDED or of_node.incarnation != node.incarnation
        if is_gone and not node.is_fenced:
            return Fence(node_id, node)
    for node_id, row in sorted(rows.items()):
        known = nodes.get(node_id)
        is_to_drain = row.state is NodeState.DRAINING or (row.state is NodeState.LIVE and row.is_drained)
        if is_to_drain and known is not None and not known.is_fenced and not known.is_draining:
            return Drain(node_id, known)
    for node_id, row in sorted(rows.items()):
        known = nodes.get(node_id)
        if row.state is NodeState.LIVE and (
            known is None or known.is_fenced or (known.is_draining and not row.is_drained)
        ):
            return Register(row)
    return None


class Controller:
    """
    This node's part as the controller.

    Args:
        look_again: lets the node look at the rows at once.
    """

    def __init__(
        self,
        node_id: int,
        store: SharedStore,
        catalog: Catalog,
        registrations: Registrations,
        replication: ReplicationControl,
        watch: LeaseWatch,
        call_later: CallLater,
        look_again: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._catalog = catalog
        self._registrations = registrations
        self._replication = replication
        self._watch = watch
        self._call_later = call_later
        self._look_again = look_again
        self._is_busy = True
        self.is_active = False
        """Whether this node is the controller, and has finished what the last one has begun."""
        catalog.watch(self._on_delta)

    def begin(self) -> None:
        """Take over: the rows of the logs win over the catalog; what the last controller has begun is finished."""
        _log.info("controller.begun node=%d epoch=%d", self._node_id, self._catalog.leader_epoch)
        self._store.stored_epochs(self._on_epochs)

    def _on_epochs(self, epochs: Mapping[tuple[TopicPartition, UUID], int]) -> None:
        raised: list[Topic] = []
        for topic in list(self._catalog.topics()):
            states = list(self._catalog.states(topic))
            is_changed = False
            for index, state in enumerate(states):
                stored = epochs.get((TopicPartition(topic.name, index), topic.topic_id), -1)
                if stored > state.leader_epoch:
                    states[index] = msgspec.structs.replace(state, leader_epoch=stored + 1)
                    is_changed = True
            if is_changed:
                raised.append(self._catalog.with_states(topic, states))
        strays = [
            key
            for key in epochs
            if key[0] != CATALOG
            and ((topic_of := self._catalog.topic(key[0].topic)) is None or topic_of.topic_id != key[1])
        ]
        if strays:
            _log.warning("controller.strays count=%d first=%s", len(strays), strays[0][0])
            self._store.set_aside(strays, lambda _: None)
        self._catalog.change(CatalogChange(put=tuple(raised)), self._on_raised)

    def _on_raised(self, code: ErrorCode) -> None:
        self._run(self._replication.settle, code, self._on_taken_over)

    def _on_taken_over(self) -> None:
        self.is_active = True
        self._done()

    # -- steps -------------------------------------------------------------------------------------------------

    def on_look(self, rows: Mapping[int, NodeRow]) -> None:
        """Take the rows of the nodes, and begin the next change unless one is under way."""
        if self._is_busy:
            return
        step = next_step(rows, self._registrations.nodes, self._watch, self._node_id)
        if step is None:
            return
        self._is_busy = True
        if isinstance(step, EndLease):
            _log.warning("controller.lease_ended node=%d", step.row.node_id)
            self._store.end_lease(step.row, lambda _is_ended: self._done())
        elif isinstance(step, Register):
            _log.info("controller.registered node=%d", step.row.node_id)
            self._set(registered(step.row).setting(step.row.node_id), self._settle_and_balance)
        elif isinstance(step, Fence):
            _log.warning("controller.fenced node=%d", step.node_id)
            fenced = msgspec.structs.replace(step.node, is_fenced=True)
            self._set(fenced.setting(step.node_id), self._settle)
        else:
            _log.info("controller.drains node=%d", step.node_id)
            draining = msgspec.structs.replace(step.node, is_draining=True)
            self._set(draining.setting(step.node_id), self._settle)

    def _set(self, setting: Setting, then: Callable[[ErrorCode], None]) -> None:
        self._catalog.change(CatalogChange(settings=(setting,)), then)

    def _settle(self, code: ErrorCode) -> None:
        self._run(self._replication.settle, code, self._done)

    def _settle_and_balance(self, code: ErrorCode) -> None:
        self._run(self._replication.settle, code, self._balance)

    def _balance(self) -> None:
        self._run(self._replication.balance, ErrorCode.NONE, self._done)

    def _run(
        self,
        work: Callable[[Callable[[ErrorCode], None]], Generator[None, None, None]],
        code: ErrorCode,
        then: Callable[[], None],
    ) -> None:
        """Take the steps of a change of many partitions, unless what came before has failed; then begin again."""
        if code:
            self._fail(code)
            return
        steps = work(lambda outcome: self._fail(outcome) if outcome else then())

        def go_on() -> None:
            for _ in steps:
                self._call_later(0, go_on)
                return

        go_on()

    def _fail(self, code: ErrorCode) -> None:
        """A change was not written, for example because the database is full: leaders may be missing."""
        _log.warning("controller.change_failed error=%s", code.name)
        again = partial(self._settle, ErrorCode.NONE) if self.is_active else self.begin
        self._call_later(RETRY_MS, again)

    def _done(self) -> None:
        self._is_busy = False
        self._look_again()

    def _on_delta(self, delta: ImageDelta) -> None:
        if self._catalog.is_led:
            for topic in delta.deleted:
                self._store.remove_topic(topic.name, topic.topic_id)
