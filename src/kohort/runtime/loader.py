"""
Reads a partition from its start to its end and replays it.

Of records outside transactions only the newest of each key is decoded and replayed: that is what the log would hold after
compaction, and a shard must load from that anyway. Records of transactions are replayed one by one, with their markers.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Any

import msgspec

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordSerde, Shard, UnknownRecordTypeError
from kohort.runtime.ports import PartitionLog
from kohort.wire.batches import BatchHeader, LogRecord, iter_batches, read_marker, read_records

_log = logging.getLogger("kohort.runtime")

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""How much of the log one step of a load reads. Source: offsets.load.buffer.size."""
READ_PER_STEP = 16_384
REPLAYED_PER_STEP = 2048
"""How many records one step reads or replays, so that the event loop is never held for longer than some milliseconds."""


class LoadSummary(msgspec.Struct):
    """What a load has done so far."""

    records: int = 0
    replayed: int = 0
    bytes: int = 0
    unknown_types: tuple[int, ...] = ()


class _Marker(msgspec.Struct, frozen=True):
    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool


class _Pending(msgspec.Struct, frozen=True):
    """A record of a transaction."""

    offset: int
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


class _Collected:
    """What has been read so far: the newest record of each key outside transactions, and all that is inside."""

    __slots__ = ("newest", "transactional")

    def __init__(self) -> None:
        self.newest: dict[bytes | None, LogRecord] = {}
        self.transactional: list[_Marker | _Pending] = []

    def add(self, records: Iterable[LogRecord]) -> None:
        """Records outside transactions: what was under their keys is forgotten."""
        newest = self.newest
        forget = newest.pop
        for record in records:
            key = record.key
            # Taken out first, so that the dict keeps the order of the log.
            forget(key, None)
            newest[key] = record

    def in_order(self) -> Iterable[LogRecord | _Marker | _Pending]:
        """Everything that is to be replayed, in the order of the log."""
        # A record without a key says nothing.
        self.newest.pop(None, None)
        if not self.transactional:
            return self.newest.values()
        return merge(self.newest.values(), self.transactional, key=_offset)


_offset = attrgetter("offset")


def load(
    log: PartitionLog, shard: Shard[Any], serde: RecordSerde[Any], summary: LoadSummary, *, start: int, end: int
) -> Iterator[None]:
    """
    Replay `[start, end)` into the shard, a step at a time: advance the iterator until it ends.

    Raises:
        CorruptError: a record cannot be read.
        StorageError: the log cannot be read.
    """
    collected = _Collected()
    offset, since_step = start, 0
    while offset < end:
        window = log.read(offset, bytes_max=LOAD_BUFFER_BYTES, up_to=end)
        if not window:
            break
        summary.bytes += len(window)
        view = memoryview(window)
        for position, header in iter_batches(window):
            _collect(header, view[position : position + header.size_bytes], offset, collected, summary)
            offset = header.next_offset
            since_step += header.record_count
            if since_step >= READ_PER_STEP:
                since_step = 0
                yield
        yield
    yield from _replay(shard, serde, collected.in_order(), summary)


def _collect(header: BatchHeader, batch: memoryview, start: int, collected: _Collected, summary: LoadSummary) -> None:
    records = read_records(batch, header=header)
    if header.base_offset < start:
        records = [record for record in records if record.offset >= start]
    if header.is_control:
        for record in records:
            marker = read_marker(record)
            if marker is not None:
                collected.transactional.append(
                    _Marker(record.offset, header.producer_id, header.producer_epoch, marker.committed)
                )
        return
    summary.records += len(records)
    if header.is_transactional:
        collected.transactional += [
            _Pending(record.offset, header.producer_id, header.producer_epoch, record.key, record.value)
            for record in records
            if record.key is not None
        ]
    else:
        collected.add(records)


def _replay(
    shard: Shard[Any],
    serde: RecordSerde[Any],
    events: Iterable[LogRecord | _Marker | _Pending],
    summary: LoadSummary,
) -> Iterator[None]:
    decode, replay = serde.decode, shard.replay
    for count, event in enumerate(events, 1):
        if isinstance(event, _Marker):
            shard.replay_end_transaction_marker(event.producer_id, event.producer_epoch, committed=event.committed)
            continue
        key = event.key
        assert key is not None, "records without a key are left out"
        try:
            record = decode(key, event.value)
        except UnknownRecordTypeError as error:
            if error.record_type not in summary.unknown_types:
                summary.unknown_types += (error.record_type,)
                _log.warning("load.skipped type=%d offset=%d", error.record_type, event.offset)
            continue
        if isinstance(event, _Pending):
            replay(event.offset, event.producer_id, event.producer_epoch, record)
        else:
            replay(event.offset, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, record)
        summary.replayed += 1
        if count % REPLAYED_PER_STEP == 0:
            yield
