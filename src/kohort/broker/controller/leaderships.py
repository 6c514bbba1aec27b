"""
The partitions that this node is to lead: it claims their logs, and waits until no other node answers for them.

A claim raises the leader epoch in the row of the log, so that nobody else writes to it. Others may still answer reads until
they have seen the change: each node publishes the offset of the catalog that it has applied, and this one waits until all have
passed the change that made it the leader, or their leases have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Topic
from kohort.model.errors import StorageError
from kohort.model.ids import TopicPartition
from kohort.model.image import ImageDelta
from kohort.runtime.ports import Defer
from kohort.storage.log import Log
from kohort.storage.shared import Claim, NodeRow, NodeState, SharedStore

_log = logging.getLogger("kohort.broker")

CLAIMS_MAX: Final = 500
"""Partitions that one statement claims."""


def _nothing() -> None:
    """Nobody waits."""


class _Held(msgspec.Struct):
    """
    A partition that this node is to lead.

    Attributes:
        version: of the catalog that all nodes have to have before this one answers.
        log: None until it is claimed.
        after_look: the number of the last look that began before the claim was done.
    """

    topic_id: UUID
    leader_epoch: int
    version: int
    log: Log | None = None
    after_look: int = 0


class Leaderships:
    """
    Args:
        on_led: called with topic and index when this node answers for a partition.
    """

    def __init__(
        self, node_id: int, store: SharedStore, catalog: Catalog, defer: Defer, on_led: Callable[[str, int], None]
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._catalog = catalog
        self._defer = defer
        self._on_led = on_led
        self._held: dict[TopicPartition, _Held] = {}
        self._claims: list[tuple[Claim, _Held]] = []
        self._waiting: set[TopicPartition] = set()
        """Claimed partitions that others may still answer for."""
        self._is_begun = False
        self.on_claimed: Callable[[], None] = _nothing
        """Called when partitions are claimed: a look may tell that no other node answers for them."""
        self.looks = 0
        """The number of looks that have begun."""
        catalog.watch(self._on_delta)

    @property
    def count(self) -> int:
        """The number of partitions that this node is to lead."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """The number of claimed partitions that wait for the other nodes."""
        return len(self._waiting)

    @property
    def is_settled(self) -> bool:
        """Whether this node answers for every partition that it is to lead and that can be claimed."""
        return not self._waiting and not self._claims and all(held.log is not None for held in self._held.values())

    def begin(self) -> None:
        """This node is registered: claim what the catalog gives it."""
        if not self._is_begun:
            self._is_begun = True
            for topic in self._catalog.topics():
                self._take(topic)

    def _on_delta(self, delta: ImageDelta) -> None:
        if not self._is_begun:
            return
        for deleted in delta.deleted:
            for index in range(deleted.partition_count):
                self._leave(TopicPartition(deleted.name, index))
        for changed in (*delta.created, *delta.changed):
            topic = self._catalog.topic(changed.name)
            if topic is not None:
                self._take(topic)

    def _take(self, topic: Topic) -> None:
        for index, state in enumerate(self._catalog.states(topic)):
            place = TopicPartition(topic.name, index)
            held = self._held.get(place)
            is_same = held is not None and (held.topic_id, held.leader_epoch) == (topic.topic_id, state.leader_epoch)
            if held is not None and not (is_same and state.leader == self._node_id):
                self._leave(place)
            if state.leader == self._node_id and not is_same:
                new = self._held[place] = _Held(topic.topic_id, state.leader_epoch, self._catalog.version)
                if not self._claims:
                    self._defer(self._claim)
                self._claims.append((Claim(place, topic.topic_id, state.leader_epoch), new))

    def _leave(self, place: TopicPartition) -> None:
        if self._held.pop(place, None) is not None:
            self._waiting.discard(place)
            self._store.leave(place)

    def _claim(self) -> None:
        claims, self._claims = self._claims, []
        claims = [(claim, held) for claim, held in claims if self._held.get(claim.topic_partition) is held]
        for first in range(0, len(claims), CLAIMS_MAX):
            part = claims[first : first + CLAIMS_MAX]
            self._store.claim(self._node_id, [claim for claim, _ in part], partial(self._on_claimed, part))

    def _on_claimed(self, claims: Iterable[tuple[Claim, _Held]], logs: Iterable[Log | None]) -> None:
        for (claim, held), log in zip(claims, logs, strict=True):
            place = claim.topic_partition
            if self._held.get(place) is not held:
                continue
            if log is None:
                # The catalog has moved on, which this node will see.
                _log.info("leadership.refused partition=%s leader_epoch=%d", place, claim.leader_epoch)
                del self._held[place]
                continue
            held.log, held.after_look = log, self.looks
            self._waiting.add(place)
        self.on_claimed()

    def on_look(self, rows: Mapping[int, NodeRow], number: int) -> None:
        """
        Answer for the partitions for which no other node does.

        Args:
            number: of the look that saw the rows.
        """
        if not self._waiting:
            return
        views = [row.view for row in rows.values() if row.node_id != self._node_id and row.state is not NodeState.ENDED]
        seen_by_all = min(views, default=None)
        for place in sorted(self._waiting):
            held = self._held[place]
            if number > held.after_look and (seen_by_all is None or seen_by_all >= held.version):
                self._waiting.discard(place)
                assert held.log is not None, "it was claimed"
                self._store.lead(held.log)
                try:
                    self._on_led(*place)
                except StorageError as error:
                    _log.warning("leadership.not_begun partition=%s error=%r", place, str(error))
