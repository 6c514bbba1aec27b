"""
The deletion of partitions in steps: a topic may have thousands of logs.

A log takes some ten microseconds of the event loop, and some more when it leaves the memory. Its directory is renamed between
two flushes, for which commits wait, so a step begins when the renames of the one before are done.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol, TypeAlias

from kohort.broker.ports import CallLater
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogStore

_STEP: Final = 25
"""Logs that are deleted at once."""
Place: TypeAlias = tuple[str, int]
"""Topic and index."""


class Deleted(Protocol):
    """A partition of a deleted topic."""

    def on_deleted(self) -> None:
        """End the requests that wait for it."""


class Deletions:
    """
    The partitions of deleted topics whose logs are still in the store. Nobody finds them any more.

    Args:
        call_later: runs the next step.
    """

    def __init__(self, store: LogStore, call_later: CallLater) -> None:
        self._store = store
        self._call_later = call_later
        self._waiting: dict[Place, Deleted | None] = {}
        """None for a partition that was not opened."""
        self._is_running = False

    def add(self, place: Place, partition: Deleted | None) -> None:
        """Delete a partition with the next `go_on`. One that waits from an earlier topic of the name was not opened again."""
        self._waiting.setdefault(place, partition)

    def go_on(self) -> None:
        """Take the next step, unless a later turn takes it."""
        if not self._is_running:
            self._step()

    def _step(self) -> None:
        for place in list(islice(self._waiting, _STEP)):
            self.end(place)
        self._is_running = bool(self._waiting)
        if self._is_running:
            self._store.after_deletions(self._later)

    def _later(self) -> None:
        self._call_later(0, self._step)

    def end(self, place: Place) -> None:
        """Delete a log now, if it waits: its topic was created again, and the partition is opened."""
        if place in self._waiting:
            partition = self._waiting.pop(place)
            if partition is not None:
                partition.on_deleted()
            self._store.delete(TopicPartition(*place))

    def end_all(self) -> None:
        """Delete all logs that wait."""
        for place in list(self._waiting):
            self.end(place)
