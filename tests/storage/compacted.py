"""What the tests of compaction share: a store with a compacted log, passes over it, and what is in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore
from kohort.storage.log import CleanerConfig, Log, LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import BatchHeader, BatchRecord, LogRecord, build_batch, iter_batches, read_records
from tests.storage.owner import PARTITION, TOPIC_ID, Owner
from tests.wire.control_batches import control_batch

CONFIG = LogConfig(
    segment_bytes=1000,
    index_interval_bytes=200,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    retention_ms=-1,
)
CLEANER = CleanerConfig()


def open_log(store: DiskStore, config: LogConfig = CONFIG, partition: TopicPartition = PARTITION) -> DiskLog:
    return store.open(partition, TOPIC_ID, config)


def put(log: Log, *pairs: tuple[str, str | None], timestamp_ms: int = 1000, **producer: Any) -> int:
    """One batch of these keys and values; the offset that follows."""
    records = [
        BatchRecord(key.encode(), None if value is None else value.encode(), timestamp_ms=timestamp_ms)
        for key, value in pairs
    ]
    return log.append(build_batch(records, timestamp_ms=timestamp_ms, **producer), leader_epoch=0)


def end_transaction(log: Log, producer_id: int, *, committed: bool, producer_epoch: int = 0) -> int:
    marker = control_batch(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=0,
        timestamp_ms=1000,
    )
    return log.append(marker, leader_epoch=0)


def roll(log: DiskLog) -> None:
    """The next append begins a segment, unless it does anyway."""
    if log.has_segments and log.segments[-1].size_bytes:
        log._roll()


def make_durable(owner: Owner, store: DiskStore) -> None:
    """Flushed and checkpointed, so that everything written so far may be cleaned."""
    store.flush()
    for _ in range(2):  # one may be running, begun before the last append
        store._flush_coordinator.want_checkpoint()
        owner.run_turn()
        owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)


def clean(owner: Owner, store: DiskStore, config: CleanerConfig = CLEANER) -> None:
    """Passes until nothing is due."""
    make_durable(owner, store)
    store.clean(config)
    owner.wait_for(lambda: not store.cleaner.in_progress)
    owner.run_posted()


def batches(log: Log) -> Iterator[tuple[BatchHeader, list[LogRecord]]]:
    offset = log.log_start_offset
    while offset < log.end_offset and (data := log.read(offset, bytes_max=1 << 20)):
        for position, header in iter_batches(data):
            yield header, list(read_records(memoryview(data)[position:], header=header))
            offset = header.next_offset


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record but those of control batches."""
    return [
        (record.offset, record.key, record.value)
        for header, found in batches(log)
        if not header.is_control
        for record in found
        if record.offset >= log.log_start_offset
    ]


def newest(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    """What a reader of everything ends up with."""
    return {key: (offset, value) for offset, key, value in records(log)}


def disk(owner: Owner, path: Path, **options: Any) -> DiskStore:
    return owner.disk(path, **options)
