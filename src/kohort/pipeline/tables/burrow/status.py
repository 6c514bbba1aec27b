"""Burrow statuses at any instant of the past: the window is filled from the logs, as if Burrow had been running then."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from kohort.pipeline.engines.dispatch import Window, fn, map_in_arrow, over_frames
from kohort.pipeline.tables.burrow.evaluator import BURROWS, PAUSES, Commit, Rules, evaluate, window
from kohort.pipeline.tables.burrow.history import BurrowHistory
from kohort.pipeline.tables.burrow.verdicts import is_rising
from kohort.pipeline.tables.contract import arrow_schema
from kohort.pipeline.tables.incarnations import last_end
from kohort.pipeline.tables.lag import lag_over_time
from kohort.pipeline.tables.offsets.offset_commits import commits_as_of
from kohort.pipeline.tables.replayed import replayed

_PARTITION = ("group", "topic", "partition")
_STATUS = arrow_schema("status")


@over_frames
def burrow_status(commits: Any, batches: Any, *, at_ms: int, rules: Rules = BURROWS) -> Any:
    """
    Return the status of every partition with a committed offset at `at_ms`.

    Unlike in Burrow, commits of aborted transactions do not count, and a tombstone clears the window: a partition whose offset
    was deleted or has expired is not listed. `is_rising` and `basis` are for `verdicts`: the latter is the status, in which a
    usual pause between commits is no STOP.

    Args:
        commits: as `offset_commits` returns them.
        batches: `BATCH_COLUMNS` of the topics that groups commit to, all appended up to `at_ms`.
    """
    events = lag_over_time.partition_lag(commits_as_of(commits, at_ms=at_ms), batches)
    windows = _windows(events, rules)
    joined = windows.join(_ring(batches, rules, at_ms), on=["topic", "partition"], how="left")

    def evaluate_rows(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            rows = [_evaluated(row, at_ms, rules) for row in part.to_pylist()]
            yield pa.RecordBatch.from_pylist([row for row in rows if row is not None], schema=_STATUS)

    return map_in_arrow(joined, evaluate_rows, _STATUS)


@over_frames
def burrow_history(commits: Any, batches: Any, *, until_ms: int, rules: Rules = BURROWS) -> Any:
    """
    Return every status of every partition up to `until_ms`. At every instant it equals `burrow_status`.

    `lag_max` is the greatest lag at the events in the interval.

    Args:
        commits, batches: as for `burrow_status`.
    """
    # Batches with a later timestamp count from the end on: the clock of their producer was ahead.
    there = batches.withColumn("timestamp_ms", fn.least("timestamp_ms", fn.lit(until_ms).cast("bigint")))
    events = lag_over_time.partition_lag(commits_as_of(commits, at_ms=until_ms), there)
    return replayed(
        events.select(*_PARTITION, "committed", "behind", *lag_over_time.order(events)),
        keys=_PARTITION,
        order=lag_over_time.order(events),
        start=partial(BurrowHistory, rules=rules, until_ms=until_ms),
        schema=arrow_schema("status_history"),
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
    """
    Collect the last commits of each partition since its last tombstone (all of them if close commits count as one), and the
    longest pause between the last `PAUSES` commits.
    """
    backwards = Window.partitionBy(*_PARTITION).orderBy(fn.desc("order"))
    committed = events.where(fn.col("committed").isNotNull())
    is_over = fn.max(fn.col("committed.offset").isNull()).over(backwards)
    # Burrow has no lag of a late commit.
    lag = fn.when(~fn.col("is_late"), fn.col("behind")).alias("lag")
    commit = fn.struct("order", fn.col("committed.offset").alias("offset"), "timestamp_ms", lag)
    live = committed.withColumn("is_over", is_over).where(~fn.col("is_over"))
    pause = fn.col("timestamp_ms") - fn.lead("timestamp_ms").over(backwards)
    live = live.withColumns({"place": fn.row_number().over(backwards), "pause_ms": pause})
    kept = commit if rules.distance_min_ms else fn.when(fn.col("place") <= rules.intervals, commit)
    return live.groupBy(*_PARTITION).agg(
        fn.sort_array(fn.collect_list(kept)).alias("window"),
        fn.max(fn.when(fn.col("place") < PAUSES, fn.col("pause_ms"))).alias("pause_ms"),
    )


def _evaluated(row: dict[str, Any], at_ms: int, rules: Rules) -> dict[str, Any] | None:
    """Return the row of a partition; None if all of its commits have expired."""
    kept = window((Commit(one["offset"], one["timestamp_ms"], one["lag"]) for one in row["window"]), rules)
    commits = [one for one in kept if at_ms - one.timestamp_ms <= rules.expire_ms]
    if not commits:
        return None
    lag = max((row["end_now"] or 0) - commits[-1].offset, 0)
    ends = [end for end in row["ends"] or () if end is not None]
    judged = partial(evaluate, commits, rules, current_lag=lag, now_ms=at_ms, ends=ends)
    return {
        **{name: row[name] for name in _PARTITION},
        "status": judged().name,
        "basis": judged(pause_ms=row["pause_ms"] or 0).name,
        "lag": lag,
        "commits": len(commits),
        "last_commit_ms": commits[-1].timestamp_ms,
        "is_rising": is_rising([one.lag for one in commits]),
    }
