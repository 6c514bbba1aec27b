"""The log of one partition in the database, and a view of it for another thread."""

import logging
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from operator import attrgetter
from typing import Final, NoReturn, Protocol
from uuid import UUID

from kohort.machine.shard import EndTransaction
from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.limits import UNWRITTEN_BYTES_MAX
from kohort.storage.batchset import Span, iter_spans
from kohort.storage.epochs import EpochCache
from kohort.storage.log import NO_OFFSET, NO_TIMESTAMP, LogConfig, LogMetrics, ReadView
from kohort.storage.logs.base import LogBase
from kohort.storage.logs.retention import LogSegment
from kohort.storage.logs.timestamps import newest_from
from kohort.storage.postgres.tail import Tail
from kohort.storage.postgres.writes import Gathering, LogWrite, NewStart, pack_state
from kohort.storage.producer_states import AbortedTxn, ProducerStateEntry
from kohort.storage.producers import ProducerStateManager, read_producer_id
from kohort.storage.segments.aborted import find_overlapping
from kohort.wire.batch_header import PRODUCER_ID_AT

_log = logging.getLogger("kohort.storage")

NO_ROW: Final = -1
"""The id of a log without a row in the database: nothing was written to it."""

_WAITED_BYTES: Final = 256 * 1024
"""The bytes of one read on the thread that serves clients. Loads and Fetch read with views, elsewhere."""
_FORGOTTEN_MAX: Final = 500
"""States of producers that one statement removes."""

_last_offset_of = attrgetter("last_offset")


class StoredBatches(Protocol):
    """Reads of batches from the database, on any thread. A failed one raises OSError."""

    def read(self, log_id: int, offset: int, up_to: int, bytes_max: int) -> tuple[bytes, int]:
        """
        Batches that end from `offset` on and below `up_to`, as many as fit, and at least one if there is one; and the offset
        behind them, `up_to` if there is none.
        """

    def next_at_least(self, log_id: int, offset: int, up_to: int, timestamp_ms: int) -> tuple[int, bytes] | None:
        """The first of them with at least this timestamp, after its last offset."""

    def newest(self, log_id: int, offset: int, up_to: int) -> tuple[int, int] | None:
        """The largest timestamp of them, and the last offset of the first that has it."""


