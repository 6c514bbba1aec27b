"""
How steadily partitions were owned: how often the owner changed, and how long nobody was.

Both are told from the intervals of `memberships.assignment_intervals`, per partition of a group. Of classic groups the log
tells an assignment when a rebalance is over, so that a partition seems owned while the group rebalances. Partitions of
share groups have several owners at once: their owners coming and going is no flapping, but they can be without any. Of streams
groups active tasks are looked at alone: who has a copy of a task's state does not own it.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.tables.groups.memberships import ACTIVE, SHARE

_PARTITION = ("group", "group_type", "topic", "topic_id", "subtopology", "partition")
_FOREVER_MS = (1 << 63) - 1


def partition_flapping(assignments: Any, members: Any = None) -> Any:
    """
    Per partition (or task) of a group: `group`, `group_type`, `topic`, `topic_id`, `subtopology`, `partition`, `stays` (times
    that a member got it),
    `owners` (how many members had it), `moves` (stays that began with another member than the one before), `returns` (moves
    to a member that had had it before), `held_p50_ms` and `held_min_ms` (of the stays that are over; null where none is),
    `first_since_ms`.

    Args:
        assignments: as `memberships.assignment_intervals` returns them.
        members: as `memberships.member_intervals` returns them; with them a static member is the same one under a new id, so
            that restarting it moves nothing.
    """
    in_order = Window.partitionBy(*_PARTITION).orderBy("since_ms", "first_log_offset")
    of_member = Window.partitionBy(*_PARTITION, "owner").orderBy("since_ms", "first_log_offset")
    before = fn.lag("owner").over(in_order)
    has_moved = before.isNotNull() & (before != fn.col("owner"))
    return (
        _with_owner(_owned(assignments), members)
        .where(fn.col("group_type") != SHARE)
        .withColumn("has_moved", has_moved)
        .withColumn("was_here", fn.row_number().over(of_member) > 1)
        .withColumn("held_ms", fn.col("until_ms") - fn.col("since_ms"))
        .groupBy(*_PARTITION)
        .agg(
            fn.count("*").alias("stays"),
            fn.count_distinct("owner").alias("owners"),
            fn.count_if("has_moved").alias("moves"),
            fn.count_if(fn.col("has_moved") & fn.col("was_here")).alias("returns"),
            fn.percentile_approx("held_ms", 0.5).alias("held_p50_ms"),
            fn.min("held_ms").alias("held_min_ms"),
            fn.min("since_ms").alias("first_since_ms"),
        )
    )


def time_without_owner(assignments: Any, *, at_ms: int) -> Any:
    """
    One row for every time that a partition which a group has owned had no owner: `group`, `group_type`, `topic`,
    `topic_id`, `subtopology`, `partition`, `since_ms`, `until_ms` (null where it still has none), `unowned_ms` (until `at_ms`
    then).

    Args:
        assignments: as `memberships.assignment_intervals` returns them.
    """
    in_order = Window.partitionBy(*_PARTITION).orderBy("since_ms", "first_log_offset")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    until = fn.coalesce("until_ms", fn.lit(_FOREVER_MS))
    gaps = (
        _owned(assignments)
        .withColumn("owned_until_ms", fn.max(until).over(so_far))
        .withColumn("next_since_ms", fn.lead("since_ms").over(in_order))
        .where(fn.col("owned_until_ms") != _FOREVER_MS)
        .where(fn.coalesce(fn.col("next_since_ms") > fn.col("owned_until_ms"), fn.lit(True)))
    )
    end_ms = fn.coalesce("next_since_ms", fn.greatest(fn.lit(at_ms).cast("bigint"), fn.col("owned_until_ms")))
    return gaps.select(
        *_PARTITION,
        fn.col("owned_until_ms").alias("since_ms"),
        fn.col("next_since_ms").alias("until_ms"),
        (end_ms - fn.col("owned_until_ms")).alias("unowned_ms"),
    )


def _with_owner(stays: Any, members: Any) -> Any:
    """With `owner`: the instance id of a static member, else the id of the member."""
    if members is None:
        return stays.withColumn("owner", fn.col("member_id"))
    static = members.where(fn.col("instance_id").isNotNull()).select("group", "member_id", "instance_id").distinct()
    known = stays.join(static, on=["group", "member_id"], how="left")
    return known.withColumn("owner", fn.coalesce("instance_id", "member_id"))


def _owned(assignments: Any) -> Any:
    """Without the copies of tasks."""
    return assignments.where(fn.coalesce(fn.col("role") == ACTIVE, fn.lit(True)))
