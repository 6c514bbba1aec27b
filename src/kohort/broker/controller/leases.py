"""
Leases without wall clocks.

The holder counts from before it sent a renewal. Another node counts from when it last saw the counter change, which is later,
and adds a margin, which covers clocks of different speed. Both clocks go on while the machine sleeps (CLOCK_BOOTTIME).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias
from uuid import UUID

from kohort.storage.shared import NodeRow, NodeState

Seconds: TypeAlias = Callable[[], float]
"""A clock of seconds that never goes back."""

MARGIN: Final = 0.1
"""Part of the lease that another node waits on top of it."""
_GAP: Final = 0.5
"""Part of the wait: a time without a look after which the wait begins anew."""


class Lease:
    """
    The lease of this node.

    Args:
        seconds: the clock.
        duration_s: of the lease after the last renewal.
    """

    def __init__(self, seconds: Seconds, duration_s: float) -> None:
        self._seconds = seconds
        self.duration_s = duration_s
        self._ends_at: float | None = None

    def renewed(self, sent_at: float) -> None:
        """Take a renewal that took effect; `sent_at` is the time before it was sent."""
        ends_at = sent_at + self.duration_s
        if self._ends_at is None or ends_at > self._ends_at:
            self._ends_at = ends_at

    def end(self) -> None:
        """The lease is given back, or lost."""
        self._ends_at = None

    @property
    def is_held(self) -> bool:
        """Whether this node may answer now."""
        return self._ends_at is not None and self._seconds() < self._ends_at

    @property
    def left_s(self) -> float:
        """The seconds until the lease ends without a renewal; 0 if it is not held."""
        return 0.0 if self._ends_at is None else max(self._ends_at - self._seconds(), 0.0)


class LeaseWatch:
    """The leases of other nodes, as this one sees their rows."""

    def __init__(self, seconds: Seconds, duration_s: float) -> None:
        self._seconds = seconds
        self._wait_s = duration_s * (1 + MARGIN)
        self._seen: dict[int, tuple[UUID, int, float]] = {}
        """By node: its incarnation and counter, and when these were seen first."""
        self._looked_at = seconds()

    def see(self, rows: Iterable[NodeRow], looked_at: float) -> None:
        """
        Take the rows of a look.

        Args:
            looked_at: the time after the look. After a longer time without a look, for example because the database was away,
                all nodes are given time to renew their leases again.
        """
        if looked_at - self._looked_at > self._wait_s * _GAP:
            self._seen.clear()
        self._looked_at = looked_at
        seen: dict[int, tuple[UUID, int, float]] = {}
        for row in rows:
            last = self._seen.get(row.node_id)
            is_same = last is not None and last[:2] == (row.incarnation, row.counter)
            seen[row.node_id] = last if last is not None and is_same else (row.incarnation, row.counter, looked_at)
        self._seen = seen

    def is_over(self, row: NodeRow) -> bool:
        """Whether the lease of a row that was seen is over by this node's clock, or was ended."""
        if row.state is NodeState.ENDED:
            return True
        last = self._seen.get(row.node_id)
        if last is None or last[:2] != (row.incarnation, row.counter):
            return False
        return self._seconds() - last[2] > self._wait_s
