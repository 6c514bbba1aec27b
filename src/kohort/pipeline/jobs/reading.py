"""Frames of one data directory, and how far reading them has come."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.pipeline.decode.schemas import (
    BATCH,
    COORDINATOR,
    DAMAGE,
    GROUP_METADATA,
    MARKER,
    OFFSET_COMMIT,
    SEGMENT,
    TRANSACTION,
)
from kohort.pipeline.decode.segments import list_segments, newest_segments
from kohort.pipeline.sources import progress
from kohort.pipeline.sources.live import is_live, list_logs
from kohort.pipeline.sources.options import PACK_BYTES, connecting
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.topic_ids import topic_ids
from kohort.pipeline.tables import topic_names
from kohort.pipeline.tables.groups import rebalances
from kohort.pipeline.tables.offsets import as_of, end_offsets, latest_offsets, offset_commits
from kohort.pipeline.tables.shares import share_state
from kohort.pipeline.tables.transactions import blocking_transactions, transactions

_COMMIT_KINDS = (OFFSET_COMMIT, MARKER, DAMAGE)
SHORT_BYTES = 64 << 20
"""Below, a run is over before the JVM's second compiler has paid for itself."""
_BYTES_PER_SHUFFLE_PARTITION = 32 << 20
_TASKS_PER_CORE = 2
_TASK_BYTES_MIN = 4 << 20
_BEGINS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("begin_offset", pa.int64())])
_FOLD_BYTES = 256 << 20
"""What a task reads that gives out the last commits of keys alone: the more, the fewer rows leave it."""


def coordinator_log_bytes(
    directory: str | Path, topic: str = CONSUMER_OFFSETS, *, security: Security = PLAINTEXT
) -> int:
    """
    The size of a coordinator's log in a data directory.

    Raises:
        ConfigError: there is no such directory, or no such log in it.
    """
    if is_live(str(directory)):
        # How many bytes they are only the logs themselves would say; a start for small ones fits all but the largest.
        if not list_logs(str(directory), topics={topic}, security=security):
            raise ConfigError(f"{directory} has no topic {topic} yet")
        return 0
    segments = list_segments(directory, topics={topic})
    if not segments:
        who, first = ("transaction", "transaction") if topic == TRANSACTION_STATE else ("group", "group")
        raise ConfigError(
            f"{directory} holds no log of a {who} coordinator (no {topic}-0, -1, ...); name the data directory"
            f" itself, and note that the log appears with the first {first}"
        )
    return sum(segment.size_bytes for segment in segments)


