"""Frames of one source, and the progress of reading it."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.pipeline.checkpoints.checkpoint import Checkpoint, Extent
from kohort.pipeline.checkpoints.named import Named
from kohort.pipeline.decode.schemas import (
    BATCH,
    COORDINATOR,
    DAMAGE,
    GROUP_METADATA,
    MARKER,
    OFFSET_COMMIT,
    SEGMENT,
    TRANSACTION,
    subset,
)
from kohort.pipeline.engines.dispatch import cores, is_local, kept
from kohort.pipeline.jobs.query_commits import QueryCommits
from kohort.pipeline.sources import progress
from kohort.pipeline.sources.extent import log_bytes, log_starts, places
from kohort.pipeline.sources.first_unread import can_find, find_unread
from kohort.pipeline.sources.instants import end_of_source, newest_reads
from kohort.pipeline.sources.live import is_live, list_logs
from kohort.pipeline.sources.options import PACK_BYTES, SourceOptions, connecting
from kohort.pipeline.sources.positions import TopicPartition, gaps, is_complete
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.topic_ids import topic_ids
from kohort.pipeline.sources.unwritten import unwritten
from kohort.pipeline.tables import topic_names
from kohort.pipeline.tables.groups import group_history
from kohort.pipeline.tables.incarnations import BATCH_COLUMNS
from kohort.pipeline.tables.lag import offset_lag
from kohort.pipeline.tables.offsets import latest_offsets, offset_commits
from kohort.pipeline.tables.shares import share_history, share_state
from kohort.pipeline.tables.transactions import blocking_transactions, transactions

_COMMIT_KINDS = (OFFSET_COMMIT, MARKER, DAMAGE)
SHORT_BYTES = 64 << 20
"""Below this size a run ends before the JVM's second compiler pays off."""
_BYTES_PER_SHUFFLE_PARTITION = 32 << 20
_TASKS_PER_CORE = 2
_TASK_BYTES_MIN = 4 << 20
_BEGINS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("begin_offset", pa.int64())])
_ENDS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("end_offset", pa.int64())])
_STARTS = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("start_offset", pa.int64()), ("has_batch", pa.bool_())]
)
_UNREAD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("next_produced_at_ms", pa.int64()),
        ("is_exact", pa.bool_()),
    ]
)
_DAMAGE = subset(latest_offsets.DAMAGE_COLUMNS)
LOOKUPS_MAX = 50_000
"""Committed offsets that are looked up one by one in the logs of topics; for more, all batch headers are read."""
_COMPACT_TASK_BYTES = 256 << 20
"""The size of a task that returns only the last commit of each key: a larger task returns fewer rows."""


def coordinator_log_bytes(
    directory: str | Path, topic: str = CONSUMER_OFFSETS, *, security: Security = PLAINTEXT
) -> int:
    """
    Return the size of a coordinator's log in a source; 0 for a running cluster.

    Raises:
        ConfigError: no such source, or no such log in it.
    """
    size_bytes = log_bytes(str(directory), {topic}, security=security)
    if is_live(str(directory)):
        # The size over the wire is unknown; the settings for small logs fit all but the largest.
        if size_bytes is None:
            raise ConfigError(f"{directory} has no topic {topic} yet")
        return 0
    if size_bytes is None:
        raise no_log(directory, topic)
    return size_bytes


def no_log(directory: str | Path, topic: str) -> ConfigError:
    """Return the error that a source has no log of a coordinator."""
    kind = "transaction" if topic == TRANSACTION_STATE else "group"
    if is_database(str(directory)):
        return ConfigError(f"{directory} holds no log of a {kind} coordinator; it appears with the first {kind}")
    return ConfigError(
        f"{directory} holds no log of a {kind} coordinator (no {topic}-0, -1, ...); name the data directory"
        f" itself, and note that the log appears with the first {kind}"
    )


