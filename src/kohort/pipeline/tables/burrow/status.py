"""Burrow statuses at any instant of the past: the window is filled from the logs, as if Burrow had been running then."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from kohort.pipeline.engines.dispatch import Window, fn, map_in_arrow, over_frames
from kohort.pipeline.tables.burrow.evaluator import INTERVALS, Commit, Rules, evaluate, window
from kohort.pipeline.tables.burrow.history import BurrowHistory
from kohort.pipeline.tables.burrow.verdicts import is_rising
from kohort.pipeline.tables.incarnations import last_end
from kohort.pipeline.tables.lag import lag_over_time
from kohort.pipeline.tables.offsets import as_of
from kohort.pipeline.tables.replayed import replayed

_PARTITION = ("group", "topic", "partition")
_PLACE = [("group", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]
STATUS_SCHEMA = pa.schema(
    [
        *_PLACE,
        ("status", pa.string()),
        ("lag", pa.int64()),
        ("commits", pa.int32()),
        ("last_commit_ms", pa.int64()),
        ("is_rising", pa.bool_()),
    ]
)
HISTORY_SCHEMA = pa.schema(
    [*_PLACE, ("since_ms", pa.int64()), ("until_ms", pa.int64()), ("status", pa.string()), ("lag_max", pa.int64())]
)


@over_frames
def burrow_status(
    commits: Any,
    batches: Any,
    *,
    at_ms: int,
    intervals: int = INTERVALS,
    allowed_lag: int = 0,
    rules: Rules | None = None,
) -> Any:
    """
    Return the status of every partition with a committed offset at `at_ms`.

    Columns: `group`, `topic`, `partition`, `status`, `lag`, `commits` (in the window), `last_commit_ms`, `is_rising` (the
    low-water mark of the lag rises over the window, see `verdicts`). Unlike in Burrow, commits of aborted transactions do not
    count, and a tombstone clears the window: a partition whose offset was deleted or has expired is not listed.

    Args:
        commits: as `offset_commits` returns them.
        batches: `lag_over_time.INPUT_COLUMNS` of the topics that groups commit to.
        rules: all of Burrow's settings, instead of `intervals` and `allowed_lag`.
    """
    settings = rules or Rules(intervals=intervals, allowed_lag=allowed_lag)
    past = batches.where(fn.col("timestamp_ms") <= at_ms)
    events = lag_over_time.partition_lag(as_of.commits_as_of(commits, at_ms=at_ms), past)
    windows = _windows(events, settings)
    joined = windows.join(_ring(past, settings, at_ms), on=["topic", "partition"], how="left")

    def evaluate_rows(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            rows = [_evaluated(row, at_ms, settings) for row in part.to_pylist()]
            yield pa.RecordBatch.from_pylist([row for row in rows if row is not None], schema=STATUS_SCHEMA)

    return map_in_arrow(joined, evaluate_rows, STATUS_SCHEMA)


@over_frames
def burrow_history(commits: Any, batches: Any, *, until_ms: int, rules: Rules | None = None) -> Any:
    """
    Return every status of every partition up to `until_ms`. At every instant it equals `burrow_status`.

    Columns: `group`, `topic`, `partition`, `since_ms`, `until_ms` (null if it still holds), `status`, `lag_max` (the greatest
    lag at the events in the interval).

    Args:
        commits, batches: as for `burrow_status`.
    """
    past = batches.where(fn.col("timestamp_ms") <= until_ms)
    events = lag_over_time.partition_lag(as_of.commits_as_of(commits, at_ms=until_ms), past)
    return replayed(
        events.select(*_PARTITION, "committed", "behind", *lag_over_time.order(events)),
        keys=_PARTITION,
        order=lag_over_time.order(events),
        start=partial(BurrowHistory, rules=rules or Rules(), until_ms=until_ms),
        schema=HISTORY_SCHEMA,
    )


def _ring(batches: Any, rules: Rules, at_ms: int) -> Any:
    """Return the end of each log as `end_now`, and the polled `ends`; null before the log's first batch."""
    asked_ms = rules.asked_ms(at_ms)
    ends = [
        last_end(batches, "next_offset", where=fn.col("timestamp_ms") <= asked_ms - step * rules.refresh_ms)
        for step in range(rules.intervals)
    ]
    return (
        batches.where(fn.col("timestamp_ms") >= 0)
        .groupBy(fn.col("log_topic").alias("topic"), fn.col("log_partition").alias("partition"))
        .agg(last_end(batches, "next_offset").alias("end_now"), fn.array(*ends).alias("ends"))
    )


def _windows(events: Any, rules: Rules) -> Any:
    """Collect the last commits of each partition since its last tombstone; all of them if close commits count as one."""
    backwards = Window.partitionBy(*_PARTITION).orderBy(fn.desc("order"))
    committed = events.where(fn.col("committed").isNotNull())
    is_over = fn.max(fn.col("committed.offset").isNull()).over(backwards)
    # Burrow has no lag of a late commit.
    lag = fn.when(~fn.col("is_late"), fn.col("behind")).alias("lag")
    commit = fn.struct("order", fn.col("committed.offset").alias("offset"), "timestamp_ms", lag)
    live = committed.withColumn("is_over", is_over).where(~fn.col("is_over"))
    if not rules.distance_min_ms:
        live = live.withColumn("place", fn.row_number().over(backwards)).where(fn.col("place") <= rules.intervals)
    return live.groupBy(*_PARTITION).agg(fn.sort_array(fn.collect_list(commit)).alias("window"))


def _evaluated(row: dict[str, Any], at_ms: int, rules: Rules) -> dict[str, Any] | None:
    """Return the row of a partition; None if all of its commits have expired."""
    kept = window(
        (Commit(one["offset"], one["timestamp_ms"], one["lag"]) for one in row["window"]),
        intervals=rules.intervals,
        distance_min_ms=rules.distance_min_ms,
    )
    commits = [one for one in kept if at_ms - one.timestamp_ms <= rules.expire_ms]
    if not commits:
        return None
    lag = max((row["end_now"] or 0) - commits[-1].offset, 0)
    status = evaluate(
        commits,
        current_lag=lag,
        now_ms=at_ms,
        ends=[end for end in row["ends"] or () if end is not None],
        allowed_lag=rules.allowed_lag,
        complete_min=rules.complete_min,
        intervals=rules.intervals,
    )
    return {
        **{name: row[name] for name in _PARTITION},
        "status": status.name,
        "lag": lag,
        "commits": len(commits),
        "last_commit_ms": commits[-1].timestamp_ms,
        "is_rising": is_rising([one.lag for one in commits]),
    }
