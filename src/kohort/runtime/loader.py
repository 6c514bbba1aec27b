"""
Reads a partition from its start to its end and replays it.

Of records outside transactions only the newest of each key is decoded and replayed: that is what the log would hold after
compaction, and a shard must load from that anyway. Records of transactions are replayed one by one, with their markers.

Source: Kafka CoordinatorLoaderImpl.
"""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from kohort.machine.shard import RecordSerde, Shard, UnknownRecordTypeError
from kohort.runtime.ports import PartitionLog
from kohort.wire.batches import BatchHeader, iter_batches, read_marker, read_records

_log = logging.getLogger("kohort.runtime")

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""How much of the log one step of a load reads. Source: offsets.load.buffer.size."""
EVENTS_PER_STEP = 4096
"""How many records one step replays, so that the event loop is never held for long."""


class LoadSummary(msgspec.Struct):
    """What a load has done so far."""

    records: int = 0
    replayed: int = 0
    bytes: int = 0
    unknown_types: tuple[int, ...] = ()


class _Marker(msgspec.Struct, frozen=True):
    producer_id: int
    producer_epoch: int
    committed: bool


class _Raw(msgspec.Struct, frozen=True):
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


def load(
    log: PartitionLog, shard: Shard[Any], serde: RecordSerde[Any], summary: LoadSummary, *, start: int, end: int
) -> Iterator[None]:
    """
    Replay `[start, end)` into the shard, a step at a time: advance the iterator until it ends.

    Raises:
        CorruptError: a record cannot be read.
        StorageError: the log cannot be read.
    """
    newest: dict[bytes, int] = {}
    events: dict[int, _Raw | _Marker] = {}
    offset = start
    while offset < end:
        window = log.read(offset, bytes_max=LOAD_BUFFER_BYTES, up_to=end)
        if not window:
            break
        summary.bytes += len(window)
        view = memoryview(window)
        for position, header in iter_batches(window):
            _collect(header, view[position : position + header.size_bytes], offset, newest, events, summary)
            offset = header.next_offset
            if len(events) % 16 == 0:
                yield
        yield
    yield from _replay(shard, serde, events, summary)


def _collect(
    header: BatchHeader,
    batch: memoryview,
    start: int,
    newest: dict[bytes, int],
    events: dict[int, _Raw | _Marker],
    summary: LoadSummary,
) -> None:
    if header.is_control:
        for record in read_records(batch, header=header):
            marker = read_marker(record)
            if marker is not None:
                events[record.offset] = _Marker(header.producer_id, header.producer_epoch, marker.committed)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    for record in read_records(batch, header=header):
        if record.offset < start:
            continue
        summary.records += 1
        if record.key is None:
            continue
        if producer_id == -1:
            older = newest.get(record.key)
            if older is not None:
                del events[older]
            newest[record.key] = record.offset
        events[record.offset] = _Raw(producer_id, header.producer_epoch, record.key, record.value)


def _replay(
    shard: Shard[Any], serde: RecordSerde[Any], events: dict[int, _Raw | _Marker], summary: LoadSummary
) -> Iterator[None]:
    # A dict keeps the order of insertion, and a key's newest record was inserted anew: this is the order of the log.
    for count, (offset, event) in enumerate(events.items()):
        if isinstance(event, _Marker):
            shard.replay_end_transaction_marker(event.producer_id, event.producer_epoch, committed=event.committed)
        else:
            try:
                record = serde.decode(event.key, event.value)
            except UnknownRecordTypeError as error:
                if error.record_type not in summary.unknown_types:
                    summary.unknown_types += (error.record_type,)
                    _log.warning("load.skipped type=%d offset=%d", error.record_type, offset)
                continue
            shard.replay(offset, event.producer_id, event.producer_epoch, record)
            summary.replayed += 1
        if count % EVENTS_PER_STEP == EVENTS_PER_STEP - 1:
            yield
