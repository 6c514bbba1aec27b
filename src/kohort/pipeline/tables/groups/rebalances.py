"""
What happened to the membership of groups of every kind, and why, from the history of their records.

Of classic groups the coordinator writes a record when it creates a group (generation 0, nobody in it), when the leader's
SyncGroup brings the assignment of a new generation, when the last member has gone, when a static member is replaced by its
successor, and a tombstone when the group is deleted. Nothing is written when a rebalance begins, so

- `sync_ms` (from the end of the join phase to the assignment) is known: the record carries the time of the group's last
  change of state, which was the end of the join phase (value version 2 and later);
- `duration_ms` (the whole rebalance) is known for the first generation only, since the creation of the group was its begin.

Consumer, share and streams groups write a new epoch when a rebalance begins and the assignment of each member as it takes
it, so that both ends are known. A rebalance that the next one overtook, or that still goes on, has no `completed_at_ms`.

Who joined and left is the difference to the change before, null where compaction has taken that one. Whether a member left
by itself or was expelled for its silence the log does not tell.

Source: Kafka GroupMetadataManager (createGroup, classicGroupSync, updateStaticMemberThenRebalanceOrCompleteJoin),
ClassicGroup.currentStateTimestampOrDefault.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import COORDINATOR, GROUP_METADATA
from kohort.pipeline.tables.groups.group_history import (
    CREATED,
    DELETED,
    EMPTIED,
    REBALANCED,
    RECORD_TYPES,
    REPLACED,
    GroupHistory,
)
from kohort.pipeline.tables.replayed import replayed

__all__ = ["CREATED", "DELETED", "EMPTIED", "INPUT_COLUMNS", "REBALANCED", "REPLACED", "rebalance_costs", "rebalances"]

_MEMBERS = pa.list_(
    pa.struct([(name, pa.string()) for name in ("member_id", "instance_id", "client_id", "client_host")])
)
SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("group_type", pa.string()),
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("began_at_ms", pa.int64()),
        ("completed_at_ms", pa.int64()),
        ("event", pa.string()),
        ("generation", pa.int32()),
        ("protocol_type", pa.string()),
        ("protocol", pa.string()),
        ("leader", pa.string()),
        ("members", _MEMBERS),
        ("joined", _MEMBERS),
        ("left", _MEMBERS),
        ("fenced", _MEMBERS),
        ("changed", _MEMBERS),
        ("why", pa.list_(pa.string())),
        ("moved", pa.int32()),
        ("sync_ms", pa.int64()),
        ("duration_ms", pa.int64()),
    ]
)

INPUT_COLUMNS = (
    "kind",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "group",
    "tombstone",
    "protocol_type",
    "generation",
    "protocol",
    "leader",
    "state_timestamp_ms",
    "members",
    "record_type",
    "member_id",
    "value",
)
"""What has to be read of `kind` group_metadata and coordinator."""


def rebalances(records: Any) -> Any:
    """
    One row for every change of a group, with its `event` and `why`; members come without their bytes.

    `event` is `created`, `rebalanced`, `replaced` (a static member by its successor, without a rebalance), `emptied`,
    `converted` (from one kind of group into another) or `deleted`. `why` lists what led to it: `joined`, `left` (or was
    expelled), `fenced` (a static member by one of the same instance id), `subscription` (a member's), `metadata` (of the
    topics), `rejoined` (the same members, each with the subscription it had); null where the change before is not known.
    `fenced` members are among `left`, those who fenced them among `joined`. `moved` counts partitions (of streams groups:
    active tasks) that have another owner than before; a static member that comes back is the same owner.

    Args:
        records: `INPUT_COLUMNS`.
    """
    is_ours = (fn.col("kind") == GROUP_METADATA) | (
        (fn.col("kind") == COORDINATOR) & fn.col("record_type").isin(*RECORD_TYPES)
    )
    return replayed(
        records.where(is_ours).select(*INPUT_COLUMNS),
        keys=("log_partition", "group"),
        order=("log_offset",),
        start=_history,
        schema=SCHEMA,
    )


def _history(log_partition: int, group: str) -> GroupHistory:
    return GroupHistory(group, log_partition)


def rebalance_costs(found: Any, lag_series: Any) -> Any:
    """
    Rebalances with the lag that they cost: `lag_before` (of the group when it began, or as early as the log tells),
    `lag_after` (when it was over) and `lag_cost`, by how much it grew. Null where the group had committed nothing yet, and
    for what was not completed.

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
    # What changed the lag in the very millisecond comes first: nothing sorts before the side that is not named.
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
