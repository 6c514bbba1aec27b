"""
The deletion of partitions in steps: a topic may have thousands of logs.

A log takes some ten microseconds of the event loop, and some more when it leaves the memory. Its directory is renamed between
two flushes, for which commits wait, so a step begins when the renames of the one before are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, Protocol

from kohort.broker.ports import CallLater
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogStore

_STEP: Final = 25
"""Logs that are deleted at once."""


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
        self._waiting: dict[str, dict[int, Deleted | None]] = {}
        """By topic and index; None for a partition that was not opened."""
        self._is_running = False

    def add(self, topic: str, count: int, opened: Mapping[int, Deleted]) -> None:
        """
        Delete the partitions of a topic, the first ones now. The steps are what takes time: this is some 50 ns a partition.

        Args:
            opened: those that were opened, by index.
        """
        unopened: dict[int, Deleted | None] = dict.fromkeys(range(count))
        # One that waits from an earlier topic of the name was not opened again.
        self._waiting[topic] = {**unopened, **opened, **self._waiting.get(topic, {})}
        if not self._is_running:
            self._step()

    def _step(self) -> None:
        places = ((topic, index) for topic, indexes in self._waiting.items() for index in indexes)
        for topic, index in list(islice(places, _STEP)):
            self.end(topic, index)
        self._is_running = bool(self._waiting)
        if self._is_running:
            self._store.after_deletions(self._later)

    def _later(self) -> None:
        self._call_later(0, self._step)

    def end(self, topic: str, index: int) -> None:
        """Delete a log now, if it waits: its topic was created again, and the partition is opened."""
        waiting = self._waiting.get(topic, {})
        if index in waiting:
            partition = waiting.pop(index)
            if not waiting:
                del self._waiting[topic]
            if partition is not None:
                partition.on_deleted()
            self._store.delete(TopicPartition(topic, index))

    def end_all(self) -> None:
        """Delete all logs that wait."""
        for topic, waiting in list(self._waiting.items()):
            for index in list(waiting):
                self.end(topic, index)
