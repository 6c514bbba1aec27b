"""
Stability of ownership: how often partitions changed their owner, and how long they had none.

Both come from the intervals of `memberships.assignment_intervals`, per partition of a group. Records of classic groups have the
assignment at the end of a rebalance, so a partition seems owned during the rebalance. Partitions of share groups have several
owners
at once: a change of owners is no flapping, but a partition can have none. For streams groups only active tasks count: a copy of
a task's state is no ownership.
"""

from typing import Any

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.groups.group_history import SHARE
from kohort.pipeline.tables.groups.memberships import ACTIVE

_PARTITION = ("group", "group_type", "topic", "topic_id", "subtopology", "partition")
_FOREVER_MS = (1 << 63) - 1


@over_frames
def partition_flapping(assignments: Any, members: Any = None) -> Any:
    """
    Return one row per partition (or task) of a group.

    `stays` counts intervals of ownership, `moves` those that began with another owner. `held_p50_ms` and `held_min_ms` are null
    if no interval is complete.

    Args:
        assignments: as `memberships.assignment_intervals` returns them.
        members: as `memberships.member_intervals` returns them. With them, a static member is the same owner under a new
            member id, so that a restart is no move.
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


@over_frames
def time_without_owner(assignments: Any, *, at_ms: int) -> Any:
    """
    Return one row for every interval in which a partition had no owner, after its first one. If it still has none, `unowned_ms`
    is the time until `at_ms`.

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
    """Add `owner`: the instance id of a static member, else the member id."""
    if members is None:
        return stays.withColumn("owner", fn.col("member_id"))
    static = members.where(fn.col("instance_id").isNotNull()).select("group", "member_id", "instance_id").distinct()
    known = stays.join(static, on=["group", "member_id"], how="left")
    return known.withColumn("owner", fn.coalesce("instance_id", "member_id"))


def _owned(assignments: Any) -> Any:
    """Remove the copies of tasks."""
    return assignments.where(fn.coalesce(fn.col("role") == ACTIVE, fn.lit(True)))
