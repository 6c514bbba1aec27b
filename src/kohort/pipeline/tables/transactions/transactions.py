"""
Every transaction with its outcome, from the records of `__transaction_state`.

The coordinator writes a record at each step of a transactional id: Empty (InitProducerId), Ongoing (each time partitions are
added), PrepareCommit or PrepareAbort, and CompleteCommit or CompleteAbort after all markers are written. A transaction is the
sequence between two Empty or Complete records. Compaction keeps the last record of a transactional id. Of an old transaction
only the
end may be left: it has `start_ms` but no partitions, and its epoch may be the bumped one. If damage hides the end of one
transaction and the start of the next, `start_ms` tells them apart.

Source: Kafka TransactionStateManager, TransactionCoordinator; KIP-98, KIP-890.
"""

from typing import Any

from kohort.pipeline.decode.schemas import TRANSACTION
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS

INPUT_COLUMNS = (
    "kind",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "tombstone",
    "transactional_id",
    "transaction",
)
"""Columns to read of `kind` transaction."""

COMMITTED = "committed"
ABORTED = "aborted"
OPEN = "open"

BY_CLIENT = "client"
BY_TIMEOUT = "timeout"
BY_FENCE = "fence"

_EPOCH_BUMPED_BY_CLIENT = 2
"""From this transaction version on every transaction bumps the epoch, so a bump does not indicate fencing."""


@over_frames
def transactions(records: Any) -> Any:
    """
    Return one row for every transaction.

    `producer_id` and `producer_epoch` are those of its writes, also if its end was the last epoch of the producer id. The
    epoch is null if the log has only such an end, or the end of an abort, which may have been a fence. `outcome` is the
    decision, also before the markers are written; null, like `state`, if damage hides it. `ended_by` is `timeout` if it was
    aborted after its timeout, `fence` if its epoch was bumped to abort it, else `client`; null if the log does not tell: with
    transaction version 2 an abort by the client bumps the epoch, too.

    Args:
        records: `INPUT_COLUMNS`.
    """
    steps = _numbered(records).where(~fn.col("is_empty"))
    grouped = steps.groupBy("log_partition", "transactional_id", "number").agg(*_aggregates())
    grouped = grouped.withColumn("state", _ended_state())
    known = grouped.withColumn("outcome", _outcome()).withColumn("producer_epoch", _wrote_with())
    took = {
        "ended_by": _ended_by(),
        "duration_ms": fn.col("completed_at_ms") - fn.col("start_ms"),
        "markers_ms": fn.col("completed_at_ms") - fn.col("prepared_at_ms"),
    }
    return known.withColumns(took).select(*COLUMNS["transactions"])


