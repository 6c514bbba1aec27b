"""
The tables as functions from frame to frame, for anyone's notebook or job.

All take what `spark.read.format("kohort").load(DIRECTORY)` gives (or a stream of batches that was written down somewhere), so
one read serves them all. Nothing runs before the frame that they return is used. `as_of_ms` asks for an instant of the past:
what was written later is left out. The columns of each are in the docstring of the function behind it.
"""

from typing import Any


def offsets(records: Any, *, as_of_ms: int | None = None) -> Any:
    """Where each group stands; see `tables.latest_offsets`."""
    from kohort.pipeline.tables.latest_offsets import latest_offsets

    return latest_offsets(commits(records, as_of_ms=as_of_ms))


def commits(records: Any, *, as_of_ms: int | None = None) -> Any:
    """Every offset commit and tombstone, and what became of it; see `tables.offset_commits`."""
    from kohort.pipeline.tables.offset_commits import INPUT_COLUMNS, offset_commits

    return offset_commits(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def lag(latest: Any, batches: Any, *, at_ms: int) -> Any:
    """
    How far each group is behind, in records and in time; see `tables.lag` and `tables.time_lag`.

    Args:
        latest: what `offsets` returned, for the same instant.
        batches: `kind` batch of the topics that groups commit to, read with options `topics` and `kinds`.
    """
    from kohort.pipeline.tables.as_of import ends_as_of
    from kohort.pipeline.tables.lag import lag as behind
    from kohort.pipeline.tables.time_lag import time_lag

    return time_lag(behind(latest, ends_as_of(batches, at_ms=at_ms)), batches, at_ms=at_ms)


def rebalances(records: Any) -> Any:
    """What happened to the membership of classic groups; see `tables.rebalances`."""
    from kohort.pipeline.tables import rebalances as table

    return table.rebalances(records.select(*table.INPUT_COLUMNS))


def members(records: Any, *, as_of_ms: int | None = None) -> Any:
    """Who was in which group, from when to when; see `tables.memberships.member_intervals`."""
    from kohort.pipeline.tables.memberships import INPUT_COLUMNS, member_intervals

    return member_intervals(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def assignments(records: Any, *, as_of_ms: int | None = None) -> Any:
    """Who owned which partition, from when to when; see `tables.memberships.assignment_intervals`."""
    from kohort.pipeline.tables.memberships import INPUT_COLUMNS, assignment_intervals

    return assignment_intervals(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def transactions(records: Any, *, as_of_ms: int | None = None) -> Any:
    """What became of every transaction; see `tables.transactions`."""
    from kohort.pipeline.tables import transactions as table

    return table.transactions(_until(records, as_of_ms).select(*table.INPUT_COLUMNS))


def open_transactions(records: Any, *, at_ms: int) -> Any:
    """Transactions that were not complete at an instant, and the partitions that they held back."""
    from kohort.pipeline.tables import transactions as table

    return table.open_transactions(transactions(records, as_of_ms=at_ms), at_ms=at_ms)


def _until(records: Any, as_of_ms: int | None) -> Any:
    return records if as_of_ms is None else records.where(records["timestamp_ms"] <= as_of_ms)
