"""
Changes of the membership of groups of every kind, and their causes, from the history of their records.

For a classic group the coordinator writes a record when it creates the group (generation 0, no members), when the leader's
SyncGroup brings the assignment of a new generation, when the last member left, when a static member is replaced, and a
tombstone when the group is deleted. It writes nothing when a rebalance starts. Therefore

- `sync_ms` (end of the join phase to the assignment) is known: the record carries the time of the group's last state change,
  which was the end of the join phase (value version 2 and later);
- `duration_ms` (the whole rebalance) is known for the first generation only, which starts with the creation of the group.

Consumer, share and streams groups write a new epoch when a rebalance starts, and the assignment of each member when it
takes effect, so both ends are known. Since Kafka 4.3 the target assignment has the time when it was computed, so the last
phase is known, too: `sync_ms` is the time from there to the end. Before it the group waited for the assignment, while its
members kept what they had, or took the assignment of the epoch before. A rebalance that is not complete, or was overtaken by a
newer assignment, has no `completed_at_ms`.

Joined and left members are the difference to the previous change; null if compaction removed that. The log does not tell
whether a member left or its session expired.

Source: Kafka GroupMetadataManager (createGroup, classicGroupSync, updateStaticMemberThenRebalanceOrCompleteJoin),
ClassicGroup.currentStateTimestampOrDefault.
"""

from typing import Any

from kohort.pipeline.decode.schemas import COORDINATOR, GROUP_METADATA
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import arrow_schema
from kohort.pipeline.tables.groups.group_history import INPUT_COLUMNS, REPLAYED, GroupHistory
from kohort.pipeline.tables.replayed import replayed


@over_frames
def rebalances(records: Any) -> Any:
    """
    Return one row for every change of a group, with its `event` and `why`. Members have no subscription or assignment.

    `event` is `created`, `rebalanced`, `replaced` (a static member by its successor, without a rebalance), `emptied`,
    `converted` (to another kind of group) or `deleted`. `why` lists the causes: `joined`, `left` (or expired), `fenced` (a
    static member by one with the same instance id), `subscription` (of a member), `metadata` (of the topics), `rejoined` (the
    same members with the same subscriptions); null if the previous change is unknown. `fenced` members are among `left`, their
    successors among `joined`. `moved` counts partitions (of streams groups: active tasks) whose owner changed; a static member
    that returns is the same owner.

    Args:
        records: `group_history.INPUT_COLUMNS`.
    """
    is_ours = (fn.col("kind") == GROUP_METADATA) | (
        (fn.col("kind") == COORDINATOR) & fn.col("record_type").isin(*REPLAYED)
    )
    return replayed(
        records.where(is_ours).select(*INPUT_COLUMNS),
        keys=("group", "log_partition"),
        order=("log_offset",),
        start=GroupHistory,
        schema=arrow_schema("rebalances"),
    )


@over_frames
def rebalance_costs(found: Any, lag_series: Any) -> Any:
    """
    Add the lag that each rebalance cost.

    Columns: `lag_before` (of the group at the start of the rebalance, or as early as the log tells), `lag_after` (at its end)
    and `lag_cost`, the growth. Null if the group had no commit yet, or the rebalance did not complete.

    Args:
        found: as `rebalances` returns them.
        lag_series: as `lag_over_time` returns it.
    """
    timed = found.withColumn(
        "begin_ms",
        fn.coalesce("began_at_ms", fn.col("completed_at_ms") - fn.coalesce("sync_ms", fn.lit(0))),
    )
    moments = [
        timed.select(
            "group", "log_offset", fn.lit(side).alias("side"), fn.col(column).alias("timestamp_ms"), _no_lag()
        ).where(fn.col("timestamp_ms").isNotNull())
        for side, column in (("before", "begin_ms"), ("after", "completed_at_ms"))
    ]
    points = lag_series.select(
        "group",
        fn.lit(None).cast("bigint").alias("log_offset"),
        fn.lit("").alias("side"),
        "timestamp_ms",
        "lag",
    )
    # Lag changes of the same millisecond come first: the empty side sorts before the others.
    in_order = Window.partitionBy("group").orderBy("timestamp_ms", "side")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = (
        points.unionByName(moments[0])
        .unionByName(moments[1])
        .withColumn("lag", fn.last("lag", ignorenulls=True).over(so_far))
        .where(fn.col("side") != "")
        .groupBy("group", "log_offset")
        .agg(
            fn.max(fn.when(fn.col("side") == "before", fn.col("lag"))).alias("lag_before"),
            fn.max(fn.when(fn.col("side") == "after", fn.col("lag"))).alias("lag_after"),
        )
    )
    return found.join(known, on=["group", "log_offset"], how="left").select(
        *found.columns,
        "lag_before",
        "lag_after",
        (fn.col("lag_after") - fn.col("lag_before")).alias("lag_cost"),
    )


def _no_lag() -> Any:
    return fn.lit(None).cast("bigint").alias("lag")