def shuffle_partitions(log_bytes: int) -> int:
    """Into how many parts Spark should spread a log of this size: one for every 32 MiB, 200 at most."""
    return max(1, min(200, -(-log_bytes // _BYTES_PER_SHUFFLE_PARTITION)))


def task_bytes(log_bytes: int, cores: int, *, bytes_max: int) -> int:
    """How much of a log of this size a task should read, so that a few cores share it evenly."""
    return max(_TASK_BYTES_MIN, min(bytes_max, -(-log_bytes // (cores * _TASKS_PER_CORE))))


def end_of_logs(latest_ms: Mapping[str, int]) -> int:
    """
    When the last record was written: of a coordinator, or to a topic that went on when all its readers had fallen silent.

    What a producer dates in the future does not count, nor do other records of its topic.

    Args:
        latest_ms: of each topic the greatest time of a batch.
    """
    now_ms = int(time.time() * 1000)
    return max((at for topic, at in latest_ms.items() if topic in INTERNAL_TOPICS or at <= now_ms), default=0)


class Reading:
    """
    Reads frames out of one directory.

    The coordinator's log is read once and kept, so that all tables of a run speak of the same moment, also while a broker
    goes on writing. Logs of topics are read after it, so that their ends are not older than what was committed.
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
    ) -> None:
        """
        Args:
            group: when given, the rows of this group alone.
            as_of_ms: when given, what was written later is left out: every table is that of this instant.
            progress_directory: where tasks note their progress; every read has a folder of its own in it.
            is_latest_only: commits that a later one replaced are not read. Right for the latest offsets, their lag and the
                damage alone, and much quicker.
            connection: how to connect to a cluster, as options of the source (`kafka.*`).

        Raises:
            ConfigError: nobody can connect like that.
        """
        self.directory = str(directory)
        self.groups: Collection[str] | None = None if group is None else (group,)
        self.as_of_ms = as_of_ms
        self.is_latest_only = is_latest_only
        self.connection = dict(connection or {})
        self.security = connecting(self.connection)
        self.planned_bytes = 0
        self._spark = spark
        self._progress_directory = progress_directory
        self._notes: list[Path] = []
        self._batches: dict[tuple[str, ...], Any] = {}

    @cached_property
    def records(self) -> Any:
        """What the coordinator's log says of offsets, groups and transactions, and what of it cannot be read."""
        columns = (*offset_commits.INPUT_COLUMNS, "topic_id", *latest_offsets.DAMAGE_COLUMNS)
        return self._of_group(self._read(_COMMIT_KINDS, list(dict.fromkeys(columns)), [CONSUMER_OFFSETS])).persist()

    @cached_property
    def last_records(self) -> Any:
        """Of each key of a group the last commit that counts, and what cannot be read; see `latest_offsets.last_records`."""
        records = self._read(_COMMIT_KINDS, latest_offsets.INPUT_COLUMNS, [CONSUMER_OFFSETS])
        return latest_offsets.last_records(self._of_group(records)).persist()

    @cached_property
    def at_ms(self) -> int:
        """
        The instant that the tables stand for: the one asked for, else now for a running cluster, and for a directory that of
        the last record, see `end_of_logs`.
        """
        if self.as_of_ms is not None:
            return self.as_of_ms
        if is_live(self.directory):
            return int(time.time() * 1000)
        ends = self._read([SEGMENT], ["log_topic", "timestamp_ms"], None, newest=True)
        latest = ends.where("timestamp_ms is not null").groupBy("log_topic").agg({"timestamp_ms": "max"}).collect()
        return end_of_logs(dict(latest))

    @cached_property
    def offset_commits(self) -> Any:
        """Commits with the fate of their transactions."""
        return offset_commits.offset_commits(self.records)

    def rebalances(self) -> Any:
        """What happened to the membership of groups, and why."""
        return rebalances.rebalances(self.member_records)

    @cached_property
    def member_records(self) -> Any:
        """What tells of members and their assignments."""
        return self._of_group(
            self._read((GROUP_METADATA, COORDINATOR), rebalances.INPUT_COLUMNS, [CONSUMER_OFFSETS])
        ).persist()

    @cached_property
    def topic_names(self) -> Any:
        """What the topics are called that records name by id."""
        columns = topic_names.INPUT_COLUMNS
        known = (self.records, self.member_records)
        told = [frame.select(*(name for name in columns if name in frame.columns)) for frame in known]
        found = topic_names.topic_names(told[0].unionByName(told[1], allowMissingColumns=True))
        # What exists now the source itself knows, also where old clients commit without ids; records name what is gone.
        here = topic_ids(self.directory, self.security)
        if here:
            now = self._spark.createDataFrame(sorted(here.items()), "topic_id string, topic string")
            found = now.unionByName(found.join(now, on="topic_id", how="left_anti"))
        return found.persist()

    @cached_property
    def share_state(self) -> Any:
        """Where share groups stand."""
        found = self._read([COORDINATOR], share_state.INPUT_COLUMNS, [SHARE_GROUP_STATE])
        return share_state.share_state(self._of_group(found)).persist()

    @cached_property
    def all_batches(self) -> Any:
        """Every batch of every topic: whose transactions are open there."""
        return self._read([BATCH], blocking_transactions.INPUT_COLUMNS, None)

    @cached_property
    def transactions(self) -> Any:
        """Every transaction that the transaction coordinator's log still tells of."""
        found = self._read([TRANSACTION], transactions.INPUT_COLUMNS, [TRANSACTION_STATE])
        return transactions.transactions(found).persist()

    @property
    def all_transactions(self) -> Any:
        """`transactions`, also where that is limited to what has changed."""
        return self.transactions

    def damage(self) -> Any:
        """What could not be read of the coordinator's log."""
        if self.is_latest_only:
            return latest_offsets.damage_of(self.last_records)
        return self.records.where(self.records["kind"] == DAMAGE).select(*latest_offsets.DAMAGE_COLUMNS)

    def end_offsets(self, topics: Collection[str]) -> Any:
        """The ends of the logs of some topics."""
        if self.as_of_ms is not None:
            return as_of.ends_as_of(self.batches(topics), at_ms=self.as_of_ms)
        return end_offsets.end_offsets(self._read([SEGMENT], end_offsets.INPUT_COLUMNS, topics, newest=True))

    def log_begins(self, topics: Collection[str] | None) -> Any:
        """Where the logs of some topics, or of all, begin now: `topic`, `partition`, `begin_offset`; None for the past."""
        if self.as_of_ms is not None:
            return None
        if is_live(self.directory):
            logs = list_logs(self.directory, topics=topics, security=self.security)
            return self._begins({(log.topic, log.partition): log.start for log in logs})
        # In order: the first segment of each comes last here, so that it stays.
        segments = reversed(list_segments(self.directory, topics=topics))
        return self._begins({(one.topic, one.partition): one.base_offset for one in segments})

    def _begins(self, begins: Mapping[TopicPartition, int]) -> Any:
        rows = [{"topic": topic, "partition": number, "begin_offset": at} for (topic, number), at in begins.items()]
        return self._spark.createDataFrame(pa.Table.from_pylist(rows, _BEGINS))

    def batches(self, topics: Collection[str]) -> Any:
        """Every batch of some topics: when what was produced."""
        chosen = tuple(sorted(topics))
        if chosen not in self._batches:
            self._batches[chosen] = self._read([BATCH], as_of.BATCH_COLUMNS, chosen).persist()
        return self._batches[chosen]

    def progress(self) -> progress.Progress:
        """How much of what was asked for has been read."""
        told = [progress.total(notes) for notes in self._notes]
        return progress.Progress(sum(one.bytes_read for one in told), sum(one.rows for one in told))

    def _of_group(self, records: Any) -> Any:
        if self.groups is None:
            return records
        return records.where(records["kind"].isin(MARKER, DAMAGE) | records["group"].isin(*self.groups))

    def _read(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool = False
    ) -> Any:
        """Rows of some topics, or of all, up to the instant that was asked for."""
        frame = self._load(kinds, columns, topics, newest=newest)
        if self.as_of_ms is None or "timestamp_ms" not in columns:
            return frame
        # Damage has no time, and is told of always.
        return frame.where(frame["timestamp_ms"].isNull() | (frame["timestamp_ms"] <= self.as_of_ms))

    def _load(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str] | None, *, newest: bool
    ) -> Any:
        reader = self._spark.read.format("kohort").option("topics", "*" if topics is None else ",".join(sorted(topics)))
        if not is_live(self.directory):
            segments = list_segments(self.directory, topics=topics)
            chosen = newest_segments(segments) if newest else segments
            size_bytes = sum(segment.size_bytes for segment in chosen)
            self.planned_bytes += size_bytes
            bytes_max = _FOLD_BYTES if self.is_latest_only else PACK_BYTES
            each = task_bytes(size_bytes, self._spark.sparkContext.defaultParallelism, bytes_max=bytes_max)
            reader = reader.option("bytesPerTask", str(each))
        reader = reader.option("kinds", ",".join(kinds)).option("columns", ",".join(columns))
        reader = reader.option("newest", str(newest).lower()).options(**self.connection)
        if self.is_latest_only:
            reader = reader.option("compact", "true")
            # What is left out must not be later than the instant that was asked for.
            reader = reader if self.as_of_ms is None else reader.option("to", str(self.as_of_ms + 1))
        if self._progress_directory is not None:
            notes = self._progress_directory / str(len(self._notes))
            notes.mkdir(parents=True)
            self._notes.append(notes)
            reader = reader.option("progressDir", str(notes))
        return reader.load(self.directory)
