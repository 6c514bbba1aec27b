"""A partition log in memory with a manual high watermark and injected faults."""

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import FencedError, OffsetOutOfRangeError, RecordTooLargeError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import NO_SEQUENCE, HighWatermarkListener, LogView
from kohort.storage.batchset import iter_spans
from kohort.storage.markers import marker_batch
from kohort.storage.producers import ProducerStateManager
from kohort.wire.batches import iter_batches, read_header, stamp


class FaultyLog:
    """
    `kohort.runtime.ports.PartitionLog` for tests of a runtime.

    Nothing is committed until `commit` is called. The next append raises `fail_next_append`, or the one after
    `appends_until_failure` others; it lands `shift_next_append` offsets later than expected, if that is set. The next read
    raises `fail_next_read`.
    """

    def __init__(self, topic: str = "state", partition: int = 0, *, batch_bytes_max: int = 1_048_588) -> None:
        self.topic_partition = TopicPartition(topic, partition)
        self.batch_bytes_max = batch_bytes_max
        self.log_start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.appends = 0
        self.fail_next_append: StorageError | None = None
        self.appends_until_failure = 0
        self.fail_next_read: StorageError | None = None
        self.shift_next_append = 0
        self.producers = ProducerStateManager()
        self._listeners: list[HighWatermarkListener] = []

    def load_view(self) -> LogView | None:
        return None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        if leader_epoch < self.leader_epoch:
            raise FencedError(f"leader epoch {leader_epoch} is older than {self.leader_epoch}")
        if self.fail_next_append is not None:
            if not self.appends_until_failure:
                error, self.fail_next_append = self.fail_next_append, None
                raise error
            self.appends_until_failure -= 1
        if len(batch) > self.batch_bytes_max:
            raise RecordTooLargeError(f"{len(batch)} bytes")
        self.leader_epoch = leader_epoch
        shift, self.shift_next_append = self.shift_next_append, 0
        self.appends += 1
        self.end_offset += shift
        for position, header in iter_batches(batch):
            data = bytearray(batch[position : position + header.size_bytes])
            stamp(data, base_offset=self.end_offset, leader_epoch=leader_epoch)
            self.batches.append(bytes(data))
            self._learn(data)
            self.end_offset += header.last_offset_delta + 1
        return self.end_offset

    def _learn(self, batch: bytes | bytearray) -> None:
        if read_header(batch).producer_id >= 0:
            self.producers.update(batch, next(iter_spans(batch)))

    def start_verification(self, producer: Producer, now_ms: int, first_sequence: int = NO_SEQUENCE) -> object | None:
        return self.producers.start_verification(producer, now_ms, first_sequence)

    def is_verifying(self, producer_id: int, guard: object) -> bool:
        return self.producers.is_verifying(producer_id, guard)

    def append_transactional(
        self,
        batch: bytes | bytearray,
        *,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        guard: object | None,
    ) -> int:
        self.producers.check_transactional(producer_id=producer_id, producer_epoch=producer_epoch, guard=guard)
        return self.append(batch, leader_epoch=leader_epoch)

    def append_marker(self, end: EndTransaction, *, leader_epoch: int, timestamp_ms: int) -> int:
        self.producers.check_marker(end)
        batch = marker_batch(end, timestamp_ms, self.end_offset, leader_epoch)
        return self.append(batch, leader_epoch=leader_epoch)

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset}")
        error, self.fail_next_read = self.fail_next_read, None
        if error is not None:
            raise error
        limit = self.end_offset if up_to is None else up_to
        out = b""
        for batch in self.batches:
            header = read_header(batch)
            if header.next_offset <= offset or header.base_offset >= limit:
                continue
            if out and len(out) + len(batch) > bytes_max:
                break
            out += batch
        return out

    def add_listener(self, listener: HighWatermarkListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: HighWatermarkListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def commit(self, offset: int | None = None) -> None:
        """Set the high watermark, by default to the end offset, and call the listeners."""
        self.high_watermark = self.end_offset if offset is None else offset
        for listener in list(self._listeners):
            listener(self.high_watermark)

    def lose_uncommitted(self) -> None:
        """Drop the records above the high watermark, as a power cut does. The log must not be in use."""
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset < self.high_watermark]
        self.end_offset = self.high_watermark
        self.producers = ProducerStateManager()
        for batch in self.batches:
            self._learn(batch)