class PostgresReads(LogBase):
    """
    A log in the database, without appends.

    Attributes:
        log_id: of the row; `NO_ROW` before the first write.
        tail: the newest batches, in memory.
        aborted: aborted transactions, in the order of their markers.
    """

    log_id: int
    tail: Tail
    aborted: list[AbortedTxn]
    _stored: StoredBatches

    @abstractmethod
    def _on_read_error(self, exc: OSError) -> NoReturn:
        """Handle a failed read."""

    @property
    def segments(self) -> Sequence[LogSegment]:
        """None in a view: the database has batches."""
        return ()

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        up_to = self.end_offset if up_to is None else min(up_to, self.end_offset)
        data = self._before_tail(offset, bytes_max, up_to)[0]
        return data or self.tail.read(offset, bytes_max, up_to)

    def read_on(self, offset: int, bytes_max: int, up_to: int) -> tuple[bytes, int]:
        """As `read`, and the offset behind the batches."""
        up_to = min(up_to, self.end_offset)
        found = self._before_tail(offset, bytes_max, up_to)
        if found[0]:
            return found
        data = self.tail.read(offset, bytes_max, up_to)
        return data, max((span[3] + 1 for span in iter_spans(data)), default=up_to)

    def _before_tail(self, offset: int, bytes_max: int, up_to: int) -> tuple[bytes, int]:
        """As `read_on`, of the batches that are not in memory."""
        self._check_readable(offset)
        start = self.tail.start
        return self._read_stored(offset, min(up_to, start), bytes_max) if offset < start else (b"", offset)

    def _read_stored(self, offset: int, up_to: int, bytes_max: int) -> tuple[bytes, int]:
        try:
            return self._stored.read(self.log_id, offset, up_to, bytes_max)
        except OSError as exc:
            self._on_read_error(exc)

    def read_cached(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes | None:
        self._check_readable(offset)
        if offset < self.tail.start:
            return None
        return self.tail.read(offset, bytes_max, self.end_offset if up_to is None else up_to)

    def aborted_transactions(self, offset: int, data: bytes) -> list[AbortedTxn]:
        if not data or not self.aborted:
            return []
        first = bisect_left(self.aborted, offset, key=_last_offset_of)
        return find_overlapping(self.aborted[first:], offset, self.end_offset)[0]

    def aborted_cached(self, offset: int, data: bytes) -> list[AbortedTxn] | None:
        return self.aborted_transactions(offset, data)

    def _batches_at_least(self, timestamp_ms: int) -> Iterator[bytes]:
        offset = self.log_start_offset
        while (found := self._next_at_least(offset, timestamp_ms)) is not None:
            yield found[1]
            offset = found[0] + 1

    def _next_at_least(self, offset: int, timestamp_ms: int) -> tuple[int, bytes] | None:
        start = self.tail.start
        if offset < start:
            try:
                found = self._stored.next_at_least(self.log_id, offset, start, timestamp_ms)
            except OSError as exc:
                self._on_read_error(exc)
            if found is not None:
                return found
        return self.tail.next_at_least(offset, timestamp_ms)

    def _newest(self) -> tuple[int, int]:
        """The records of the batch that holds the log start are looked at alone: those before it do not count."""
        newest, offset = (NO_TIMESTAMP, NO_OFFSET), self.log_start_offset
        data = self.read(offset, bytes_max=1)
        if data:
            _, _, base_offset, last_offset, _ = next(iter_spans(data))
            if base_offset < offset:
                newest = newest_from(data, offset), last_offset
                offset = last_offset + 1
        start, found = self.tail.start, None
        if offset < start:
            try:
                found = self._stored.newest(self.log_id, offset, start)
            except OSError as exc:
                self._on_read_error(exc)
        for each in (found, self.tail.newest(offset)):
            if each is not None and each[0] > newest[0]:
                newest = each
        return newest


class PostgresView(PostgresReads):
    """A log as it was when the view was made, for one piece of work on any one thread. A failed read raises OSError."""

    def __init__(self, log: PostgresReads) -> None:
        producers = ProducerStateManager()
        producers.first_unstable_offset = log.producers.first_unstable_offset
        super().__init__(
            log.topic_partition,
            log.topic_id,
            log.config,
            epochs=log.epochs.copy(),
            producers=producers,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
        )
        self.high_watermark = log.high_watermark
        self.log_id = log.log_id
        self.tail = log.tail.copy()
        self.aborted = log.aborted.copy()
        self._stored = log._stored

    def _on_read_error(self, exc: OSError) -> NoReturn:
        raise exc

    def end(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class PostgresLog(PostgresReads):
    """
    One partition.

    The database has a row of it from its first write on. Attributes of the writer's thread: `log_id`, `attempt`.

    Args:
        expire: finds out what is older than a time, or too much for a size, and raises the log start later.
        forget_producers: removes the states of producers from the database, later, if they are still the same.

    Attributes:
        attempt: the number of the row that raises whenever the outcome of a statement was not known.
        write: what was appended in this turn, in `Gathering`; None if there is nothing.
        sealed_epoch: the leader epoch of the row after all sealed writes.
        outline: what the cleaner takes for segments, as it has counted them last.
        newest_ms: the largest timestamp of the batches that were appended since the log was opened.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        gathering: Gathering,
        stored: StoredBatches,
        expire: Callable[["PostgresLog", int, int], None],
        forget_producers: Callable[[int, dict[int, bytes]], None],
        epochs: EpochCache,
        producers: ProducerStateManager,
        log_start_offset: int = 0,
        end_offset: int = 0,
        log_id: int = NO_ROW,
        attempt: int = 0,
        sealed_epoch: int = -1,
        stored_bytes: int = 0,
        aborted: list[AbortedTxn],
    ) -> None:
        super().__init__(
            topic_partition,
            topic_id,
            config,
            epochs=epochs,
            producers=producers,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
        )
        self.log_id = log_id
        self.attempt = attempt
        self.tail = Tail(end_offset)
        self.aborted = aborted
        self.write: LogWrite | None = None
        self.sealed_epoch = sealed_epoch
        self.outline: Sequence[LogSegment] = ()
        self.newest_ms = NO_TIMESTAMP
        self._stored = stored
        self._stored_bytes = stored_bytes
        self._gathering = gathering
        self._expire = expire
        self._forget_producers = forget_producers
        self._forgotten: dict[int, bytes] = {}
        """States of producers that the database still has."""
        producers.on_forgotten = self._on_producer_forgotten

    @property
    def segments(self) -> Sequence[LogSegment]:
        return self.outline

    @property
    def size_bytes(self) -> int:
        return self._stored_bytes

    def metrics(self) -> LogMetrics:
        return LogMetrics(
            self.topic_partition,
            self.log_start_offset,
            self.end_offset,
            0,
            self._stored_bytes,
            self.refusal is not None,
            self.high_watermark - self.last_stable_offset if self.refusal is None else 0,
            len(self.producers.states),
            self.producers.oldest_transaction_ms,
            self._stored_bytes * 100 // limit if (limit := self.config.retention_bytes) > 0 else 0,
        )

    # Writing

    def append(self, batch: bytes | bytearray, *, leader_epoch: int, end: EndTransaction | None = None) -> int:
        if self._gathering.unwritten_bytes > UNWRITTEN_BYTES_MAX and self.refusal is None:
            raise UnavailableError(
                f"{self.topic_partition} takes no records: the database has not taken {UNWRITTEN_BYTES_MAX} bytes yet"
            )
        return super().append(batch, leader_epoch=leader_epoch, end=end)

    def _write(self, data: bytes | bytearray, rest: bytes | memoryview, spans: list[Span]) -> None:
        whole = b"".join((data, rest))
        write = self._gathering.open(self)
        tail = self.tail
        for start, size, base_offset, last_offset, max_timestamp_ms in spans:
            batch = whole if size == len(whole) else whole[start : start + size]
            write.add(base_offset, last_offset, max_timestamp_ms, batch)
            tail.append(batch, last_offset, max_timestamp_ms)
            self.newest_ms = max(self.newest_ms, max_timestamp_ms)
        self.end_offset = spans[-1][3] + 1
        self._stored_bytes += len(whole)
        self._gathering.unwritten_bytes += len(whole)

    def _update_producers(self, data: bytes | bytearray, spans: list[Span], end: EndTransaction | None = None) -> None:
        super()._update_producers(data, spans, end)
        write = self.write
        if write is None:
            return
        for span in spans:
            if data[span[0] + PRODUCER_ID_AT] < 0x80:
                write.producer_ids.add(read_producer_id(data, span[0] + PRODUCER_ID_AT)[0])
        self._gathering.seal_if_large(write)

    def _add_aborted(self, aborted: AbortedTxn) -> None:
        self.aborted.append(aborted)
        if self.write is not None:
            self.write.aborted.append(aborted)

    def _persist_epoch(self) -> None:
        """Epoch 0 of an empty log needs no row, because every log begins with it."""
        if self.leader_epoch > 0 or self.end_offset:
            self._gathering.open(self)

    # Reading

    def _on_read_error(self, exc: OSError) -> NoReturn:
        raise UnavailableError(f"{self.topic_partition} cannot be read: {exc}") from exc

    def _read_stored(self, offset: int, up_to: int, bytes_max: int) -> tuple[bytes, int]:
        """On the thread that serves clients: less than was asked for, for they wait."""
        return super()._read_stored(offset, up_to, min(bytes_max, _WAITED_BYTES))

    def view(self) -> PostgresView:
        if self.refusal is not None:
            raise UnavailableError(self.refusal)
        return PostgresView(self)

    def load_view(self) -> PostgresView:
        return self.view()

    def read_failed(self, _view: ReadView, exc: OSError) -> bool:
        _log.warning("log.read_failed partition=%s error=%r", self.topic_partition, str(exc))
        return False

    # Deleting

    def _persist_start(self, done: Callable[[], None]) -> None:
        self._gathering.act(NewStart(self, self.log_start_offset, done))

    def apply_retention(self, now_ms: int) -> None:
        """
        Raise the log start above the oldest batches, later: a batch is here what a segment is on a disk. One without a
        timestamp is not old.
        """
        self._remove_producers()
        config = self.config
        if "delete" not in config.cleanup_policy.split(",") or self.refusal is not None or self.log_id == NO_ROW:
            return
        oldest_ms = now_ms - config.retention_ms if config.retention_ms >= 0 else NO_TIMESTAMP
        if oldest_ms > NO_TIMESTAMP or config.retention_bytes >= 0:
            self._expire(self, oldest_ms, config.retention_bytes)

    def _on_producer_forgotten(self, state: ProducerStateEntry) -> None:
        self._forgotten[state.producer_id] = pack_state(state)
        if len(self._forgotten) >= _FORGOTTEN_MAX:
            self._remove_producers()

    def _remove_producers(self) -> None:
        if self._forgotten and self.refusal is None:
            self._forget_producers(self.log_id, self._forgotten)
            self._forgotten = {}

    def base_of_log_start(self) -> int:
        """Until the writer has read it, what was known before: the last stable offset does not move back."""
        log_start_offset, base_offset = self._found_base
        if log_start_offset == self.log_start_offset:
            return base_offset
        return max(self.producers.first_unstable_offset or 0, base_offset)

    def on_start_moved(self, log_start_offset: int, base_offset: int) -> None:
        """Take what the database has of a new log start: the base offset of the batch that holds it."""
        self._found_base = log_start_offset, base_offset

    def on_removed(self, size_bytes: int) -> None:
        """Take the bytes of batches that were removed: those before the log start, and what compaction leaves out."""
        self._stored_bytes -= size_bytes

    def keep_aborted(self, begin: int, end: int, kept: Container[int]) -> None:
        """
        Of the aborted transactions whose markers are between two offsets, keep those with these markers. The database has no
        records of the others any more; the ones in memory are forgotten, for they would count as committed.
        """
        first = bisect_left(self.aborted, begin, key=_last_offset_of)
        last = bisect_left(self.aborted, end, first, key=_last_offset_of)
        here = self.aborted[first:last]
        gone = [entry for entry in here if entry.last_offset not in kept]
        if gone:
            self.aborted[first:last] = [entry for entry in here if entry.last_offset in kept]
            self.tail.forget_before(gone[-1].last_offset + 1)

    # Ends

    def fail(self, reason: str, *, is_led_elsewhere: bool = False) -> None:
        """
        Go offline: the database has not taken an append, and never will.

        Args:
            is_led_elsewhere: another node has become the leader before this one heard of it. Clients look for it.
        """
        if self.refusal is None:
            if is_led_elsewhere:
                _log.info("log.fenced partition=%s reason=%r", self.topic_partition, reason)
            else:
                _log.error("log.failed partition=%s reason=%r", self.topic_partition, reason)
            self._refuse(reason)
        else:
            self.end_leave()

    def close(self, refusal: str) -> None:
        if self.refusal is None:
            self.refusal = refusal
