"""State and lag of share groups, from the records of the share coordinator: what OffsetFetch is for consumer groups."""

from typing import Any

import pyarrow as pa

from kohort.pipeline.decode.schemas import COORDINATOR
from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.replayed import replayed
from kohort.pipeline.tables.shares.share_history import INPUT_COLUMNS, SNAPSHOT, UPDATE, ShareHistory

__all__ = ["INPUT_COLUMNS", "SCHEMA", "share_lag", "share_state"]

_BATCH = pa.struct(
    [
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("state", pa.string()),
        ("deliveries", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state_epoch", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("start_offset", pa.int64()),
        ("delivery_complete_count", pa.int32()),
        ("batches", pa.list_(_BATCH)),
        ("written_at_ms", pa.int64()),
    ]
)


@over_frames
def share_state(records: Any) -> Any:
    """
    Return one row for every partition of a share group that has a state.

    Columns: `group`, `topic_id`, `partition`, `state_epoch`, `leader_epoch`, `start_offset` (-1: nothing was read yet),
    `delivery_complete_count` (records from the start offset on whose delivery is complete; -1 if it was not written), `batches`
    (`first_offset`, `last_offset`, `state`, `deliveries`), `written_at_ms`.

    Args:
        records: `INPUT_COLUMNS`.
    """
    ours = records.where((fn.col("kind") == COORDINATOR) & fn.col("record_type").isin(SNAPSHOT, UPDATE))
    return replayed(
        ours.select(*INPUT_COLUMNS),
        keys=("log_partition", "group", "topic_id", "partition"),
        order=("log_offset",),
        start=_history,
        schema=SCHEMA,
    )


def _history(_: int, group: str, topic_id: str, partition: int) -> ShareHistory:
    return ShareHistory(group, topic_id, partition)


@over_frames
def share_lag(state: Any, names: Any, ends: Any) -> Any:
    """
    Add `topic`, `end_offset` and `lag` to `share_state`: records from the start offset on whose delivery is not complete. Both
    are null if there is no log of the partition, or no start offset yet.

    Source: KIP-1226 (share lag is end offset - start offset - delivery complete count).

    Args:
        names: as `topic_names.topic_names` returns them.
        ends: as `end_offsets` returns them.
    """
    done = fn.greatest(fn.col("delivery_complete_count"), fn.lit(0))
    behind = fn.col("end_offset") - fn.col("start_offset") - done
    is_known = fn.col("end_offset").isNotNull() & (fn.col("start_offset") >= 0)
    return (
        state.join(names, on="topic_id", how="left")
        .join(ends, on=["topic", "partition"], how="left")
        .select(
            "group",
            "topic",
            "topic_id",
            "partition",
            "start_offset",
            "end_offset",
            fn.when(is_known, fn.greatest(behind, fn.lit(0))).cast("bigint").alias("lag"),
            "delivery_complete_count",
            "batches",
            "state_epoch",
            "leader_epoch",
            "written_at_ms",
        )
    )