def shuffle_partitions(log_bytes: int) -> int:
    """Return the number of shuffle partitions for a log of this size: one per 32 MiB, at most 200."""
    return max(1, min(200, -(-log_bytes // _BYTES_PER_SHUFFLE_PARTITION)))


def task_bytes(log_bytes: int, cores: int, *, bytes_max: int) -> int:
    """Return the size of a task, so that the cores share a log of this size evenly."""
    return max(_TASK_BYTES_MIN, min(bytes_max, -(-log_bytes // (cores * _TASKS_PER_CORE))))


LATEST_ONLY = ("offsets", "lag", "time_lag", "spark_queries")
"""Tables that need only the latest commit of each key, not the history."""
EXTENTS = {**dict.fromkeys(LATEST_ONLY, Extent.LAST), "spark_queries": Extent.TIMES, "status": Extent.RECENT}
"""The batches of Spark queries that a table needs; others need all. Burrow's rules need as many as `PAUSES`."""


class Reading:
    """
    Frames of one source.

    The coordinator's log is read once and kept, so that all tables are of the same instant while a broker keeps writing.
    Logs of topics are read after it, so that their ends are not older than the commits.
    """

    def __init__(
        self,
        spark: Any,
        directory: str | Path,
        *,
        group: str | None = None,
        as_of_ms: int | None = None,
        progress_directory: Path | None = None,
        is_latest_only: bool = False,
        connection: Mapping[str, str] | None = None,
        ends: str | None = None,
        checkpoints: Sequence[Named] = (),
        extent: Extent = Extent.ALL,
    ) -> None:
        """
        Args:
            group: only the rows of this group.
            as_of_ms: the instant of the tables; later records are ignored.
            progress_directory: where tasks write their progress, in a folder for each read.
            is_latest_only: skip commits that a later one replaced. Much faster, and sufficient for the latest offsets, their
                lag and the damage only.
            connection: how to connect to a cluster, as options of the source (`kafka.*`).
            ends: a running cluster (`kafka://HOST:PORT`), in whose logs the offsets of the source count; for the present only.
            checkpoints: of Spark queries, which are groups, too.
            extent: the batches of them that the tables need, for the present.

        Raises:
            ConfigError: the connection options are invalid.
        """
        self.directory = str(directory)
        self.groups: Collection[str] | None = None if group is None else (group,)
        self.as_of_ms = as_of_ms
        self.is_latest_only = is_latest_only
        self.connection = dict(connection or {})
        self.security = connecting(self.connection)
        self.logs_in = ends or self.directory
        self.planned_bytes = 0
        extent = extent if as_of_ms is None else Extent.ALL
        self.queries = QueryCommits(spark, checkpoints, extent, as_of_ms=as_of_ms)
        self._opened_ms = int(time.time() * 1000)
        self._spark = spark
        self._progress_directory = progress_directory
        self._notes: list[Path] = []
        self._batches: dict[tuple[str, ...], Any] = {}
        self._damage: dict[str, list[pa.RecordBatch]] = {}

    @cached_property
    def records(self) -> Any:
        """Offset commits, markers and damage of the coordinator's log."""
        columns = (*offset_commits.INPUT_COLUMNS, "topic_id")
        read = self._with_damage("records", _COMMIT_KINDS, columns, CONSUMER_OFFSETS)
        return self.queries.of_own_names(kept(self._of_group(self.queries.added_to(read))), self.directory)

    @cached_property
    def last_records(self) -> Any:
        """The last effective commit of each key, for Spark also the damage; see `latest_offsets.last_records`."""
        columns = latest_offsets.COMMIT_COLUMNS
        read = self._with_damage("last_records", _COMMIT_KINDS, columns, CONSUMER_OFFSETS)
        records = self._of_group(self.queries.added_to(read))
        reduced = latest_offsets.last_commits if is_local(self._spark) else latest_offsets.last_records
        return self.queries.of_own_names(kept(reduced(records)), self.directory)

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints of Spark queries."""
        return self.queries.checkpoints

    def frame(self, table: pa.Table) -> Any:
        """Return a table as a frame of the engine."""
        return self._spark.createDataFrame(table)

    @property
    def _last_of_all(self) -> Any:
        """The last effective commit of each key of all groups, of which only one may be asked for: the instant is the same."""
        if self.is_latest_only and self.groups is None:
            return self.last_records
        columns = latest_offsets.COMMIT_COLUMNS
        if self.groups is None:
            return latest_offsets.last_commits(self.records.select(*columns))
        records = self._load((OFFSET_COMMIT, MARKER), columns, [CONSUMER_OFFSETS], newest=False)
        return latest_offsets.last_commits(self.queries.added_to(records))

    @property
    def is_live(self) -> bool:
        """Whether the source is a running cluster."""
        return is_live(self.directory)

    @cached_property
    def at_ms(self) -> int:
        """
        The instant of the tables: the requested one; otherwise, for a running cluster, that before the first read by the clock
        of the reader, and for a directory or a store the end of its logs, see `sources.instants`.
        """
        if self.as_of_ms is not None:
            return self.as_of_ms
        if is_live(self.logs_in):
            return self._opened_ms
        latest = latest_offsets.offsets_of(self._last_of_all)
        columns = ("topic", "partition", "offset", "commit_timestamp_ms")
        # A path in an object store is not looked into, so its topics tell no time.
        commits = latest.select(*columns).collect() if can_find(self.directory) else ()
        written_ms = max((one.latest_ms for one in self.checkpoints), default=0)
        return end_of_source(self.directory, newest_reads(commits), written_ms)

    @cached_property
    def offset_commits(self) -> Any:
        """Offset commits with their fate."""
        return offset_commits.offset_commits(self.records)

    @cached_property
    def member_records(self) -> Any:
        """The records of members and assignments, and damage."""
        kinds = (GROUP_METADATA, COORDINATOR, DAMAGE)
        columns = group_history.INPUT_COLUMNS
        return kept(self._of_group(self._with_damage("member_records", kinds, columns, CONSUMER_OFFSETS)))

    @cached_property
    def topic_names(self) -> Any:
        """Topic names by topic id."""
        columns = topic_names.INPUT_COLUMNS
        # For the newest offsets the names of existing topics are enough.
        known = (self.member_records,) if self.is_latest_only else (self.records, self.member_records)
        named = [frame.select(*(name for name in columns if name in frame.columns)) for frame in known]
        told = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), named)
        found = topic_names.topic_names(told)
        # The source names existing topics, also for commits of old clients without ids; records name deleted topics.
        existing = topic_ids(self.directory, self.security)
        if self.logs_in != self.directory:
            existing |= topic_ids(self.logs_in, self.security)
        return kept(topic_names.with_known(found, existing))

    @cached_property
    def share_state(self) -> Any:
        """The state of share groups."""
        found = self._read([COORDINATOR], share_history.INPUT_COLUMNS, [SHARE_GROUP_STATE])
        state = share_state.share_state(self._of_group(found))
        return kept(share_state.with_unknown(state, self.member_records))

    @cached_property
    def all_batches(self) -> Any:
        """Every batch of every topic, for open transactions."""
        return self._read([BATCH], blocking_transactions.INPUT_COLUMNS, None)

    @cached_property
    def transactions(self) -> Any:
        """Every transaction in the transaction coordinator's log."""
        return kept(transactions.transactions(self.transaction_records.select(*transactions.INPUT_COLUMNS)))

    @cached_property
    def transaction_records(self) -> Any:
        """The records of the transaction coordinator's log, and damage."""
        columns, kinds = transactions.INPUT_COLUMNS, (TRANSACTION, DAMAGE)
        return kept(self._with_damage("transaction_records", kinds, columns, TRANSACTION_STATE))

    @cached_property
    def has_all_transactions(self) -> bool:
        """
        Whether the source has the logs of all transaction coordinators: those of a broker among several have gaps between their
        numbers.
        """
        return self.is_live or is_complete(number for topic, number in self.places if topic == TRANSACTION_STATE)

    @cached_property
    def places(self) -> Collection[TopicPartition]:
        """The logs that the source has; those of a running cluster are all there."""
        if self.is_live:
            return ()
        return places(self.directory) | {*self._unwritten}

    @cached_property
    def _unwritten(self) -> Collection[TopicPartition]:
        return () if self.is_live else unwritten(self.directory)

    def gaps(self, topic: str) -> list[TopicPartition]:
        """Return the logs of a topic that are missing below the one with the greatest number."""
        return [(topic, number) for number in gaps(number for name, number in self.places if name == topic)]

    @property
    def all_transactions(self) -> Any:
        """`transactions`, also if a subclass limits that to what has changed."""
        return self.transactions

    def has_group(self, group: str) -> bool:
        """Tell whether the coordinators' logs have a record of a group, up to the instant of the tables."""
        if any(one.group == group for one in self.checkpoints):
            return True
        kinds = (OFFSET_COMMIT, GROUP_METADATA, COORDINATOR)
        found = self._read(kinds, ("group", "timestamp_ms"), [CONSUMER_OFFSETS, SHARE_GROUP_STATE])
        return not found.where(found["group"] == group).isEmpty()

    def damage(self) -> Any:
        """Return the damage in the coordinator's log."""
        return self._damage_of("last_records" if self.is_latest_only else "records")

    def damage_met(self) -> Any:
        """Return the damage in what was read so far, without another read; `damage` if nothing was read."""
        read = [name for name in ("records", "member_records", "transaction_records") if name in self.__dict__]
        if self.is_latest_only or not read:
            return self.damage()
        # The same log was read for the first two.
        logs = [name for name in read if name != "member_records" or "records" not in read]
        first, *others = map(self._damage_of, logs)
        return reduce(lambda found, one: found.unionByName(one), others, first)

    def _damage_of(self, name: str) -> Any:
        """Return the damage that was met when the records of this name were read."""
        records = getattr(self, name)
        if is_local(records):
            records.store()
            return self._spark.createDataFrame(pa.Table.from_batches(self._damage[name], _DAMAGE))
        if name == "last_records":
            return latest_offsets.damage_of(records)
        return records.where(records["kind"] == DAMAGE).select(*latest_offsets.DAMAGE_COLUMNS)

    def _with_damage(self, name: str, kinds: Sequence[str], columns: Sequence[str], topic: str) -> Any:
        """
        Return the records of a topic, with damage as rows; the local engine keeps damage in `_damage`, because the columns of
        damage would take a third of the memory of its tables.
        """
        wide = list(dict.fromkeys((*columns, *latest_offsets.DAMAGE_COLUMNS)))
        if not is_local(self._spark):
            return self._read(kinds, wide, [topic])
        damage = self._damage[name] = []
        found = self._load(kinds, wide, [topic], newest=False)
        found = found.apart(DAMAGE, damage, columns=columns, columns_apart=latest_offsets.DAMAGE_COLUMNS)
        return self._in_time(found, columns)

    def end_offsets(self, topics: Collection[str]) -> Any:
        """Return the log end offsets of some topics."""
        if self.as_of_ms is not None:
            return self._with_unwritten(offset_lag.ends_as_of(self.batches(topics), at_ms=self.as_of_ms))
        if self.logs_in != self.directory:
            logs = list_logs(self.logs_in, topics=topics, security=self.security) if topics else ()
            rows = [{"topic": one.topic, "partition": one.partition, "end_offset": one.end} for one in logs]
            return self._spark.createDataFrame(pa.Table.from_pylist(rows, _ENDS))
        ends = offset_lag.end_offsets(self._read([SEGMENT], offset_lag.INPUT_COLUMNS, topics, newest=True))
        return self._with_unwritten(ends)

    def _with_unwritten(self, ends: Any) -> Any:
        """Add the logs of a Kohort broker that have no record yet, and so no directory."""
        if not self._unwritten:
            return ends
        rows = [{"topic": topic, "partition": number, "end_offset": 0} for topic, number in self._unwritten]
        return ends.unionByName(self._spark.createDataFrame(pa.Table.from_pylist(rows, _ENDS)))

    def unread(self, offsets: Any) -> tuple[Any, Any] | None:
        """
        Look up the first unread record of each committed offset, without reading the logs of topics.

        Returns:
            `starts` and `unread` as `time_lag.with_time_lag` takes them; None if all batches have to be read: for an instant of
            the past, logs in an object store, and too many offsets.
        """
        if self.as_of_ms is not None or not can_find(self.logs_in):
            return None
        places = offsets.select("topic", "partition", "offset").distinct().limit(LOOKUPS_MAX + 1).collect()
        if len(places) > LOOKUPS_MAX:
            return None
        committed: dict[TopicPartition, list[int]] = {}
        for topic, partition, offset in places:
            committed.setdefault((topic, partition), []).append(offset or 0)
        options = SourceOptions.parse({**self.connection, "path": self.logs_in})
        found = find_unread(options, committed) if committed else {}
        starts = [
            {"topic": topic, "partition": partition, "start_offset": one.start_offset, "has_batch": True}
            for (topic, partition), one in found.items()
            if one.has_batch
        ]
        unread = [
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "next_produced_at_ms": produced.at_ms,
                "is_exact": produced.is_exact,
            }
            for (topic, partition), one in found.items()
            for offset, produced in one.produced.items()
        ]
        frame = self._spark.createDataFrame
        return frame(pa.Table.from_pylist(starts, _STARTS)), frame(pa.Table.from_pylist(unread, _UNREAD))

    def log_begins(self, topics: Collection[str] | None) -> Any:
        """Return the log start offsets of some topics, or of all: `topic`, `partition`, `begin_offset`; None for the past."""
        if self.as_of_ms is not None:
            return None
        return self._begins(log_starts(self.logs_in, topics, security=self.security))

    def _begins(self, begins: Mapping[TopicPartition, int]) -> Any:
        rows = [{"topic": topic, "partition": number, "begin_offset": at} for (topic, number), at in begins.items()]
        return self._spark.createDataFrame(pa.Table.from_pylist(rows, _BEGINS))

    def batches(self, topics: Collection[str]) -> Any:
        """Return every batch of some topics."""
        chosen = tuple(sorted(topics))
        if chosen not in self._batches:
            self._batches[chosen] = kept(self._read([BATCH], BATCH_COLUMNS, chosen))
        return self._batches[chosen]

    def progress(self) -> progress.Progress:
        """Return the progress over all reads."""
        totals = [progress.total(notes) for notes in self._notes]
        return progress.Progress(sum(one.bytes_read for one in totals), sum(one.rows for one in totals))

    def _of_group(self, records: Any) -> Any:
        if self.groups is None:
            return records
        return records.where(records["kind"].isin(MARKER, DAMAGE) | records["group"].isin(*self.groups))

    def _read(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool = False
    ) -> Any:
        """Return the rows of some topics, or of all, up to the instant of the tables."""
        return self._in_time(self._load(kinds, columns, topics, newest=newest), columns)

    def _in_time(self, frame: Any, columns: Sequence[str]) -> Any:
        """Return the rows up to the instant of the tables."""
        if self.as_of_ms is None or "timestamp_ms" not in columns:
            return frame
        # Damage has no timestamp, and is always included.
        return frame.where(frame["timestamp_ms"].isNull() | (frame["timestamp_ms"] <= self.as_of_ms))

    def _load(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool
    ) -> Any:
        connection = self.connection if self.is_live else {}
        options = {**connection, "path": self.directory, "kinds": ",".join(kinds), "columns": ",".join(columns)}
        options |= {"topics": "*" if topics is None else ",".join(sorted(topics)), "newest": str(newest).lower()}
        if not self.is_live:
            size_bytes = log_bytes(self.directory, topics, newest=newest) or 0
            self.planned_bytes += size_bytes
            bytes_max = _COMPACT_TASK_BYTES if self.is_latest_only else PACK_BYTES
            options["bytesPerTask"] = str(task_bytes(size_bytes, cores(self._spark), bytes_max=bytes_max))
        if self.is_latest_only:
            options["compact"] = "true"
            # Compaction must not see commits after the instant of the tables.
            options |= {} if self.as_of_ms is None else {"to": str(self.as_of_ms + 1)}
        if self._progress_directory is not None:
            notes = self._progress_directory / str(len(self._notes))
            notes.mkdir(parents=True)
            self._notes.append(notes)
            options["progressDir"] = str(notes)
        parsed = SourceOptions.parse(options)
        if is_local(self._spark):
            return self._spark.frame_of(parsed)
        from kohort.pipeline.sources.frames.planned import frame_of

        return frame_of(self._spark, parsed)