def _numbered(records: Any) -> Any:
    """Number the transactions of each transactional id, and add the number to every step."""
    in_order = Window.partitionBy("log_partition", "transactional_id").orderBy("log_offset")
    state = fn.col("transaction.state")
    is_empty = fn.col("tombstone") | fn.coalesce(state.isin("Empty", "Dead"), fn.lit(False))
    is_end = is_empty | fn.coalesce(state.startswith("Complete"), fn.lit(False))
    start_ms, previous_ms = fn.col("transaction.start_ms"), fn.lag("transaction.start_ms").over(in_order)
    is_other = (start_ms >= 0) & (previous_ms >= 0) & (start_ms != previous_ms)
    follows_end = fn.coalesce(fn.lag("is_end").over(in_order), fn.lit(False))
    begins = is_empty | follows_end | fn.coalesce(is_other, fn.lit(False))
    whole = Window.partitionBy("log_partition", "transactional_id")
    return (
        records.where(fn.col("kind") == TRANSACTION)
        .withColumn("is_empty", is_empty)
        .withColumn("is_end", is_end)
        .withColumn("begins", begins.cast("int"))
        .withColumn("number", fn.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("last_number", fn.max("number").over(whole))
        .select(
            *("log_partition", "log_offset", "timestamp_ms", "transactional_id"),
            *("is_empty", "number", "last_number", "transaction.*"),
        )
    )


def _aggregates() -> list[Any]:
    is_complete, is_prepare = fn.col("state").startswith("Complete"), fn.col("state").startswith("Prepare")
    is_ongoing = fn.col("state") == "Ongoing"
    has_previous = is_complete & (fn.col("previous_producer_id") >= 0)
    wrote_as = fn.when(has_previous, fn.col("previous_producer_id")).otherwise(fn.col("producer_id"))
    return [
        fn.min_by(wrote_as, "log_offset").alias("producer_id"),
        fn.min_by(fn.when(is_ongoing, fn.col("producer_epoch")), "log_offset").alias("producer_epoch"),
        fn.max(fn.when(is_prepare, fn.col("producer_epoch"))).alias("end_epoch"),
        fn.max(fn.when(is_complete, fn.col("producer_epoch"))).alias("complete_epoch"),
        fn.max_by("client_transaction_version", "log_offset").alias("transaction_version"),
        fn.max_by("timeout_ms", "log_offset").alias("timeout_ms"),
        # Completed records have none; before, partitions are only added.
        fn.max_by("partitions", fn.when(~is_complete, fn.col("log_offset"))).alias("partitions"),
        fn.min(fn.when(fn.col("start_ms") >= 0, fn.col("start_ms"))).alias("start_ms"),
        fn.min(fn.when(is_prepare, fn.col("last_update_ms"))).alias("prepared_at_ms"),
        fn.max(fn.when(is_complete, fn.col("timestamp_ms"))).alias("completed_at_ms"),
        fn.max_by("state", "log_offset").alias("state"),
        (fn.max("number") == fn.max("last_number")).alias("is_last"),
        fn.min("log_offset").alias("first_log_offset"),
        fn.max("log_offset").alias("last_log_offset"),
    ]


def _wrote_with() -> Any:
    """Return the epoch of the batches; derived from the end of the transaction if compaction removed its start."""
    ended = fn.coalesce("end_epoch", "complete_epoch")
    is_bumped = fn.col("transaction_version") >= _EPOCH_BUMPED_BY_CLIENT
    from_end = fn.when(is_bumped & (ended > 0), (ended - 1).cast("smallint"))
    return fn.coalesce("producer_epoch", from_end.when(~is_bumped & (fn.col("outcome") == COMMITTED), ended))


def _ended_state() -> Any:
    """
    Return the state of a transaction. If its transactional id continued, a prepared transaction has completed, because Kafka
    starts no other before. Null if it may have been committed or aborted.
    """
    state = fn.col("state")
    ended = fn.when(state.startswith("Prepare"), fn.concat(fn.lit("Complete"), fn.substring(state, 8, 6)))
    return fn.when(fn.col("is_last") | state.startswith("Complete"), state).otherwise(ended)


def _outcome() -> Any:
    return (
        fn.when(fn.col("state").endswith("Commit"), COMMITTED)
        .when(fn.col("state") == "Ongoing", OPEN)
        .when(fn.col("state").isNull(), None)
        .otherwise(ABORTED)
    )


def _ended_by() -> Any:
    is_late = fn.col("prepared_at_ms") - fn.col("start_ms") > fn.col("timeout_ms")
    is_raised = fn.col("end_epoch") > fn.col("producer_epoch")
    is_old = fn.col("transaction_version") < _EPOCH_BUMPED_BY_CLIENT
    return (
        fn.when(fn.col("outcome") == COMMITTED, BY_CLIENT)
        .when(fn.col("outcome") == OPEN, None)
        .when(is_raised & is_late, BY_TIMEOUT)
        .when(is_old & is_raised, BY_FENCE)
        .when(is_old & ~is_raised, BY_CLIENT)
    )


@over_frames
def open_transactions(found: Any, *, at_ms: int) -> Any:
    """
    Return the transactions that are not complete, one row for each of their partitions. `read_committed` consumers cannot read
    past the first record of an open transaction.

    Args:
        found: as `transactions` returns them; those that began after `at_ms` are ignored.
    """
    age_ms = fn.lit(at_ms).cast("bigint") - fn.col("start_ms")
    has_begun = fn.col("start_ms").isNull() | (fn.col("start_ms") <= at_ms)
    is_overdue = age_ms > fn.col("timeout_ms")
    return (
        found.where(fn.col("completed_at_ms").isNull() & ~fn.col("state").startswith("Complete") & has_begun)
        .withColumn("place", fn.explode_outer("partitions"))
        .select("*", "place.*", age_ms.alias("age_ms"), is_overdue.alias("is_overdue"))
        .select(*COLUMNS["open_transactions"])
    )


@over_frames
def transaction_statistics(found: Any) -> Any:
    """
    Return one row per transactional id. `abort_rate` is null if no transaction has ended.

    Args:
        found: as `transactions` returns them.
    """
    ended = _count(fn.col("outcome") != OPEN)
    aborted = _count(fn.col("outcome") == ABORTED)
    return found.groupBy("transactional_id").agg(
        fn.count("*").alias("transactions"),
        _count(fn.col("outcome") == COMMITTED).alias("committed"),
        aborted.alias("aborted"),
        _count(fn.col("outcome") == OPEN).alias("open"),
        _count(fn.col("ended_by") == BY_TIMEOUT).alias("timed_out"),
        _count(fn.col("ended_by") == BY_FENCE).alias("fenced"),
        fn.when(ended > 0, aborted / ended).alias("abort_rate"),
        fn.percentile_approx("duration_ms", 0.5).alias("duration_p50_ms"),
        fn.percentile_approx("duration_ms", 0.95).alias("duration_p95_ms"),
        fn.percentile_approx("duration_ms", 0.99).alias("duration_p99_ms"),
        fn.max("duration_ms").alias("duration_max_ms"),
        fn.count_distinct("producer_id").alias("producer_ids"),
    )


def _count(condition: Any) -> Any:
    return fn.count(fn.when(condition, fn.lit(1)))
