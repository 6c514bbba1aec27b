"""State and lag of share groups, from the records of the share coordinator: what OffsetFetch is for consumer groups."""

from typing import Any

from kohort.pipeline.decode.schemas import COORDINATOR
from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS, arrow_schema
from kohort.pipeline.tables.replayed import replayed
from kohort.pipeline.tables.shares.share_history import INITIALISED, INPUT_COLUMNS, SNAPSHOT, UPDATE, ShareHistory

_ADDED = ("topic", "end_offset", "lag")
"""Columns of the table that `share_lag` adds."""
_PLACE = ("group", "topic_id", "partition")
_PARTITIONS = "array<struct<topicId:string,partitions:array<int>>>"


@over_frames
def share_state(records: Any) -> Any:
    """
    Return one row for every partition of a share group that has a state, with the columns of the table except `_ADDED`.

    Args:
        records: `share_history.INPUT_COLUMNS`.
    """
    ours = records.where((fn.col("kind") == COORDINATOR) & fn.col("record_type").isin(SNAPSHOT, UPDATE))
    return replayed(
        ours.select(*INPUT_COLUMNS),
        keys=("log_partition", "group", "topic_id", "partition"),
        order=("log_offset",),
        start=_history,
        schema=arrow_schema("share_state", without=_ADDED),
    )


def _history(_: int, group: str, topic_id: str, partition: int) -> ShareHistory:
    return ShareHistory(group, topic_id, partition)


@over_frames
def with_unknown(state: Any, records: Any) -> Any:
    """
    Add a row of nulls for each partition that a group has initialised and whose state is missing: a group coordinator knows it,
    and the log of the share coordinator is not there.

    Args:
        state: as `share_state` returns it.
        records: of group coordinators, with columns `kind`, `record_type`, `group`, `log_offset` and `value`.
    """
    ours = records.where((fn.col("kind") == COORDINATOR) & (fn.col("record_type") == INITIALISED))
    value = fn.max_by("value", "log_offset")
    known = ours.groupBy("group").agg(fn.from_json(value, f"struct<initializedTopics:{_PARTITIONS}>").alias("told"))
    topics = known.select("group", fn.explode("told.initializedTopics").alias("one"))
    places = topics.select(
        "group", fn.col("one.topicId").alias("topic_id"), fn.explode("one.partitions").alias("partition")
    )
    missing = places.join(state.select(*_PLACE), on=[*_PLACE], how="left_anti")
    return state.unionByName(missing, allowMissingColumns=True)


@over_frames
def share_lag(state: Any, names: Any, ends: Any) -> Any:
    """
    Add `topic`, `end_offset` and `lag` to `share_state`: records from the start offset on whose delivery is not complete. Both
    are null if there is no log of the partition, or no start offset yet: then `start_offset` is null, too, as in Kafka's Admin.
    Without the state (`with_unknown`) `state_epoch` is null, too.

    Source: KIP-1226 (share lag is end offset - start offset - delivery complete count).

    Args:
        names: as `topic_names.topic_names` returns them.
        ends: as `end_offsets` returns them.
    """
    done = fn.greatest(fn.col("delivery_complete_count"), fn.lit(0))
    behind = fn.col("end_offset") - fn.col("start_offset") - done
    is_known = fn.col("end_offset").isNotNull() & (fn.col("start_offset") >= 0)
    start_offset = fn.when(fn.col("start_offset") >= 0, fn.col("start_offset"))
    lag = fn.when(is_known, fn.greatest(behind, fn.lit(0))).cast("bigint")
    known = state.join(names, on="topic_id", how="left").join(ends, on=["topic", "partition"], how="left")
    return known.withColumns({"lag": lag, "start_offset": start_offset}).select(*COLUMNS["share_state"])
