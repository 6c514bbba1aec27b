"""The offset that a group stands at, per topic partition: what OffsetFetch answers."""

from typing import Any

from pyspark.sql import functions as fn

from kohort.pipeline.tables.offset_commits import counting


def latest_offsets(commits: Any) -> Any:
    """
    The last commit that counts, unless a tombstone came later; `commits` as `offset_commits` returns them.

    Last is what has the greatest offset in the log, also for a transaction whose marker came after a plain commit. The
    order holds within one log partition; a group lives in exactly one.

    Source: Kafka OffsetMetadataManager.replayEndTransactionMarker (the pending record replaces an older one only).
    """
    value = fn.struct("tombstone", "offset", "leader_epoch", "metadata", "commit_timestamp_ms")
    last = (
        counting(commits)
        .groupBy("log_partition", "group", "topic", "partition")
        .agg(fn.max_by(value, "log_offset").alias("last"))
    )
    return last.where(~fn.col("last.tombstone")).select(
        "group",
        "topic",
        "partition",
        "last.offset",
        "last.leader_epoch",
        "last.metadata",
        "last.commit_timestamp_ms",
    )
