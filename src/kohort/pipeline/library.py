"""
The tables as functions from frame to frame, for notebooks and jobs.

All take the frame of `spark.read.format("kohort").load(DIRECTORY)` or `read(spark, DIRECTORY)` (or a stored stream of its
rows), so one read serves them all. They are lazy. `as_of_ms` is an instant of the past: records written later are ignored.
`tables.contract` explains the columns, and the docstring of the function in `tables` its rules.
"""

from typing import TYPE_CHECKING, Any

_ENDS = "topic string, partition int, end_offset bigint"
_FOREVER_MS = (1 << 63) - 1

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from kohort.pipeline.tables.burrow.evaluator import Rules


def read(spark: "SparkSession", path: str, options: "Mapping[str, str] | None" = None) -> "DataFrame":
    """
    Return the rows of a source as a frame, planned now; see `sources.frames.planned`.

    `spark.read.format("kohort").options(...).load(path)` gives the same rows, but needs PySpark 4.0: this needs 3.5. The frame
    has the tables of the source as methods (`read(spark, path).lag()`), which need 4.0; see `front`.

    Args:
        path: the data directory of a broker, `kafka://HOST:PORT`, or a directory in a file system of Hadoop, see
            `sources.frames.hadoop`.
        options: the options of the source, see `sources.options`.

    Raises:
        ConfigError: an option is invalid, or the source cannot be read.
    """
    from kohort.pipeline.decode.storage import is_remote
    from kohort.pipeline.front import with_tables
    from kohort.pipeline.sources.frames.hadoop import frame_of_files
    from kohort.pipeline.sources.frames.planned import frame_of
    from kohort.pipeline.sources.live import is_live
    from kohort.pipeline.sources.options import SourceOptions
    from kohort.pipeline.sources.postgres.address import is_database

    asked = SourceOptions.parse({**(options or {}), "path": path})
    is_remote_directory = is_remote(asked.path) and not is_live(asked.path) and not is_database(asked.path)
    frame = frame_of_files(spark, asked) if is_remote_directory else frame_of(spark, asked)
    return with_tables(frame, spark, asked.path, options or {})


def explain(path: str, options: "Mapping[str, str] | None" = None) -> str:
    """
    Return what a read would come to: logs, size, tasks, kinds and columns. Arguments and errors as for `read`.

    `read(...).explain()` shows the first of it within Spark's plan. Spark does not let sources in Python add to it.
    """
    from kohort.pipeline.sources.explanation import explanation
    from kohort.pipeline.sources.options import SourceOptions
    from kohort.pipeline.sources.plan import tasks_of

    asked = SourceOptions.parse({**(options or {}), "path": path})
    return explanation(asked, tasks_of(asked))


def offsets_behind(progress: "StreamingQueryProgress") -> dict[str, float]:
    """Return how far a stream is behind, from `query.lastProgress`; see `sources.streams.progress`."""
    from kohort.pipeline.sources.streams.progress import offsets_behind

    return offsets_behind(progress)


def CommitOffsets(  # noqa: N802  (the name of a class of Spark's users)
    *,
    group: str,
    bootstrap_servers: str,
    query: str | None = None,
    checkpoint: str | None = None,
    options: "Mapping[str, str] | None" = None,
) -> Any:
    """
    Return a listener that commits the end offsets of each finished batch of a streaming query to a consumer group.

    `spark.streams.addListener(CommitOffsets(group="billing", bootstrap_servers="HOST:PORT"))`, before the query starts. It
    never fails or delays the query. Its `close()` waits for the last commit. See `checkpoints.listener`.

    Args:
        group: a group without members of its own; another one is refused, with a line in the log.
        query: the name of the query (`queryName`). By default it is the first one that starts.
        checkpoint: where the checkpoint of the query is, for the last batch before a restart. By default Spark is asked.
        options: how to connect, with the names of Kafka's clients: `kafka.security.protocol` and so on.

    Raises:
        ConfigError: an option is invalid.
    """
    from kohort.pipeline.checkpoints.listener import OffsetListener
    from kohort.pipeline.sources.options import connecting

    return OffsetListener(group, bootstrap_servers, connecting(options or {}), query=query, checkpoint=checkpoint)


