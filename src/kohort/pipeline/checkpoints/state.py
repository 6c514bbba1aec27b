"""
The state of a query, told from its checkpoint and its lag: a query that stopped is told apart from one that waits for data.

A running query plans its next batch as soon as records are there, or with the next interval of its trigger. So, if records have
waited for much longer than the longest time between two of its last batches and no batch was planned, it stopped. A batch that
was planned and takes much longer than any of the last ones hangs, or the query was killed in it: that looks the same.

Plain functions, without an engine.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kohort.pipeline.checkpoints.checkpoint import Checkpoint
from kohort.pipeline.report.formatting import duration

GROUP_TYPE: Final = "spark query"

RUNNING: Final = "running"
WAITING: Final = "waiting for data"
STOPPED: Final = "stopped"
STUCK: Final = "stuck in a batch"
UNKNOWN: Final = "unknown"

STATE_NUMBERS: Final = {RUNNING: 0, WAITING: 1, STOPPED: 2, STUCK: 3, UNKNOWN: 4}
"""Numbers of states in metrics."""
STANDING: Final = frozenset({STOPPED, STUCK})
"""States in which the lag does not shrink by itself."""
PATIENCE: Final = 3
"""The factor of the longest of the last batches, or of the times between them, a query may take."""
PATIENCE_MS: Final = 60_000
FIRST_BATCH_MS: Final = 600_000
"""The time that the first batch may take: it has no other to compare with, and often a backlog."""


class QueryState(NamedTuple):
    """A state, and its reason in words."""

    name: str
    why: str = ""


def state_of(checkpoint: Checkpoint, rows: Iterable[Mapping[str, Any]], at_ms: int) -> QueryState:
    """
    Return the state of a query.

    Args:
        rows: those of the query in table `time_lag`.
        at_ms: the instant of the table.
    """
    if checkpoint.open_batch is not None:
        return _in_batch(checkpoint, at_ms)
    listed = list(rows)
    unread = [row["next_produced_at_ms"] for row in listed if row["next_produced_at_ms"] is not None]
    if not unread:
        if any(row["lag"] is None for row in listed) or not listed:
            return QueryState(UNKNOWN, "the logs of its topics are not here" if listed else "it has no position yet")
        return QueryState(WAITING, "everything was read")
    # A record that came before the last batch finished waits since then.
    waited_ms = at_ms - max(min(unread), checkpoint.finished_ms or 0)
    pauses = [later - one for one, later in zip(checkpoint.began_ms, checkpoint.began_ms[1:], strict=False)]
    if waited_ms <= max(PATIENCE * max(pauses, default=0), PATIENCE_MS):
        return QueryState(RUNNING)
    longest = f"; the longest time between two batches was {duration(max(pauses))}" if pauses else ""
    return QueryState(STOPPED, f"records have waited for {duration(waited_ms)} and no batch began{longest}")


def _in_batch(checkpoint: Checkpoint, at_ms: int) -> QueryState:
    number, since_ms = checkpoint.open_batch, checkpoint.open_since_ms
    if since_ms is None:
        return QueryState(UNKNOWN, f"batch {number} has begun, and its plan is damaged")
    age_ms, longest_ms = at_ms - since_ms, max(checkpoint.took_ms, default=None)
    patience_ms = FIRST_BATCH_MS if longest_ms is None else max(PATIENCE * longest_ms, PATIENCE_MS)
    if age_ms <= patience_ms:
        return QueryState(RUNNING, f"batch {number} has run for {duration(max(age_ms, 0))}")
    compared = "" if longest_ms is None else f", and the longest of the last took {duration(longest_ms)}"
    return QueryState(
        STUCK, f"batch {number} began {duration(age_ms)} ago{compared}: it hangs, or the query ended in it"
    )
