"""
Protocols of a partition's log and of the store of all logs; `memory`, `disk` and `postgres` implement them.

`kohort.runtime.ports.PartitionLog` is the part that the coordinators' runtime needs. The broker also needs offsets by time,
leader epochs, sizes, and a store that opens and deletes logs. Not thread-safe: call from the node's thread, which also calls
every listener.

Source: Kafka UnifiedLog, LogManager, LogConfig.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.errors import ErrorCode, RecordTooLargeError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import HoldAt, PartitionLog
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_TOPIC_ID = UUID(int=0)

LONG_MAX: Final = (1 << 63) - 1
OFFSET_MAX: Final = LONG_MAX

CallSoon: TypeAlias = Callable[[Callable[[], None]], None]
"""Run a callback on the owner's thread in a later turn; may be called from any thread."""


class LogConfig(msgspec.Struct, frozen=True):
    """
    The topic configurations that a log reads; a field is the topic configuration of that name with dots.

    Source: Kafka 4.2.1, LogConfig and its defaults.
    """

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    cleanup_policy: str = "delete"
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    preallocate: bool = False
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX


class AppendLimits:
    """
    The fields of a `LogConfig` that an append reads. A plain class: compiled code reads its attributes from fixed places.

    Attributes:
        is_flushed_by_count: whether `flush.messages` has the log flushed.
    """

    __slots__ = (
        "index_interval_bytes",
        "is_flushed_by_count",
        "max_message_bytes",
        "segment_bytes",
        "segment_jitter_ms",
        "segment_ms",
    )

    def __init__(self, config: LogConfig) -> None:
        self.index_interval_bytes: Final = config.index_interval_bytes
        self.is_flushed_by_count: Final = config.flush_messages < LONG_MAX
        self.max_message_bytes: Final = config.max_message_bytes
        self.segment_bytes: Final = config.segment_bytes
        self.segment_jitter_ms: Final = config.segment_jitter_ms
        self.segment_ms: Final = config.segment_ms


class CleanerConfig(msgspec.Struct, frozen=True):
    """A field is the broker configuration `log.cleaner.` and its name with dots. Source: Kafka CleanerConfig."""

    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = 1.7976931348623157e308


class CleanerMetrics(msgspec.Struct):
    """
    Counters and gauges of the cleaner. Source: the gauges of Kafka's LogCleaner and LogCleanerManager.

    Attributes:
        recopy_percent, max_clean_time_s, max_buffer_utilization_percent: of the last pass.
        max_dirty_percent: of the dirtiest log at the last check.
        max_compaction_delay_s: the largest excess of a log over its `max.compaction.lag.ms`.
    """

    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    invalid_records: int = 0
    recopy_percent: float = 0.0
    max_clean_time_s: float = 0.0
    max_buffer_utilization_percent: float = 0.0
    max_dirty_percent: float = 0.0
    max_compaction_delay_s: float = 0.0
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    since_last_run_s: float = 0.0


class LogMetrics(msgspec.Struct, frozen=True):
    """
    Gauges of one log. Source: the gauges of Kafka's UnifiedLog and Partition.

    Attributes:
        last_stable_offset_lag: the high watermark minus the last stable offset.
        producers: producers whose state is known.
        retention_percent: the size in percent of `retention.bytes`; 0 without such a limit.
        oldest_transaction_ms: the last timestamp of the producer whose open transaction begins first; None if none is open.
    """

    topic_partition: TopicPartition
    log_start_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    is_offline: bool
    last_stable_offset_lag: int
    producers: int
    oldest_transaction_ms: int | None
    retention_percent: int


class FlushMetrics(msgspec.Struct, frozen=True):
    """
    The flushes that acknowledgements waited for. Source: Kafka LogFlushStats.

    Attributes:
        flush_time_s: the sum over all flushes.
    """

    flushes: int = 0
    flush_time_s: float = 0.0


class Volume(msgspec.Struct, frozen=True):
    """
    The volume of the logs.

    Attributes:
        total_bytes, usable_bytes: -1 if that is not known.
        problem: the reason, a sentence, for which nothing can be written; empty if there is none.
    """

    total_bytes: int = -1
    usable_bytes: int = -1
    problem: str = ""


class TimestampOffset(msgspec.Struct, frozen=True, gc=False):
    """A record found by its timestamp: offset, timestamp, and the leader epoch of its batch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchSetTooLargeError(RecordTooLargeError):
    """A set of batches is larger than `segment.bytes`."""

    code: ClassVar[ErrorCode] = ErrorCode.RECORD_LIST_TOO_LARGE


class ReadView(Protocol):
    """
    A log as it was when the view was made, for one piece of work on any one thread, which may wait for the disk.

    The methods are those of `Log`. A failed read raises OSError.
    """

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes: ...
    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]: ...
    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None: ...
    def max_timestamp(self) -> TimestampOffset | None: ...
    @property
    def last_stable_offset(self) -> int: ...
    def end(self) -> None:
        """Let the log keep the open files that it can use, and close the others. On the owner's thread, after the work."""

    def close(self) -> None:
        """Close the files of the view. On any thread."""