def register(spark: "SparkSession") -> None:
    """
    Make `format("kohort")` known to a session. Spark finds it where Kohort is installed, but not in a file of `--py-files`.

    Raises:
        ConfigError: PySpark is older than 4.0, which has no sources in Python.
    """
    import pyspark

    from kohort.model.errors import ConfigError

    if not hasattr(spark, "dataSource"):
        raise ConfigError(
            f'spark.read.format("kohort") needs PySpark 4.0 or newer, and this is {pyspark.__version__}, which reads with'
            " kohort.pipeline.read(spark, PATH)"
        )
    from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource

    spark.dataSource.register(CoordinatorLogSource)


def decode_kv(frame: "DataFrame") -> "DataFrame":
    """Decode a frame of Spark's own Kafka connector; see `sources.frames.kafka_connector` for its limits."""
    from kohort.pipeline.sources.frames.kafka_connector import decode_kv

    return decode_kv(frame)


def offsets(records: "DataFrame", *, as_of_ms: int | None = None) -> "DataFrame":
    """Return the committed offsets of each group; see `tables.offsets.latest_offsets`."""
    from kohort.pipeline.tables.offsets.latest_offsets import latest_offsets

    return latest_offsets(commits(records, as_of_ms=as_of_ms))


def commits(records: "DataFrame", *, as_of_ms: int | None = None) -> "DataFrame":
    """Return every offset commit and tombstone with its fate; see `tables.offsets.offset_commits`."""
    from kohort.pipeline.tables.offsets.offset_commits import INPUT_COLUMNS, offset_commits

    return offset_commits(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def lag(latest: "DataFrame", batches: "DataFrame", *, at_ms: int, owned: "DataFrame | None" = None) -> "DataFrame":
    """
    Return the lag of each group, in records and in time; see `tables.lag`. The time is that of the headers of batches.

    Args:
        latest: the result of `offsets`, for the same instant.
        owned: the result of `assignments`, for the same instant: partitions that a member owns and its group has not committed
            have a row, too.
        batches: `kind` batch and segment of the topics that groups commit to, read with options `topics` and `kinds`. Without
            rows of kind segment, the lag of a log without a batch is null.
    """
    from kohort.pipeline.tables.lag.offset_lag import lag as behind
    from kohort.pipeline.tables.lag.time_lag import time_lag
    from kohort.pipeline.tables.offsets.uncommitted import with_uncommitted

    latest = latest if owned is None else with_uncommitted(latest, owned)
    return time_lag(behind(latest, _ends(batches, at_ms)), _until(_batches(batches), at_ms), at_ms=at_ms)


def rebalances(records: "DataFrame", *, as_of_ms: int | None = None) -> "DataFrame":
    """Return the changes of groups and their causes; see `tables.groups.rebalances`."""
    from kohort.pipeline.tables.groups.group_history import INPUT_COLUMNS
    from kohort.pipeline.tables.groups.rebalances import rebalances

    return rebalances(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def members(records: "DataFrame", *, as_of_ms: int | None = None) -> "DataFrame":
    """Return the intervals of memberships; see `tables.groups.memberships.member_intervals`."""
    from kohort.pipeline.tables.groups.group_history import INPUT_COLUMNS
    from kohort.pipeline.tables.groups.memberships import member_intervals

    return member_intervals(_until(records, as_of_ms).select(*INPUT_COLUMNS))


def assignments(records: "DataFrame", *, as_of_ms: int | None = None, names: "DataFrame | None" = None) -> "DataFrame":
    """
    Return the intervals of ownership; see `tables.groups.memberships.assignment_intervals`.

    Args:
        names: the result of `topic_names`, best with the source; by default those that the records tell.
    """
    from kohort.pipeline.tables import topic_names as table
    from kohort.pipeline.tables.groups.group_history import INPUT_COLUMNS
    from kohort.pipeline.tables.groups.memberships import assignment_intervals

    owned = assignment_intervals(_until(records, as_of_ms).select(*INPUT_COLUMNS))
    return table.named(owned, topic_names(records) if names is None else names)


def transactions(records: "DataFrame", *, as_of_ms: int | None = None) -> "DataFrame":
    """Return every transaction with its outcome; see `tables.transactions.transactions`."""
    from kohort.pipeline.tables.transactions import transactions as table

    return table.transactions(_until(records, as_of_ms).select(*table.INPUT_COLUMNS))


def open_transactions(records: "DataFrame", *, at_ms: int) -> "DataFrame":
    """Return the transactions that were not complete at an instant, one row per partition."""
    from kohort.pipeline.tables.transactions import transactions as table

    return table.open_transactions(transactions(records, as_of_ms=at_ms), at_ms=at_ms)


def rebalance_costs(found: "DataFrame", lag_series: "DataFrame") -> "DataFrame":
    """Add the lag that each rebalance cost, from `lag_history`; see `tables.groups.rebalances.rebalance_costs`."""
    from kohort.pipeline.tables.groups import rebalances as table

    return table.rebalance_costs(found, lag_series)


def lag_history(told: "DataFrame", batches: "DataFrame") -> "DataFrame":
    """
    Return the lag of every group after every event; see `tables.lag.lag_over_time`.

    Args:
        told: the result of `commits`.
        batches: as for `lag`.
    """
    from kohort.pipeline.tables.lag.lag_over_time import lag_over_time

    return lag_over_time(told, _batches(batches))


def time_lag_history(told: "DataFrame", batches: "DataFrame", *, at_ms: int) -> "DataFrame":
    """
    Return the time lag of every group over time; see `tables.lag.time_lag_over_time`.

    Args:
        told, batches: as for `lag_history`.
        at_ms: the instant of `told`; later batches are ignored.
    """
    from kohort.pipeline.tables.lag.time_lag_over_time import time_lag_over_time

    return time_lag_over_time(told, _until(_batches(batches), at_ms), at_ms=at_ms)


def statuses(told: "DataFrame", batches: "DataFrame", *, until_ms: int, rules: "Rules | None" = None) -> "DataFrame":
    """Return the history of Burrow statuses; see `tables.burrow.status.burrow_history`. Arguments as for `lag_history`."""
    from kohort.pipeline.tables.burrow.evaluator import BURROWS
    from kohort.pipeline.tables.burrow.status import burrow_history

    return burrow_history(told, _until(_batches(batches), until_ms), until_ms=until_ms, rules=rules or BURROWS)


def commit_frequency(told: "DataFrame") -> "DataFrame":
    """Return how often groups commit, from the result of `commits`; see `tables.offsets.commit_frequency`."""
    from kohort.pipeline.tables.offsets.commit_frequency import commit_frequency as frequency

    return frequency(told)


def topic_names(
    records: "DataFrame", source: str | None = None, options: "Mapping[str, str] | None" = None
) -> "DataFrame":
    """
    Return topic names by topic id; see `tables.topic_names`.

    Args:
        source: the path of the records. It names all existing topics; records name those of some commits and share groups.
        options: how to connect to a cluster (`kafka.*`).
    """
    from kohort.pipeline.sources.options import connecting
    from kohort.pipeline.sources.topic_ids import topic_ids
    from kohort.pipeline.tables import topic_names as table

    found = table.topic_names(records.select(*table.INPUT_COLUMNS))
    return found if source is None else table.with_known(found, topic_ids(source, connecting(options or {})))


def partition_flapping(owned: "DataFrame", there: "DataFrame | None" = None) -> "DataFrame":
    """
    Return how often partitions changed their owner; see `tables.groups.ownership`.

    Args:
        owned: the result of `assignments`.
        there: the result of `members`, to recognise static members under new member ids.
    """
    from kohort.pipeline.tables.groups.ownership import partition_flapping as flapping

    return flapping(owned, there)


def time_without_owner(owned: "DataFrame", *, at_ms: int) -> "DataFrame":
    """Return when partitions had no owner, from the result of `assignments`; see `tables.groups.ownership`."""
    from kohort.pipeline.tables.groups.ownership import time_without_owner as without

    return without(owned, at_ms=at_ms)


def share_state(
    records: "DataFrame",
    batches: "DataFrame | None" = None,
    *,
    as_of_ms: int | None = None,
    names: "DataFrame | None" = None,
) -> "DataFrame":
    """
    Return the state and the lag of share groups; see `tables.shares.share_state`.

    Args:
        batches: as for `lag`, of the topics of share groups; without it `end_offset` and `lag` are null.
        names: as for `assignments`.
    """
    from kohort.pipeline.tables.shares import share_state as table
    from kohort.pipeline.tables.shares.share_history import INPUT_COLUMNS

    state = table.share_state(_until(records, as_of_ms).select(*INPUT_COLUMNS))
    ends = state.sparkSession.createDataFrame([], _ENDS) if batches is None else _ends(batches, as_of_ms)
    return table.share_lag(state, topic_names(records) if names is None else names, ends)


def transaction_statistics(found: "DataFrame") -> "DataFrame":
    """Return statistics per transactional id, from the result of `transactions`; see `tables.transactions.transactions`."""
    from kohort.pipeline.tables.transactions import transactions as table

    return table.transaction_statistics(found)


def blocking_transactions(batches: "DataFrame", found: "DataFrame", *, at_ms: int) -> "DataFrame":
    """
    Transactions that are open in the logs of topics, the hanging ones of KIP-664 among them; see
    `tables.blocking_transactions`.

    Args:
        batches: `kind` batch of all topics (option `topics` is `*`).
        found: as `transactions` returns them, as of `at_ms`.
    """
    from kohort.pipeline.tables.transactions import blocking_transactions as table

    past = _until(_batches(batches), at_ms)
    return table.blocking_transactions(past.select(*table.INPUT_COLUMNS), found, at_ms=at_ms)


def typed(frame: "DataFrame", table: str) -> "DataFrame":
    """
    Return a table with timestamps for instants (`commit_timestamp_ms` becomes `commit_timestamp`), and with comments.

    Args:
        table: its name, see docs/pipeline-columns.md.

    Raises:
        ConfigError: there is no such table.
    """
    from kohort.pipeline.jobs.publish import commented

    return commented(frame, table, is_typed=True)


def _batches(rows: Any) -> Any:
    """Return the rows of kind batch; all if the frame does not tell kinds."""
    _check_batch(rows)
    return rows.where("kind = 'batch'") if "kind" in rows.columns else rows


def _ends(rows: Any, at_ms: int | None) -> Any:
    """Return the log end offsets at an instant, from rows of kind batch, and of kind segment for logs without a batch."""
    from pyspark.sql import functions as fn

    from kohort.pipeline.tables.lag.offset_lag import end_offsets, ends_as_of

    found = ends_as_of(_batches(rows), at_ms=_FOREVER_MS if at_ms is None else at_ms)
    if "kind" not in rows.columns:
        return found
    place = ["log_topic", "log_partition"]
    empty = rows.where("kind = 'segment'").join(_batches(rows).select(*place).distinct(), place, "left_anti")
    return found.unionByName(end_offsets(empty.where(fn.col("timestamp_ms").isNull())))


def _until(records: Any, as_of_ms: int | None) -> Any:
    _check_batch(records)
    return records if as_of_ms is None else records.where(records["timestamp_ms"] <= as_of_ms)


def _check_batch(frame: Any) -> None:
    """
    Raises:
        ConfigError: the frame is a stream, whose end, which every table needs, is not known.
    """
    if getattr(frame, "isStreaming", False):
        from kohort.model.errors import ConfigError

        raise ConfigError(
            "a table needs all records, and this frame is a stream: give each batch with the stored ones to the table, by"
            " writeStream.foreachBatch, or let `kohort pipeline follow SOURCE --out DIR` keep the tables up to date"
            " (docs/pipeline.md, As a stream)"
        )
