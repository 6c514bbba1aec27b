"""
What a partition's log is, for those above it; memory and disk provide it.

`kohort.runtime.ports.PartitionLog` is the half that the coordinators' runtime needs. The broker needs more: offsets by
time, leader epochs, sizes, and a store to open and delete logs in. Everything here belongs to the thread that owns the
node, and every listener is called on it.

Source: Kafka UnifiedLog, LogManager, LogConfig.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.errors import ErrorCode, RecordTooLargeError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import PartitionLog
from kohort.storage.producers import AbortedTxn, ProducerStateManager

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_TOPIC_ID = UUID(int=0)

LONG_MAX: Final = (1 << 63) - 1

CallSoon: TypeAlias = Callable[[Callable[[], None]], None]
"""Run a callback on the owner's thread in a later turn; may be called from any thread."""


class LogConfig(msgspec.Struct, frozen=True):
    """
    What a topic's configuration says to its logs; a field is the topic configuration of that name with dots.

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
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX


class CleanerConfig(msgspec.Struct, frozen=True):
    """A field is the broker configuration `log.cleaner.` and its name with dots. Source: Kafka CleanerConfig."""

    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = 1.7976931348623157e308


class CleanerMetrics(msgspec.Struct):
    """
    What the cleaner did, and how it is. Source: the gauges of Kafka's LogCleaner and LogCleanerManager.

    Attributes:
        recopy_percent, max_clean_time_s, max_buffer_utilization_percent: of the last pass.
        max_dirty_percent: of the dirtiest log, when one was last looked for.
        max_compaction_delay_s: by how much a log exceeds its maximum lag.
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
    """One log. Source: the gauges of Kafka's UnifiedLog."""

    topic_partition: TopicPartition
    log_start_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    is_offline: bool


class StoreMetrics(msgspec.Struct, frozen=True):
    """
    The logs that were opened, and the flushes before acknowledgements. Source: Kafka UnifiedLog, LogFlushStats.

    Attributes:
        flush_time_s: of all of them together.
    """

    logs: tuple[LogMetrics, ...]
    flushes: int = 0
    flush_time_s: float = 0.0


class TimestampOffset(msgspec.Struct, frozen=True, gc=False):
    """A record found by its time: where it is, its timestamp, and the leader epoch it was written under."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchSetTooLargeError(RecordTooLargeError):
    """What is appended at once is larger than a whole segment."""

    code: ClassVar[ErrorCode] = ErrorCode.RECORD_LIST_TOO_LARGE


class Log(PartitionLog, Protocol):
    """
    The log of one partition, as the broker sees it.

    Beyond the errors named at the port, everything that touches the data raises UnavailableError once the log is closed
    or its directory went offline.
    """

    config: LogConfig
    """May be replaced; takes effect from the next append on."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def refusal(self) -> str | None:
        """Why nothing can be done any more, a sentence; None while the log is well."""

    @property
    def leader_epoch(self) -> int:
        """The newest epoch seen; -1 when there was none."""

    @property
    def last_stable_offset(self) -> int:
        """Records below belong to no open transaction; the high watermark when none is open."""

    @property
    def producers(self) -> ProducerStateManager:
        """What is known of producers; changed by appends alone."""

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, indexes not counted."""

    def when_offline(self, listener: Callable[[], None]) -> None:
        """Tell this one when the partition fails while the store goes on: nothing that is waited for comes any more."""

    def become_leader(self, leader_epoch: int) -> None:
        """
        Appends are made under this epoch from now on, and it begins at the end of the log.

        Raises:
            FencedError: the log has seen a newer one.
        """

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """
        The first record, in log order, whose timestamp is at least this; None when there is none.

        Source: Kafka UnifiedLog.fetchOffsetByTimestamp.
        """

    def max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None when the log is empty or has no timestamps."""

    def delete_before(self, offset: int, done: Callable[[], None] = ...) -> None:
        """
        Records below `offset` are there no more; the log start never goes back.

        Args:
            done: called when that is durable, not at once.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.

        Source: Kafka UnifiedLog.maybeIncrementLogStartOffset.
        """

    def apply_retention(self, now_ms: int) -> None:
        """Delete what the topic's retention does not keep. Source: Kafka UnifiedLog.deleteOldSegments."""

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        """
        The aborted transactions that a reader of committed data has to know of, in the order of their markers.

        Args:
            data: what `read` returned from `offset` on. Transactions that begin behind it may be among the answer.

        Source: Kafka UnifiedLog.addAbortedTransactions.
        """

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """
        The largest known epoch not above this one, and the offset where it ends; (-1, -1) when that cannot be said.

        Source: Kafka LeaderEpochFileCache.endOffsetFor.
        """

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was or would be written; -1 when unknown."""


class LogStore(Protocol):
    """All logs of one node."""

    @property
    def offline_reason(self) -> str | None:
        """A sentence once the whole store failed (a flush could not be done); nothing is acknowledged from then on."""

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """
        The log, created when there is none. Cheap when new: files appear at a partition's first append.

        A log of the same name that belongs to another topic id is set aside (renamed to `-stray`), never written to.

        Raises:
            UnavailableError: what is there cannot be taken up.
        """

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """
        The log, if it was opened or found on the disk; its configuration is the default until it is opened.

        Raises:
            UnavailableError: what is there cannot be taken up.
        """

    def partitions(self) -> Iterable[TopicPartition]:
        """Those that were found at the start and those that were opened since, deleted ones left out; sorted."""

    def delete(self, topic_partition: TopicPartition) -> None:
        """Close the log and remove its data; a partition that is not there is no error."""

    def clean(self, config: CleanerConfig) -> None:
        """
        Begin to compact the logs whose topics want it and that are dirty enough; what there is to do is done in the background.

        Source: Kafka LogCleaner.CleanerThread.doWork.
        """

    def metrics(self) -> StoreMetrics:
        """What there is, and what flushing it has cost so far."""

    def cleaner_metrics(self) -> CleanerMetrics:
        """What cleaning has done so far."""

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        """
        Take a partition out of the store that belongs to no topic; on a disk its directory stays, renamed to `-stray`.

        Raises:
            UnavailableError: it could not be renamed.
        """

    def flush(self) -> None:
        """
        Everything appended is durable on return, and the high watermarks say so. Blocks: for tests and the end.

        Raises:
            UnavailableError: the flush failed.
        """

    def close(self) -> None:
        """Flush, and leave what the next start needs. Logs refuse everything afterwards. Idempotent."""