class Log(PartitionLog, Protocol):
    """
    The log of one partition.

    Methods that read or write data raise UnavailableError after the log was closed or its directory went offline.
    """

    config: LogConfig
    """May be replaced; takes effect from the next append on."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def refusal(self) -> str | None:
        """The reason why the log is closed or offline, a sentence; None while it can be used."""

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch; -1 if there was none."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the first open transaction, at most the high watermark."""

    @property
    def producers(self) -> ProducerStateManager:
        """The state of producers; only appends change it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes."""

    def when_start_rises(self, listener: Callable[[], None]) -> None:
        """Set the one callback for each rise of the log start."""

    def when_offline(self, listener: Callable[[], None]) -> None:
        """Register a callback for the case that the partition goes offline while the store goes on."""

    hold_flush: HoldAt | None
    """Asked after a flush, before the high watermark advances."""

    def take_offline(self, reason: str) -> None:
        """Refuse everything until `bring_online`, as if the directory of the log had failed; for tests of clients."""

    def bring_online(self) -> None:
        """End `take_offline`."""

    def become_leader(self, leader_epoch: int) -> None:
        """
        Begin a leader epoch at the end of the log; later appends belong to it.

        Raises:
            FencedError: the log has seen a newer epoch.
        """

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """
        The first record, in log order, whose timestamp is at least this; None if there is none.

        Source: Kafka UnifiedLog.fetchOffsetByTimestamp.
        """

    def max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None if the log is empty or has no timestamps."""

    def delete_before(self, offset: int, done: Callable[[], None] = ...) -> None:
        """
        Raise the log start to `offset`; the log start never goes back.

        Args:
            done: called when the new log start is durable, always after this call has returned.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.

        Source: Kafka UnifiedLog.maybeIncrementLogStartOffset.
        """

    def apply_retention(self, now_ms: int) -> None:
        """Delete segments by `retention.ms` and `retention.bytes`. Source: Kafka UnifiedLog.deleteOldSegments."""

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        """
        The aborted transactions that a reader with `read_committed` needs, in the order of their markers.

        Args:
            data: the bytes that `read` returned from `offset` on. The answer may have transactions that begin behind it.

        Source: Kafka UnifiedLog.addAbortedTransactions.
        """

    # Reads that must not wait for the disk

    def read_cached(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes | None:
        """As `read`, without a call that may wait for the disk: from memory or the page cache; None if the disk is needed."""

    def aborted_cached(self, offset: int, data: bytes) -> list[AbortedTxn] | None:
        """As `aborted_transactions`, without a call that may wait for the disk; None if the disk is needed."""

    def view(self) -> ReadView | None:
        """
        A view for reading on another thread; None if the log is in memory and never waits.

        Raises:
            UnavailableError: the log is closed or offline.
        """

    def read_failed(self, view: ReadView, exc: OSError) -> bool:
        """
        Handle an error of a view, on the owner's thread.

        Returns:
            Whether the segments have changed since the view was made: the caller reads again, with another view. Otherwise
            this read has failed, and the log may be offline now.
        """

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """
        The largest epoch not above this one, and its end offset; (-1, -1) if that is not known.

        Source: Kafka LeaderEpochFileCache.endOffsetFor.
        """

    def location_of(self, offset: int) -> str:
        """The place of an offset for a message: the segment file, or the partition if it has no files."""

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if unknown."""


class LogStore(Protocol):
    """All logs of one node."""

    @property
    def data_dir(self) -> Path | None:
        """The directory of the logs; None if they are in memory or in a database."""

    @property
    def location(self) -> str:
        """The place of the logs for people: the path of the directory, the address of the database, or `memory`."""

    @property
    def offline_reason(self) -> str | None:
        """The reason after a flush failed, a sentence; the store acknowledges nothing from then on. None before."""

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """
        Open a log, or create one. Files of a new log appear at its first append.

        The directory of a log of the same name with another topic id is renamed to `-stray`.

        Raises:
            UnavailableError: the files cannot be loaded.
        """

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """
        The log, if it was opened or found on disk; it has the default configuration until it is opened.

        Raises:
            UnavailableError: the files cannot be loaded.
        """

    @property
    def missing_data(self) -> str | None:
        """A sentence about data that `close` found missing; None if it found all."""

    def missing(self) -> Iterable[TopicPartition]:
        """
        Partitions that have data by the checkpoint files, and no directory; sorted. `open` refuses them.

        The caller decides whether the topic exists: `forget_missing` is for partitions of topics that do not.
        """

    def forget_missing(self, topic_partition: TopicPartition) -> None: ...

    def partitions(self) -> Iterable[TopicPartition]:
        """All partitions that were found at the start or opened since, without deleted ones; sorted."""

    def delete(self, topic_partition: TopicPartition) -> None:
        """Close the log and remove its data; a missing partition is no error."""

    def after_deletions(self, action: Callable[[], None]) -> None:
        """Call when the logs that were deleted so far keep no write waiting any more, at once if that is so now."""

    def flush_aged(self) -> None:
        """
        Flush the logs with unflushed data that were not flushed for their topic's `flush.ms`, in the background.

        Source: Kafka LogManager.flushDirtyLogs.
        """

    def clean(self, config: CleanerConfig) -> None:
        """
        Start compaction of the dirtiest compacted logs that are due. The work is done in the background.

        Source: Kafka LogCleaner.CleanerThread.doWork.
        """

    def log_metrics(self) -> Iterator[LogMetrics]:
        """The gauges of each opened log, as it is when the iterator comes to it; there may be many thousands."""

    def volume(self) -> Volume:
        """The volume as it is now. The caller does not wait for a disk that does not answer."""

    def flush_metrics(self) -> FlushMetrics:
        """Counts and times of flushes."""

    def cleaner_metrics(self) -> CleanerMetrics:
        """Counters and gauges of the cleaner."""

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        """
        Remove a stray partition, which belongs to no topic, from the store; on disk its directory is renamed to `-stray`.

        Raises:
            UnavailableError: the directory could not be renamed.
        """

    def flush(self) -> None:
        """
        Flush all appends and advance the high watermarks. Blocks; used by tests and at the end.

        Raises:
            UnavailableError: the flush failed.
        """

    def close(self) -> None:
        """Flush, and write the files that the next start needs. Logs raise UnavailableError afterwards. Idempotent."""
