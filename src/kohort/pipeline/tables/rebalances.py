"""
What happened to the membership of classic groups, from the history of their GroupMetadata records.

The coordinator writes such a record when it creates a group (generation 0, nobody in it), when the leader's SyncGroup brings
the assignment of a new generation, when the last member has gone, when a static member is replaced by its successor, and a
tombstone when the group is deleted. Nothing is written when a rebalance begins, so

- `sync_ms` (from the end of the join phase to the assignment) is known: the record carries the time of the group's last
  change of state, which was the end of the join phase (value version 2 and later);
- `duration_ms` (the whole rebalance) is known for the first generation only, since the creation of the group was its begin;
- who joined and left is the difference to the record before, null where compaction has taken that one.

Source: Kafka GroupMetadataManager (createGroup, classicGroupSync, updateStaticMemberThenRebalanceOrCompleteJoin),
ClassicGroup.currentStateTimestampOrDefault.
"""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import GROUP_METADATA

CREATED = "created"
REBALANCED = "rebalanced"
EMPTIED = "emptied"
REPLACED = "replaced"
DELETED = "deleted"

_MEMBERS = "array<struct<member_id:string,instance_id:string,client_id:string,client_host:string>>"

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
)
"""What has to be read of `kind` group_metadata."""


def rebalances(records: Any) -> Any:
    """
    One row for every record of a classic group, with its `event`; `joined` and `left` are members without their bytes.

    Args:
        records: `INPUT_COLUMNS` of group metadata.
    """
    members = fn.transform("members", _brief)
    brief = records.where(fn.col("kind") == GROUP_METADATA).withColumn("members", members)
    return _compared(brief).select(
        "group",
        "log_partition",
        "log_offset",
        fn.col("timestamp_ms").alias("completed_at_ms"),
        _event().alias("event"),
        "generation",
        "protocol_type",
        "protocol",
        "leader",
        "members",
        _difference("members", "members_before").alias("joined"),
        _difference("members_before", "members").alias("left"),
        _sync_ms().alias("sync_ms"),
        _duration_ms().alias("duration_ms"),
    )


def _brief(member: Any) -> Any:
    return fn.struct(member.member_id, member.instance_id, member.client_id, member.client_host)


def _compared(records: Any) -> Any:
    """
    Each record beside the one before it of the same group. Nobody was in a group that was just created or deleted; null
    where the record before is lost.
    """
    in_order = Window.partitionBy("log_partition", "group").orderBy("log_offset")
    before = fn.lag(fn.struct("tombstone", "generation", "timestamp_ms", "members")).over(in_order)
    nobody = fn.filter("members", lambda _: fn.lit(False))
    is_first = fn.col("before").isNull() & (fn.col("generation") <= 1)
    members = fn.when(fn.col("tombstone"), fn.array().cast(_MEMBERS)).otherwise(fn.col("members"))
    return (
        records.withColumn("members", members)
        .withColumn("before", before)
        .withColumn("members_before", fn.when(is_first, nobody).otherwise(fn.col("before.members")))
    )


def _event() -> Any:
    return (
        fn.when(fn.col("tombstone"), DELETED)
        .when(fn.size("members") > 0, fn.when(_same_generation(), REPLACED).otherwise(REBALANCED))
        .when(fn.col("generation") == 0, CREATED)
        .otherwise(EMPTIED)
    )


def _same_generation() -> Any:
    return fn.coalesce(fn.col("generation") == fn.col("before.generation"), fn.lit(False))


def _difference(these: str, those: str) -> Any:
    """Members of `these` that are not in `those`, by member id; null when one of them is not known."""
    known = fn.transform(those, lambda member: member.member_id)
    return fn.when(
        fn.col(those).isNotNull(), fn.filter(these, lambda member: ~fn.array_contains(known, member.member_id))
    )


def _sync_ms() -> Any:
    is_known = (fn.col("state_timestamp_ms") >= 0) & (fn.col("state_timestamp_ms") <= fn.col("timestamp_ms"))
    return fn.when((_event() == REBALANCED) & is_known, fn.col("timestamp_ms") - fn.col("state_timestamp_ms"))


def _duration_ms() -> Any:
    begun_by_creation = (fn.col("before.generation") == 0) & ~fn.col("before.tombstone") & (fn.col("generation") == 1)
    return fn.when((_event() == REBALANCED) & begun_by_creation, fn.col("timestamp_ms") - fn.col("before.timestamp_ms"))
