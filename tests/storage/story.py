"""
A story that a store lives through, with every promise that it gives on the way written down between its system calls; and
what has to be there when the power went at any of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import BULK_BYTES
from kohort.storage.log import LogConfig
from kohort.storage.logs.base import PIECE_BYTES
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records
from kohort_lab.crashed_disk import Mark, Operation
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.listed import ListedBatch, ListedLog
from tests.storage.owner import Owner, batch
from tests.wire.control_batches import control_batch

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
BULK_CONFIG = LogConfig(segment_bytes=BULK_BYTES + 1000, index_interval_bytes=200)
JOURNAL_FILE_BYTES = 4096
A, B, C, TRANSACTIONAL = (TopicPartition("t", partition) for partition in range(4))
GONE = TopicPartition("gone", 0)
FIRST, SECOND = UUID(int=1), UUID(int=2)


class Transactional(NamedTuple):
    """A batch of a transaction; `committed` is the content of a marker, None for data."""

    offset: int
    producer_id: int
    committed: bool | None


class Promise(msgspec.Struct, frozen=True):
    """
    What is known of one log at some time.

    Attributes:
        kind: "wrote", "acknowledged", "start asked", "start", "epoch", "delete asked", "deleted".
        value: an offset, or an epoch.
        batch: what was written, if it belongs to a transaction.
    """

    kind: str
    topic_partition: TopicPartition
    topic_id: UUID
    value: int = 0
    batch: Transactional | None = None


class Expected(msgspec.Struct):
    """What one log has to hold."""

    acknowledged: int = 0
    start: int = 0
    start_asked: int = 0
    epoch: int = -1
    is_leaving: bool = False
    is_deleted: bool = False
    transactional: tuple[Transactional, ...] = ()
    """Batches of transactions and their markers, in the order of the log."""


Known: TypeAlias = dict[tuple[TopicPartition, UUID], Expected]
"""By name and topic id: a name may come again."""


class Story:
    """One store, driven by hand; the other threads run when it says so."""

    def __init__(
        self, data_dir: Path, files: FaultyFiles, *, flush: str = "commit", owner_flush_ms_max: float = 0
    ) -> None:
        self.files = files
        self.owner = Owner()
        self._data_dir = data_dir
        self._is_journaled = flush == "commit"
        """Without a journal a log start is durable with the next checkpoint, as in Apache Kafka."""
        self.store = self.owner.disk(
            data_dir, flush=flush, journal_file_bytes=JOURNAL_FILE_BYTES, owner_flush_ms_max=owner_flush_ms_max
        )
        self._ids: dict[TopicPartition, UUID] = {}
        self._sequences: Counter[int] = Counter()

    def log(self, topic_partition: TopicPartition, topic_id: UUID = FIRST, config: LogConfig = CONFIG) -> DiskLog:
        log = self.store.open(topic_partition, topic_id, config)
        if self._ids.get(topic_partition) != topic_id:
            self._ids[topic_partition] = topic_id
            log.add_listener(lambda end: self.files.mark(Promise("acknowledged", topic_partition, topic_id, end)))
        return log

    def append(
        self, topic_partition: TopicPartition, *, size: int = 100, topic_id: UUID = FIRST, epoch: int = 0
    ) -> None:
        """One batch whose value tells its place, in whatever round is filling."""
        log = self.log(topic_partition, topic_id, BULK_CONFIG if size >= PIECE_BYTES else CONFIG)
        value = value_at(topic_id, log.end_offset, size)
        self.files.mark(Promise("wrote", topic_partition, topic_id, log.end_offset + 1))
        log.append(batch(value), leader_epoch=max(epoch, log.leader_epoch, 0))

    def append_transactional(self, producer_id: int, *, size: int = 100) -> None:
        """One batch of a producer's transaction, which begins with the first one."""
        log = self.log(TRANSACTIONAL)
        record = BatchRecord(None, value_at(FIRST, log.end_offset, size).encode())
        data = build_batch(
            [record],
            timestamp_ms=1000,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[producer_id],
            transactional=True,
        )
        self._sequences[producer_id] += 1
        self._write_transactional(data, producer_id, committed=None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marker = control_batch(
            producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=1000
        )
        self._write_transactional(marker, producer_id, committed=committed)

    def _write_transactional(self, data: bytes, producer_id: int, *, committed: bool | None) -> None:
        log = self.log(TRANSACTIONAL)
        written = Transactional(log.end_offset, producer_id, committed)
        self.files.mark(Promise("wrote", TRANSACTIONAL, FIRST, log.end_offset + 1, written))
        log.append(data, leader_epoch=max(log.leader_epoch, 0))

    def flush(self) -> None:
        self.owner.run_turn()
        self.store.flush()
        self.owner.run_posted()

    def checkpoint(self) -> None:
        """A minute passes; the background thread does what it does then."""
        self.begin_checkpoint()
        self.owner.wait_for(lambda: self.store._flush_coordinator.checkpoints.running is None)
        self.settle()

    def begin_checkpoint(self) -> None:
        self.owner.clock.set(self.owner.clock.now_ms() + 60_000)
        self.append(A)
        self.flush()

    def settle(self) -> None:
        """Until the background thread has nothing left to do."""
        self.owner.settle(self.store)

    def delete_before(self, topic_partition: TopicPartition, offset: int, topic_id: UUID = FIRST) -> None:
        self.files.mark(Promise("start asked", topic_partition, topic_id, offset))
        done = Promise("start", topic_partition, topic_id, offset if self._is_journaled else 0)
        self.log(topic_partition, topic_id).delete_before(offset, lambda: self.files.mark(done))

    def raise_epoch(self, topic_partition: TopicPartition, epoch: int) -> None:
        self.log(topic_partition).become_leader(epoch)
        self.flush()
        self.settle()
        self.files.mark(Promise("epoch", topic_partition, FIRST, epoch))

    def delete(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.files.mark(Promise("delete asked", topic_partition, topic_id))
        self.store.delete(topic_partition)
        self.flush()
        if self.store.get(topic_partition) is None:
            self.files.mark(Promise("deleted", topic_partition, topic_id))
        del self._ids[topic_partition]


def tell(story: Story) -> None:
    """Everything that changes files: commits, transactions, large appends, rolls, checkpoints, deletions, a clean stop."""
    for number in range(4):
        for partition in (A, B):
            story.append(partition)
        if number % 2:
            story.append(GONE, topic_id=FIRST)
        story.flush()
    story.append(C, size=BULK_BYTES + 10)
    story.append(B)
    story.flush()
    _abort_before_a_roll(story)
    story.checkpoint()
    story.delete_before(GONE, 2)
    _roll_under_a_checkpoint(story)
    story.raise_epoch(A, 3)
    story.delete_before(B, 4)
    story.flush()
    story.delete(GONE, FIRST)
    story.settle()
    story.append(GONE, topic_id=SECOND)
    for _ in range(8):
        story.append(A, size=300)
        story.append(B, size=300)
    story.end_transaction(3, committed=False)
    story.append_transactional(3)
    story.flush()
    story.end_transaction(2, committed=True)
    story.end_transaction(3, committed=False)
    story.append_transactional(4)
    story.flush()
    story.delete_before(A, 14)
    story.checkpoint()
    story.append(C)
    story.flush()
    story.raise_epoch(C, 5)
    story.store.close()


def _abort_before_a_roll(story: Story) -> None:
    """
    Aborted transactions in a segment that lies below the next recovery point: the transaction index of such a segment is
    read, not built again. The second transaction goes on beside the first, a third is still open at the checkpoint.
    """
    story.append_transactional(1)
    story.append_transactional(2)
    story.end_transaction(1, committed=False)
    story.append_transactional(1, size=CONFIG.segment_bytes - 300)
    story.end_transaction(2, committed=True)
    story.end_transaction(1, committed=False)
    story.flush()
    story.append_transactional(3, size=CONFIG.segment_bytes - 300)  # a segment of its own
    story.append_transactional(2, size=CONFIG.segment_bytes - 300)  # another one
    story.flush()


def _roll_under_a_checkpoint(story: Story) -> None:
    """The background thread stands at its first call while a log is rolled, and rounds go to the other journal file."""
    story.files.hold("kohort-storage")
    story.begin_checkpoint()
    story.files.await_held()
    for number in range(12):
        story.append(A, size=250)
        if number % 4 == 0:
            story.append(C, size=PIECE_BYTES)
        story.append(GONE)
        story.flush()
    story.append(C, size=BULK_BYTES + 10)
    story.flush()
    story.files.release("kohort-storage")
    story.settle()


def value_at(topic_id: UUID, offset: int, size: int = 0) -> str:
    return f"{topic_id.int}:{offset}:".ljust(size, "x")


# -- what has to be there -----------------------------------------------------------------------------------------------


def expect(operations: Iterable[Operation]) -> Iterator[Known]:
    """After each operation: what is known of each log that there ever was, one dictionary that goes on changing."""
    known: Known = {}
    for operation in operations:
        if isinstance(operation, Mark) and isinstance(operation.value, Promise):
            promise = operation.value
            _learn(known.setdefault((promise.topic_partition, promise.topic_id), Expected()), promise)
        yield known


def _learn(expected: Expected, promise: Promise) -> None:
    match promise.kind:
        case "wrote" if promise.batch is not None:
            expected.transactional += (promise.batch,)
        case "acknowledged":
            expected.acknowledged = max(expected.acknowledged, promise.value)
        case "start asked":
            expected.start_asked = max(expected.start_asked, promise.value)
        case "start":
            expected.start = max(expected.start, promise.value)
        case "epoch":
            expected.epoch = promise.value
        case "delete asked":
            expected.is_leaving = True
        case "deleted":
            expected.is_deleted = True


def check_store(store: DiskStore, known: Known) -> None:
    """Nothing promised is missing, nothing is there twice, and nothing that was never written."""
    for (topic_partition, topic_id), expected in sorted(known.items()):
        log = store.get(topic_partition)
        is_there = log is not None and log.topic_id == topic_id
        if expected.is_deleted:
            assert not is_there, f"{topic_partition} of {topic_id} was deleted, and is back"
        elif not expected.is_leaving and (is_there or expected.acknowledged):
            check_log(store.open(topic_partition, topic_id, CONFIG), expected)


def check_log(log: DiskLog, expected: Expected) -> None:
    name = f"{log.topic_partition} of {log.topic_id}"
    assert log.end_offset >= expected.acknowledged, f"{name} ends at {log.end_offset}: {expected}"
    assert expected.start <= log.log_start_offset <= expected.start_asked, f"{name} starts at {log.log_start_offset}"
    assert log.leader_epoch >= expected.epoch, f"{name} is in epoch {log.leader_epoch}: {expected}"
    assert log.high_watermark == log.end_offset
    check_transactions(log, expected)
    offset = log.log_start_offset
    while data := log.read(offset, bytes_max=1 << 20):
        for start, size, base_offset, _, _ in iter_spans(data):
            if read_header(data, start).is_control:
                assert any(it.offset == base_offset and it.committed is not None for it in expected.transactional), name
                offset = base_offset + 1
                continue
            (record,) = read_records(data[start : start + size])
            assert record.value is not None
            assert record.value.startswith(value_at(log.topic_id, base_offset).encode()), f"{name} at {base_offset}"
            assert base_offset == offset or offset == log.log_start_offset
            offset = base_offset + 1
    assert offset == log.end_offset, f"{name} can be read to {offset}, and ends at {log.end_offset}"


def check_transactions(log: DiskLog, expected: Expected) -> None:
    """The last stable offset, and the aborted transactions that a reader is told at each offset."""
    model = ListedLog(
        [
            ListedBatch(offset, offset, [], producer_id, is_transactional=True, committed=committed)
            for offset, producer_id, committed in expected.transactional
        ]
    )
    model.cut(log.end_offset)
    if not model.batches:
        assert log.last_stable_offset == log.end_offset
        return
    assert log.last_stable_offset == model.stable_end(log.end_offset)
    for offset in range(log.log_start_offset, log.end_offset):
        data = log.read(offset, bytes_max=1)
        told = [(it.producer_id, it.first_offset, it.last_offset) for it in log.aborted_transactions(offset, data)]
        wanted = [it for it in model.aborted() if it[1] <= offset <= it[2]]
        assert [it for it in told if it[1] <= offset] == wanted, f"{log.topic_partition} at {offset}: told {told}"
