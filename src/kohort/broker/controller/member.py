"""
A node among others on the same store: its lease, its view of the catalog, and the office of controller.

The node looks at the rows that all nodes share, some times a second and when it is given a hint. With each look it renews its
lease, and publishes what it has applied of the catalog. It follows the catalog, and leads it when the lease of the node that
did has ended. Everything is a reaction to a look; nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID, Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.controller.controller import Controller
from kohort.broker.controller.leaderships import Leaderships
from kohort.broker.controller.leases import Lease, LeaseWatch, Seconds
from kohort.broker.controller.registrations import Registrations
from kohort.broker.ports import CallLater, Cancel
from kohort.model.errors import ConfigError, CorruptError
from kohort.storage.log import Log
from kohort.storage.shared import (
    Claim,
    Look,
    NodeRow,
    NodeState,
    Registration,
    Renewal,
    SharedStore,
)

_log = logging.getLogger("kohort.broker")

LOOKS_IN_LEASE: Final = 12
"""How often a node renews its lease in the time of one."""
HANDOVER_MS: Final = 20
"""Between two looks while partitions wait until other nodes have seen a change."""


class Outcome(Protocol):
    """The host of a member, which is told of ends that it has to act on."""

    def on_lost(self, reason: str, /) -> None:
        """The node has lost its row or the catalog: it has to begin anew, as after a start."""

    def on_refused(self, reason: str, /) -> None:
        """Another process has the id of this node, or the catalog is not for this version: a new start does not help."""


class Member:
    """
    Args:
        incarnation: of this process.
        registration: what the node says of itself; called when the addresses are known.
        is_dead: whether the process of a row has surely ended, or its part in this process has.
        seconds: a clock that goes on while the machine sleeps.
        duration_s: of leases: the same for all nodes.
    """

    def __init__(
        self,
        node_id: int,
        incarnation: UUID,
        registration: Callable[[], Registration],
        store: SharedStore,
        catalog: Catalog,
        cluster: Cluster,
        registrations: Registrations,
        controller: Callable[[LeaseWatch, Callable[[], None]], Controller],
        leaderships: Leaderships,
        outcome: Outcome,
        *,
        is_dead: Callable[[NodeRow], bool],
        seconds: Seconds,
        duration_s: float,
        call_later: CallLater,
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self._registration = registration
        self._store = store
        self._catalog = catalog
        self._cluster = cluster
        self._registrations = registrations
        self._leaderships = leaderships
        self._outcome = outcome
        self._is_dead = is_dead
        self._seconds = seconds
        self._call_later = call_later
        self.lease = Lease(seconds, duration_s)
        self._watch = LeaseWatch(seconds, duration_s)
        self.controller = controller(self._watch, self.look)
        self._look_ms = max(round(duration_s * 1000 / LOOKS_IN_LEASE), 1)
        self._state = NodeState.LIVE
        self._is_joined = False
        self._is_stopped = False
        self.lost = ""
        """Why this node has lost its part in the cluster; empty as long as it has not."""
        self._is_looking = self._is_asked = False
        self._is_following = self._is_claiming = False
        self._cancel: Cancel | None = None
        self._first_seen: NodeRow | None = None
        self._current: list[tuple[int, Callable[[], None]]] = []
        """Functions that wait for a view of the catalog that has everything before a look, by the number of this look."""
        self.look_seen: Look | None = None
        """The last look."""
        store.on_hint = leaderships.on_claimed = self.look

    # -- the states of a node ----------------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        """Whether the controller has registered this process, as this node's view of the catalog has it."""
        node = self._registrations.nodes.get(self.node_id)
        return node is not None and node.incarnation == self.incarnation and not node.is_fenced

    @property
    def is_ready(self) -> bool:
        """Whether the node answers for its partitions."""
        return self._is_joined and self.is_registered and self.lease.is_held and self._leaderships.is_settled

    def drain(self) -> None:
        """Ask for other leaders of this node's partitions."""
        self._state = NodeState.DRAINING
        self.look()

    @property
    def is_drained(self) -> bool:
        """Whether this node has nothing to give up, or nobody to give it to."""
        others = self.look_seen.nodes.values() if self.look_seen is not None else ()
        return not self._leaderships.count or not any(row.node_id != self.node_id and row.may_lead for row in others)

    def leave(self) -> None:
        """Give the lease back; the store does so before it closes."""
        self.lease.end()
        self.stop()
        if self._is_joined:
            renewal = Renewal(self.node_id, self.incarnation, self._catalog.version, NodeState.ENDED)
            self._store.look(renewal, lambda _: None)

    def stop(self) -> None:
        """React to nothing any more."""
        self._is_stopped = True
        if self._cancel is not None:
            self._cancel()

    def lose(self, reason: str) -> None:
        """Begin anew: another node may answer for this one's partitions now."""
        if not self._is_stopped:
            self.lease.end()
            self.stop()
            self.lost = reason
            _log.error("node.lost node=%d reason=%r", self.node_id, reason)
            self._outcome.on_lost(reason)

    def when_current(self, done: Callable[[], None]) -> None:
        """Call `done` when this node's view of the catalog has all that was committed before this call."""
        if self._catalog.is_led:
            done()
            return
        self._current.append((self._leaderships.looks + 1, done))
        self.look()

    # -- looks -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look at the rows now, or when the look that is under way has ended."""
        if self._is_stopped:
            return
        if self._is_looking:
            self._is_asked = True
            return
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._is_looking, self._is_asked = True, False
        self._leaderships.looks += 1
        number, sent_at = self._leaderships.looks, self._seconds()
        renewal = None
        if self._is_joined:
            renewal = Renewal(self.node_id, self.incarnation, self._catalog.version, self._state)
        self._store.look(renewal, lambda look: self._on_look(look, renewal, number, sent_at))

    def _on_look(self, look: Look | None, renewal: Renewal | None, number: int, sent_at: float) -> None:
        self._is_looking = False
        if self._is_stopped:
            return
        if look is not None:
            self.look_seen = look
            if renewal is not None:
                if not look.is_renewed:
                    self.lose(
                        f"the lease of node {self.node_id} was ended by another node, or its row is another process's"
                    )
                    return
                self.lease.renewed(sent_at)
            self._watch.see(look.nodes.values(), self._seconds())
            self._cluster.known_controller = look.catalog.leader_id
            self._act(look, number)
        self._wait_for_next()

    def _wait_for_next(self) -> None:
        if self._is_stopped or self._is_looking:
            return
        if self._is_asked:
            self.look()
        else:
            pause_ms = min(HANDOVER_MS, self._look_ms) if self._leaderships.waiting else self._look_ms
            self._cancel = self._call_later(pause_ms, self.look)

    def _act(self, look: Look, number: int) -> None:
        is_behind = look.catalog.next_offset > self._catalog.version
        if self._catalog.is_led:
            # A look that began before the claim has a lower epoch.
            if look.catalog.leader_epoch > self._catalog.leader_epoch:
                self.lose(f"node {look.catalog.leader_id} leads the catalog now")
                return
            self.controller.on_look(look.nodes)
        elif is_behind:
            self._follow(look.catalog.next_offset)
        elif not self._is_joined:
            self._join(look)
        else:
            self._stand_for_controller(look)
        if self.is_registered:
            self._leaderships.begin()
        self._leaderships.on_look(look.nodes, number)
        if not is_behind:
            self._tell_current(number)

    def _tell_current(self, number: int) -> None:
        """Call what waits for a view as of looks up to this one."""
        ready = [done for wanted, done in self._current if wanted <= number]
        self._current = [(wanted, done) for wanted, done in self._current if wanted > number]
        for done in ready:
            self._call_later(0, done)

    # -- joining -----------------------------------------------------------------------------------------------

    def _join(self, look: Look) -> None:
        """Take the row of this node, when no other process answers for it."""
        row = look.nodes.get(self.node_id)
        if row is not None and row.state is not NodeState.ENDED and row.incarnation != self.incarnation:
            first = self._first_seen = self._first_seen or row
            # One rise may be a late renewal of a process that is dead.
            is_alive = row.incarnation != first.incarnation or row.counter > first.counter + 1
            if is_alive and row.state is NodeState.LIVE:
                self._fail(
                    f"another process is node {self.node_id} of this store, and lives: give this one another --set node.id, "
                    "or stop the other one"
                )
                return
            if not self._watch.is_over(row) and not self._is_dead(row):
                return
        sent_at = self._seconds()
        renewal = Renewal(self.node_id, self.incarnation, self._catalog.version)
        self._store.join(renewal, self._registration(), row, lambda is_joined: self._on_join(is_joined, sent_at))

    def _on_join(self, is_joined: bool | None, sent_at: float) -> None:
        if is_joined and not self._is_stopped:
            self._is_joined = True
            self.lease.renewed(sent_at)
            _log.info("node.joined node=%d incarnation=%s", self.node_id, self.incarnation)
            self.look()

    # -- the catalog -------------------------------------------------------------------------------------------

    def _follow(self, up_to: int) -> None:
        if not self._is_following:
            self._read(up_to, lambda: self._on_followed(up_to))

    def _on_followed(self, up_to: int) -> None:
        if self._catalog.version < up_to:
            self._follow(up_to)
        else:
            # The other nodes wait until this one has published its view.
            self.look()

    def _read(self, up_to: int, then: Callable[[], None]) -> None:
        """Apply what the catalog's log has next, unless another read, begun before a claim, has done so meanwhile."""
        offset = self._catalog.version
        self._is_following = True

        def on_read(data: bytes) -> None:
            self._is_following = False
            if self._is_stopped or self._catalog.is_led:
                return
            if self._catalog.version != offset or self._take(data, up_to):
                then()

        self._store.read_catalog(offset, up_to, on_read)

    def _take(self, data: bytes, up_to: int) -> bool:
        """Apply what was read of the catalog; False if it cannot be read, so that this node can do nothing."""
        try:
            self._catalog.follow(data, up_to)
        except (ConfigError, CorruptError) as error:
            self._fail(f"the catalog cannot be read: {error}")
            return False
        return True

    def _fail(self, reason: str) -> None:
        self.lease.end()
        self.stop()
        self._outcome.on_refused(reason)

    def _stand_for_controller(self, look: Look) -> None:
        """Lead the catalog if nobody does."""
        leader = look.nodes.get(look.catalog.leader_id) if look.catalog.leader_id != self.node_id else None
        if self._is_claiming or self._state is not NodeState.LIVE or not self.lease.is_held:
            return
        if leader is not None and leader.state is not NodeState.ENDED:
            if self._watch.is_over(leader):
                self._is_claiming = True
                _log.warning("node.ends_lease_of_controller node=%d controller=%d", self.node_id, leader.node_id)
                self._store.end_lease(leader, lambda _: self._on_lease_ended())
            return
        self._is_claiming = True
        # If another node has claimed it since the look, its epoch is as high, and the claim takes no effect.
        claim = Claim(CATALOG, CATALOG_ID, look.catalog.leader_epoch + 1)
        self._store.claim(self.node_id, [claim], lambda logs: self._on_catalog_claimed(logs[0]))

    def _on_lease_ended(self) -> None:
        self._is_claiming = False
        self.look()

    def _on_catalog_claimed(self, log: Log | None) -> None:
        self._is_claiming = False
        if self._is_stopped or log is None:
            self.look()
            return
        self._lead_from(log)

    def _lead_from(self, log: Log) -> None:
        """Read what was appended before the claim, and lead."""
        if self._catalog.version < log.end_offset:
            self._read(log.end_offset, lambda: self._lead_from(log))
            return
        self._store.lead(log)
        self._catalog.lead(log)
        log.when_offline(lambda: self.lose("the catalog cannot be written any more"))
        self._cluster.known_controller = self.node_id
        self.controller.begin()
        self.look()
