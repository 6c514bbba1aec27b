"""
Transactions that are open in the logs of topics, and whether their coordinator knows them.

The coordinator's view (`transactions.open_transactions`) does not contain hanging transactions (KIP-664): batches of a
transaction that the coordinator has forgotten, or never knew, so that no marker will end it. This table reads the logs of
topics: a transaction is open in a partition from the first transactional batch of a producer that no marker of the producer
follows. `read_committed` readers stop before the earliest one.

Source: KIP-664; Kafka TransactionsCommand.FindHangingTransactionsCommand (a transaction is hanging if the coordinator does not
list the partition for it; open transactions are candidates after 15 minutes).
"""

from typing import Any

from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS
from kohort.pipeline.tables.incarnations import current

INPUT_COLUMNS = (
    "log_topic",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "producer_id",
    "producer_epoch",
    "transactional",
    "next_offset",
    "is_control",
)
"""Columns to read of `kind` batch, of all topics."""

LONG_MS = 15 * 60_000
"""Kafka's default `transaction.max.timeout.ms`, which its tool uses as the minimum age."""

ONGOING, LONG, HANGING, UNKNOWN = "ongoing", "long", "hanging", "unknown"


@over_frames
def blocking_transactions(
    batches: Any, found: Any, *, at_ms: int, long_ms: int = LONG_MS, is_whole: bool = True
) -> Any:
    """
    Return one row for every transaction that is open in a partition.

    `transactional_id` is null if the coordinator has none for the producer. `blocked_records` counts the offsets from the
    earliest open transaction of the partition to the end of the log, which `read_committed` readers do not get.

    `verdict` is `hanging` if the coordinator has no unfinished transaction of the producer with that partition, else `long`
    if it is older than `long_ms`, else `ongoing`. A transaction that completed after `at_ms` was unfinished then: a broker
    writes while its logs are read, and the markers of such a transaction may be missing in `batches`. One that began after
    `at_ms` may be missing in `found`, so it is not hanging. Where a log of a coordinator is missing, no transaction is hanging:
    the verdict of those that no coordinator has is `unknown`.

    Args:
        batches: `INPUT_COLUMNS`.
        found: as `transactions.transactions` returns them, as of `at_ms` or later.
        is_whole: `found` has the transactions of all coordinators.
    """
    place = ["log_topic", "log_partition"]
    known = current(batches)
    of_producer = [*place, "producer_id"]
    theirs = known.where(fn.col("producer_id") >= 0)
    markers = theirs.where("is_control").groupBy(*of_producer).agg(fn.max("log_offset").alias("marker_offset"))
    open_ = (
        theirs.where(fn.col("transactional") & ~fn.col("is_control"))
        .join(markers, on=of_producer, how="left")
        .where(fn.col("log_offset") > fn.coalesce("marker_offset", fn.lit(-1)))
        .groupBy(*of_producer)
        .agg(
            fn.max_by("producer_epoch", "log_offset").alias("producer_epoch"),
            fn.min("log_offset").alias("start_offset"),
            fn.min_by("timestamp_ms", "log_offset").alias("start_ms"),
            fn.max("timestamp_ms").alias("last_timestamp_ms"),
        )
    )
    ends = known.groupBy(*place).agg(fn.max("next_offset").alias("end_offset"))
    first = fn.min("start_offset").over(Window.partitionBy(*place))
    blocked = open_.join(ends, on=place, how="left").withColumn("blocked_records", fn.col("end_offset") - first)
    named = blocked.withColumnRenamed("log_topic", "topic").withColumnRenamed("log_partition", "partition")
    return _judged(named, found, at_ms, long_ms, HANGING if is_whole else UNKNOWN)


def _judged(open_: Any, found: Any, at_ms: int, long_ms: int, untracked: str) -> Any:
    of_producer = found.groupBy("producer_id").agg(
        fn.max_by("transactional_id", "last_log_offset").alias("transactional_id")
    )
    tracked = (
        found.where(~fn.col("state").startswith("Complete") | (fn.col("completed_at_ms") > at_ms))
        .withColumn("place", fn.explode("partitions"))
        .select("producer_id", "place.topic", "place.partition", fn.lit(True).alias("is_tracked"))
        .distinct()
    )
    duration_ms = fn.lit(at_ms).cast("bigint") - fn.col("start_ms")
    is_hanging = fn.col("is_tracked").isNull() & (fn.col("start_ms") <= at_ms)
    verdict = fn.when(is_hanging, untracked).when(duration_ms > long_ms, LONG).otherwise(ONGOING)
    return (
        open_.join(of_producer, on="producer_id", how="left")
        .join(tracked, on=["producer_id", "topic", "partition"], how="left")
        .withColumns({"duration_ms": duration_ms, "verdict": verdict})
        .select(*COLUMNS["blocking_transactions"])
    )
