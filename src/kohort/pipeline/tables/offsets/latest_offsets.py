"""The offset that a group stands at, per topic partition: what OffsetFetch answers."""

from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from kohort.pipeline.decode.schemas import COMMIT, DAMAGE, MARKER, OFFSET_COMMIT
from kohort.pipeline.tables.offsets.offset_commits import counting

KEY = ("log_partition", "group", "topic", "partition")
VALUE = ("tombstone", "offset", "leader_epoch", "metadata", "commit_timestamp_ms")
DAMAGE_COLUMNS = ("log_topic", "log_partition", "segment", "position", "size_bytes", "log_offset", "problem")
INPUT_COLUMNS = tuple(
    dict.fromkeys(("kind", *KEY, "log_offset", "producer_id", "transactional", "control", *VALUE, *DAMAGE_COLUMNS))
)
"""What `last_records` has to be given of `kind` offset_commit, marker and damage."""


def latest_offsets(commits: Any) -> Any:
    """
    The last commit that counts, unless a tombstone came later; `commits` as `offset_commits` returns them.

    Last is what has the greatest offset in the log, also for a transaction whose marker came after a plain commit. The
    order holds within one log partition; a group lives in exactly one.

    Source: Kafka OffsetMetadataManager.replayEndTransactionMarker (the pending record replaces an older one only).
    """
    return _standing(_by_key(counting(commits)).agg(fn.max_by(fn.struct(*VALUE), "log_offset").alias("last")))


def last_records(records: Any) -> Any:
    """
    What latest offsets are made of, in one pass over what was read, as few rows as there are keys: nothing else need be kept.

    Args:
        records: `INPUT_COLUMNS` of `__consumer_offsets`. Commits that a later one outside transactions replaced may be
            missing (option `compact` of the source).

    Returns:
        `KEY`, and in `last` the columns `VALUE` of the last commit that counts; or in `damage` the columns
        `DAMAGE_COLUMNS` of a row of that kind.
    """
    # One exchange serves the window and the groups: both are within a log partition.
    behind = Window.partitionBy("log_partition", "producer_id").orderBy(fn.col("log_offset").desc())
    # Running from the end backwards costs each row once; a frame that begins at each row would cost all that follow it.
    behind = behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marker = fn.last(fn.when(fn.col("kind") == MARKER, fn.col("control")), ignorenulls=True).over(behind)
    counts = (fn.col("kind") == OFFSET_COMMIT) & (~fn.col("transactional") | (fn.col("marker") == COMMIT))
    is_damage = fn.col("kind") == DAMAGE
    kept = records.repartition("log_partition").withColumn("marker", marker).where(counts | is_damage)
    damage = fn.when(is_damage, fn.struct(*DAMAGE_COLUMNS)).alias("damage")
    return _by_key(kept, damage).agg(fn.max_by(fn.when(~is_damage, fn.struct(*VALUE)), "log_offset").alias("last"))


def offsets_of(last: Any) -> Any:
    """The same as `latest_offsets`, out of `last_records`."""
    return _standing(last.where(fn.col("damage").isNull()))


def damage_of(last: Any) -> Any:
    """What could not be read, out of `last_records`; `DAMAGE_COLUMNS`."""
    return last.where(fn.col("damage").isNotNull()).select("damage.*")


def _by_key(rows: Any, *more: Any) -> Any:
    # Spark sorts rows by their grouping columns, and names of groups begin alike: a number in front decides nearly always.
    return rows.groupBy(fn.xxhash64("group", "topic", "partition").alias("hash"), *KEY, *more)


def _standing(last: Any) -> Any:
    return last.where(~fn.col("last.tombstone")).select(
        "group",
        "topic",
        "partition",
        "last.offset",
        "last.leader_epoch",
        "last.metadata",
        "last.commit_timestamp_ms",
    )
