"""Committed offsets of groups, per topic partition: the answers of OffsetFetch."""

from typing import Any

from kohort.pipeline.decode.schemas import DAMAGE, MARKER, OFFSET_COMMIT
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS
from kohort.pipeline.tables.offsets.offset_commits import counting, is_commit_marker

KEY = ("log_partition", "group", "topic", "partition")
VALUE = ("tombstone", "offset", "leader_epoch", "metadata", "commit_timestamp_ms")
DAMAGE_COLUMNS = ("log_topic", "log_partition", "segment", "position", "size_bytes", "log_offset", "problem")
COMMIT_COLUMNS = ("kind", *KEY, "log_offset", "producer_id", "transactional", "control", *VALUE)
"""Columns to read of `kind` offset_commit and marker for `last_commits`."""
INPUT_COLUMNS = tuple(dict.fromkeys((*COMMIT_COLUMNS, *DAMAGE_COLUMNS)))
"""Columns to read of `kind` offset_commit, marker and damage for `last_records`."""


@over_frames
def latest_offsets(commits: Any) -> Any:
    """
    Select the last effective commit of each key, unless a tombstone follows it; `commits` as `offset_commits` returns them.

    The last commit is the one with the greatest log offset (`offset_commits.replaces`). All commits of a group are in one log
    partition.
    """
    return _standing(_by_key(counting(commits)).agg(fn.max_by(fn.struct(*VALUE), "log_offset").alias("last")))


@over_frames
def last_records(records: Any) -> Any:
    """
    Reduce records to one row per key, in one pass: all that `offsets_of` and `damage_of` need.

    Args:
        records: `INPUT_COLUMNS` of `__consumer_offsets`. Commits that a later plain commit replaced may be missing (option
            `compact` of the source).

    Returns:
        `KEY`, and either `last` (the columns `VALUE` of the last effective commit) or `damage` (`DAMAGE_COLUMNS`).
    """
    # One exchange serves the window and the groups: both are within a log partition.
    known = _with_markers(records.repartition("log_partition"))
    is_damage = fn.col("kind") == DAMAGE
    damage = fn.when(is_damage, fn.struct(*DAMAGE_COLUMNS)).alias("damage")
    last = fn.max_by(fn.when(~is_damage, fn.struct(*VALUE)), "log_offset").alias("last")
    return _by_key(known.where(_counts() | is_damage), damage).agg(last)


@over_frames
def last_commits(records: Any) -> Any:
    """
    Return `KEY` and `last` as `last_records` does, of records without damage.

    Args:
        records: `COMMIT_COLUMNS`.
    """
    last = fn.max_by(fn.struct(*VALUE), "log_offset").alias("last")
    return _with_markers(records).where(_counts()).groupBy(*KEY).agg(last)


def _with_markers(records: Any) -> Any:
    """Add the next marker of its producer to each row."""
    behind = Window.partitionBy("log_partition", "producer_id").orderBy(fn.col("log_offset").desc())
    # In descending order each row is visited once; a frame from each row to the end would be quadratic.
    behind = behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    marker = fn.last(fn.when(fn.col("kind") == MARKER, fn.col("control")), ignorenulls=True).over(behind)
    return records.withColumn("marker", marker)


def _counts() -> Any:
    """Tell whether a row is a commit that took effect."""
    return (fn.col("kind") == OFFSET_COMMIT) & (~fn.col("transactional") | is_commit_marker(fn.col("marker")))


@over_frames
def offsets_of(last: Any) -> Any:
    """Return the same as `latest_offsets`, from `last_records` or `last_commits`."""
    return _standing(last.where(fn.col("damage").isNull()) if "damage" in last.columns else last)


@over_frames
def damage_of(last: Any) -> Any:
    """Return the rows of kind damage, from `last_records`; `DAMAGE_COLUMNS`."""
    return last.where(fn.col("damage").isNotNull()).select("damage.*")


def _by_key(rows: Any, *more: Any) -> Any:
    # Spark sorts rows by the grouping columns, and group names share prefixes: a hash in front is cheaper to compare.
    return rows.groupBy(fn.xxhash64("group", "topic", "partition").alias("hash"), *KEY, *more)


def _standing(last: Any) -> Any:
    return last.where(~fn.col("last.tombstone")).select("*", "last.*").select(*COLUMNS["offsets"])
