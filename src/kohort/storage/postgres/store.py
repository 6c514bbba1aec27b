"""
The store of one node in a PostgreSQL database.

An append goes to memory; at the end of the turn it goes to the writer's thread, with the appends of all logs, in one statement
(`writer.py`). The high watermarks advance when it is committed. What is not in memory is read from the database by any
thread (`reads.py`). The database has leader epochs, states of producers and aborted transactions beside the batches that they
come from, so that a start reads no batches.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import psycopg

from kohort.model.errors import ConfigError, NotLeaderError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.limits import WRITTEN_BYTES_KEPT
from kohort.runtime.ports import Clock, Defer
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.epochs import EpochCache
from kohort.storage.log import CallSoon, CleanerConfig, CleanerMetrics, FlushMetrics, LogConfig, LogMetrics, Volume
from kohort.storage.postgres.cleaning.cleaner import PostgresCleaner
from kohort.storage.postgres.cleaning.removal import Removals
from kohort.storage.postgres.connect import Target, refused, sentence, shown
from kohort.storage.postgres.known import KnownDatabase
from kohort.storage.postgres.loading import LoadedLog, load_logs, not_removed
from kohort.storage.postgres.log import PostgresLog
from kohort.storage.postgres.reads import BatchReads
from kohort.storage.postgres.schema import SCHEMA
from kohort.storage.postgres.session import Session
from kohort.storage.postgres.writer import Writer
from kohort.storage.postgres.writes import Gathering, LogWrite, Removal
from kohort.storage.producers import ProducerStateManager

_log = logging.getLogger("kohort.storage")

STOP_S = 20.0
"""The time that a stop waits for a database that does not answer. Records that it has not taken were not acknowledged."""
LOCK_S = 15.0
"""The time that a start waits until the database has ended the connections of a node that was killed."""
_BATCH_COST = 100
"""The memory that a batch takes beside its bytes."""


def _ignore(_size_bytes: int) -> None:
    """A removed log has no size."""


class PostgresStore:
    """
    Args:
        url: of the database, as libpq takes it.
        clock: for compaction.
        call_soon_threadsafe: runs a callback on the owner's thread; called by the threads that write and remove.
        schema: of the tables.
        written_bytes_kept: the memory of the newest appends after they were written.
        stop_s: how long `close` waits for the database.
        lock_s: how long a start waits for the end of another process that uses the whole store.
        is_shared: whether other nodes use the store. Then no other log can be opened than those that this node has claimed
            (`kohort.storage.postgres.shared`).
        known: what this node knows of the database from before; None for nothing.
        on_offline: called with the reason when this node must not write any more; nothing is acknowledged from then on.

    Raises:
        ConfigError: the database cannot be used: its address, its promises, its schema, another node.
        CorruptError: what it has of a log cannot be read.
    """

    data_dir: Path | None = None
    missing_data: str | None = None

    def __init__(
        self,
        url: str,
        *,
        defer: Defer,
        call_soon_threadsafe: CallSoon,
        clock: Clock | None = None,
        schema: str = SCHEMA,
        written_bytes_kept: int = WRITTEN_BYTES_KEPT,
        stop_s: float = STOP_S,
        lock_s: float = LOCK_S,
        is_shared: bool = False,
        known: KnownDatabase | None = None,
        on_offline: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.location = shown(url, with_user=False)
        self._shown = shown(url)
        self._is_shared = is_shared
        self.offline_reason: str | None = None
        self._call_soon_threadsafe = call_soon_threadsafe
        self._on_offline = on_offline
        self._stop_s = stop_s
        self._is_closed = False
        self._done: deque[Callable[[], None]] = deque()
        """Actions that the threads leave to the owner."""
        self._expiring: set[PostgresLog] = set()
        """Logs whose oldest batches are being looked for."""
        self._kept: deque[tuple[PostgresLog, int, int]] = deque()
        """Batches in memory that were written: their log, their number and their cost."""
        self._kept_bytes = 0
        self._kept_bytes_max = written_bytes_kept
        target = Target(url, schema)
        writer_target = Target(url, schema, f"kohort {uuid4()}")
        try:
            session = Session(writer_target, None if is_shared else lock_s)
        except psycopg.Error as error:
            raise ConfigError(
                f"the database {self._shown} cannot be used: {sentence(error)}. Start it, or correct the address"
            ) from None
        self.cluster_id = session.cluster_id
        self._reads = BatchReads(target)
        self._removals = Removals(target)
        try:
            with refused(target):
                if known is not None:
                    known.start(session.connection, self.cluster_id, self._shown)
                loaded = [] if is_shared else load_logs(session.connection)
                left = [] if is_shared else not_removed(session.connection)
        except BaseException:
            session.connection.close()
            raise
        self._known = known
        self.target = target
        self.identity = session.identity
        self._writer = Writer(
            writer_target,
            session,
            lock_s=None if is_shared else lock_s,
            is_shared=is_shared,
            post=self.post,
            on_written=self._on_written,
            on_failed=self._on_failed,
            on_offline=self._go_offline,
            on_removal=self._removals.submit,
        )
        self._gathering = Gathering(self._writer, defer)
        self._make_log = partial(
            PostgresLog,
            gathering=self._gathering,
            stored=self._reads,
            expire=self._expire,
            forget_producers=self._removals.submit_producers,
        )
        self._logs: dict[TopicPartition, PostgresLog] = {}
        self.cleaner = PostgresCleaner(target, self._logs.values, post=self.post, clock=clock or SystemClock())
        self._logs.update((each.topic_partition, self.log_of(each)) for each in loaded)
        self.remove_batches(left)

    # Logs

    def log_of(self, loaded: LoadedLog) -> PostgresLog:
        """A log as it was read from the database."""
        self.cleaner.offsets[loaded.topic_partition] = loaded.clean_offset
        return self._make_log(
            loaded.topic_partition,
            loaded.topic_id,
            LogConfig(),
            epochs=loaded.epochs,
            producers=ProducerStateManager(loaded.producers),
            log_start_offset=loaded.start_offset,
            end_offset=loaded.next_offset,
            log_id=loaded.log_id,
            attempt=loaded.attempt,
            sealed_epoch=loaded.leader_epoch,
            stored_bytes=loaded.size_bytes,
            aborted=loaded.aborted,
        )

    def lead(self, log: PostgresLog) -> None:
        """Let `open` find a log that this node has claimed."""
        self._logs[log.topic_partition] = log

    def leave(self, topic_partition: TopicPartition) -> None:
        """Forget a log that another node leads. Its listeners hear of the outcome of the last appends."""
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            log.leave(f"another node leads {topic_partition}")
            self.cleaner.forget(log)

    def remove_batches(self, leftovers: Iterable[tuple[int, int | None]]) -> None:
        """Remove batches that an earlier run or another node has left, later: those of a log before an offset, all for None."""
        by_id = {log.log_id: log for log in self._logs.values()}
        for log_id, offset in leftovers:
            log = by_id.get(log_id)
            self._removals.submit(log_id, offset, _ignore if log is None else partial(self._on_removed, log))

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> PostgresLog:
        if self._is_closed or self.offline_reason is not None:
            raise UnavailableError(self.offline_reason or f"{self._shown} is closed")
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id == topic_id:
                log.config = config
                return log
            self.rename_to_stray(topic_partition)
        if self._is_shared:
            raise NotLeaderError(f"this node does not lead {topic_partition}, or not yet")
        log = self._logs[topic_partition] = self._make_log(
            topic_partition, topic_id, config, epochs=EpochCache(), producers=ProducerStateManager(), aborted=[]
        )
        return log

    def get(self, topic_partition: TopicPartition) -> PostgresLog | None:
        return self._logs.get(topic_partition)

    def missing(self) -> Iterable[TopicPartition]:
        return ()

    def forget_missing(self, topic_partition: TopicPartition) -> None:
        """No partition is missing."""

    def partitions(self) -> Iterable[TopicPartition]:
        return sorted(self._logs)

    def after_deletions(self, action: Callable[[], None]) -> None:
        action()

    def delete(self, topic_partition: TopicPartition) -> None:
        self._remove(topic_partition, "was deleted", is_stray=False)

    def rename_to_stray(self, topic_partition: TopicPartition) -> None:
        self._remove(topic_partition, "belongs to no topic", is_stray=True)

    def _remove(self, topic_partition: TopicPartition, what: str, *, is_stray: bool) -> None:
        if self._is_shared:
            # The controller removes it from the database.
            self.leave(topic_partition)
            return
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            self._gathering.act(Removal(log, is_stray))
            log.refusal = f"{topic_partition} {what}"
            log.forget_listeners()
            self.cleaner.forget(log)

    # Durability

    def post(self, action: Callable[[], None]) -> None:
        """On any thread."""
        self._done.append(action)
        self._call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._done:
            self._done.popleft()()

    def _on_written(self, writes: list[LogWrite]) -> None:
        for write in writes:
            log, count = write.log, len(write.batches)
            self._gathering.unwritten_bytes -= write.size_bytes
            if count:
                assert isinstance(log, PostgresLog), "the writes of this store are of its logs"
                cost = write.size_bytes + count * _BATCH_COST
                self._kept.append((log, count, cost))
                self._kept_bytes += cost
        # A listener may read what is committed: it finds it in memory.
        for write in writes:
            write.log.advance(write.next_offset)
        while self._kept_bytes > self._kept_bytes_max:
            log, count, cost = self._kept.popleft()
            log.tail.forget(count)
            self._kept_bytes -= cost

    def _on_failed(self, write: LogWrite, reason: str, is_led_elsewhere: bool) -> None:
        self._gathering.unwritten_bytes -= write.size_bytes
        write.log.fail(reason, is_led_elsewhere=is_led_elsewhere)

    def _on_removed(self, log: PostgresLog, size_bytes: int) -> None:
        """On the thread that removes."""
        self.post(partial(log.on_removed, size_bytes))

    def _go_offline(self, reason: str) -> None:
        if self.offline_reason is None:
            self.offline_reason = reason
            _log.error("store.offline database=%s reason=%r", self._shown, reason)
            for log in self._logs.values():
                log.refusal = reason
            self._on_offline(reason)

    def flush(self) -> None:
        self._flush(None)

    def _flush(self, timeout_s: float | None) -> None:
        """
        Raises:
            UnavailableError: the database has not taken everything.
        """
        while True:
            self._gathering.end_turn()
            is_done = self._writer.wait_until_idle(timeout_s)
            self._drain()
            if not is_done:
                raise UnavailableError(
                    self.offline_reason or self._writer.problem or f"the database {self._shown} has not answered"
                )
            self._gathering.end_turn()
            if self._writer.is_idle:
                return

    def flush_aged(self) -> None:
        """Nothing waits for a flush."""

    def _expire(self, log: PostgresLog, oldest_ms: int, bytes_max: int) -> None:
        if log not in self._expiring:
            self._expiring.add(log)
            self._removals.submit_search(
                log.log_id,
                log.log_start_offset,
                oldest_ms,
                bytes_max,
                lambda offset: self.post(partial(self._on_expired, log, offset)),
            )

    def _on_expired(self, log: PostgresLog, offset: int) -> None:
        self._expiring.discard(log)
        offset = min(offset, log.high_watermark)
        if offset > log.log_start_offset and log.refusal is None:
            log.delete_before(offset)

    def clean(self, config: CleanerConfig) -> None:
        if self._known is not None and (catalog := self._logs.get(self._known.catalog)) is not None:
            self._known.on_catalog(catalog.high_watermark)
        if self.offline_reason is None:
            self.cleaner.clean(config)

    def log_metrics(self) -> Iterator[LogMetrics]:
        return (log.metrics() for log in list(self._logs.values()))

    def volume(self) -> Volume:
        return Volume(problem=self._writer.problem)

    def flush_metrics(self) -> FlushMetrics:
        return FlushMetrics(self._writer.statements, self._writer.statement_seconds)

    def append_counts(self) -> tuple[int, int, int]:
        """Committed statements, the record batches in them, and appends that were refused because another node leads."""
        return self._writer.statements, self._writer.batches, self._writer.fenced

    def cleaner_metrics(self) -> CleanerMetrics:
        return self.cleaner.metrics()

    def acknowledged(self) -> dict[tuple[TopicPartition, UUID], int]:
        """The high watermarks of the logs."""
        return {(place, log.topic_id): log.high_watermark for place, log in self._logs.items()}

    def abandon(self) -> None:
        """Close without waiting for the database: this node must not write any more."""
        self._stop_s = 0.0
        self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._flush(self._stop_s)
        except UnavailableError as error:
            _log.warning("store.closed_uncleanly database=%s error=%r", self._shown, str(error))
        self.cleaner.stop(self._stop_s)
        if self._known is not None:
            self._known.stop(self._stop_s)
        self._removals.stop(self._stop_s)
        self._writer.stop(self._stop_s)
        self._reads.close()
        for topic_partition, log in self._logs.items():
            log.close(f"{topic_partition} is closed")
