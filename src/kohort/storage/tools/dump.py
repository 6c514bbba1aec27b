"""
Rows of the content of a log's files, for people and programs. No file is changed.

Every kind of file has its own fields. Damage is a row with the field `problem`, which is the last one of its file.

Source: Kafka DumpLogSegments.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kohort.model.errors import CorruptError
from kohort.storage.batchset import span_at, stated_size
from kohort.storage.epochs import CHECKPOINT_NAME, EpochCache
from kohort.storage.files.directory import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_of
from kohort.storage.files.journal_format import APPEND, DELETE, EPOCH, START, JournalEntry, read_journal
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX
from kohort.storage.segments.aborted import from_bytes as aborted_from_bytes
from kohort.storage.segments.index import OffsetIndex, TimeIndex
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX, read_checksums
from kohort.storage.segments.snapshots import SNAPSHOT_SUFFIX, snapshot_from_bytes
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchHeader, LogRecord, check_crc, iter_batches, read_header, read_marker, read_records
from kohort.wire.compression import Codec
from kohort.wire.scanning.header_keys import shown_key

Row: TypeAlias = dict[str, Any]
DecodeRecord: TypeAlias = Callable[[bytes | None, bytes | None], Row]
"""Key and value of a record as fields of a row; raises CorruptError when they are damaged."""

_READ_BYTES = 4 << 20
_KINDS = {APPEND: "append", DELETE: "delete", START: "start", EPOCH: "epoch"}


def as_text(key: bytes | None, value: bytes | None) -> Row:
    """Key and value as text; bytes that are not UTF-8 are escaped."""
    return {"key": _text(key), "value": _text(value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def dump(
    path: Path,
    *,
    decode: DecodeRecord = as_text,
    has_records: bool = True,
    from_offset: int = 0,
    bytes_max: int | None = None,
) -> Iterator[Row]:
    """
    The rows of one file.

    Args:
        from_offset: the first offset to show of a segment.
        bytes_max: the bound on the bytes of batches of a segment, but at least one batch.

    Raises:
        CorruptError: the name is not the name of a known kind of file.
        OSError: the file cannot be read.
    """
    if path.suffix == LOG_SUFFIX:
        size_bytes = 0
        for row in _batches(path, decode if has_records else None, from_offset):
            size_bytes += row.get("size", 0)
            if bytes_max is not None and size_bytes > max(bytes_max, row.get("size", 0)):
                return
            yield row
        return
    read = _FILE_KINDS.get(path.suffix) or _FILE_NAMES.get(path.name)
    if read is None:
        known = ", ".join([LOG_SUFFIX, *_FILE_KINDS, *_FILE_NAMES])
        raise CorruptError(f"{path} is none of {known}")
    try:
        yield from read(path)
    except CorruptError as error:
        yield {"problem": str(error)}


def _batches(path: Path, decode: DecodeRecord | None, from_offset: int) -> Iterator[Row]:
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        position = 0
        while position < size_bytes:
            front = os.pread(file.fileno(), HEADER_BYTES, position)
            batch_bytes = stated_size(front)
            is_whole = 0 < batch_bytes <= size_bytes - position
            chunk = os.pread(file.fileno(), max(batch_bytes, _READ_BYTES), position) if is_whole else b""
            at = 0
            while (span := span_at(chunk, at)) is not None:
                # A damaged header may say that the batch ends before it begins; such a batch is not skipped.
                if not span[2] <= span[3] < from_offset:
                    yield _batch(position + at, chunk[at : at + span[1]], decode)
                at += span[1]
            if not at:
                left = size_bytes - position
                yield {"position": position, "problem": f"{left} bytes that are no whole batch of magic 2"}
                return
            position += at


def _batch(position: int, batch: bytes, decode: DecodeRecord | None) -> Row:
    header = read_header(batch)
    row: Row = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp_ms": header.max_timestamp,
        "size": header.size_bytes,
        "codec": Codec(header.codec).name.lower() if header.codec in set(Codec) else header.codec,
        "crc": header.crc,
        "is_valid": check_crc(batch),
    }
    if not row["is_valid"]:
        row["problem"] = "the checksum is wrong"
    elif decode is not None:
        try:
            row["records"] = [_record(record, header, decode) for record in read_records(batch, header=header)]
        except CorruptError as error:
            row["problem"] = str(error)
    return row


def _record(record: LogRecord, header: BatchHeader, decode: DecodeRecord) -> Row:
    row: Row = {"offset": record.offset, "timestamp_ms": record.timestamp}
    if header.base_sequence >= 0:
        row["sequence"] = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    if header.is_control:
        marker = read_marker(record)
        kind = None if marker is None else "COMMIT" if marker.committed else "ABORT"
        return row | {"marker": kind, "coordinator_epoch": marker.coordinator_epoch if marker else None}
    if record.headers:
        row["headers"] = {shown_key(key): _text(value) for key, value in record.headers}
    return row | decode(record.key, record.value)


def _base_offset(path: Path) -> int:
    base_offset = offset_of(path.name)
    if base_offset is None:
        raise CorruptError(f"{path}: a segment's files are named by an offset of twenty digits")
    return base_offset


def _entries(index: OffsetIndex | TimeIndex) -> Iterator[tuple[int, int]]:
    """The entries, without the zeros at the end of an index file of Apache Kafka's active segment."""
    index.load()
    for place in range(index.count):
        entry = index.entry(place)
        if entry == (0, 0):
            return
        yield entry
    if index.path.stat().st_size % index.ENTRY.size:
        raise CorruptError(f"{index.path}: the last entry is not whole")


def _offset_index(path: Path) -> Iterator[Row]:
    index = OffsetIndex(path, _base_offset(path), bytes_max=1 << 31)
    for relative, position in _entries(index):
        yield {"offset": index.base_offset + relative, "position": position}


def _time_index(path: Path) -> Iterator[Row]:
    index = TimeIndex(path, _base_offset(path), bytes_max=1 << 31)
    for timestamp_ms, relative in _entries(index):
        yield {"timestamp_ms": timestamp_ms, "offset": index.base_offset + relative}


def _aborted(path: Path) -> Iterator[Row]:
    for aborted in aborted_from_bytes(path.read_bytes(), str(path)):
        yield {field: getattr(aborted, field) for field in aborted.__struct_fields__}


def _checksums(path: Path) -> Iterator[Row]:
    found = read_checksums(path.read_bytes())
    if found is None:
        raise CorruptError(f"{path}: the file is not whole, or its checksum is wrong")
    *checksums, log_bytes = found
    names = found._fields[: len(checksums)]
    yield {name: f"{crc:08x}" for name, crc in zip(names, checksums, strict=True)} | {"log_bytes": log_bytes}


def _snapshot(path: Path) -> Iterator[Row]:
    for state in snapshot_from_bytes(path.read_bytes()):
        last = state.batches[-1] if state.batches else None
        yield {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_offset": state.transaction_offset,
            "timestamp_ms": state.timestamp_ms,
            "first_sequence": last.first_sequence if last else None,
            "last_sequence": last.last_sequence if last else None,
            "last_offset": last.last_offset if last else None,
        }


def _epochs(path: Path) -> Iterator[Row]:
    for leader_epoch, start_offset in EpochCache.from_text(path.read_text("utf-8", "replace")).entries:
        yield {"leader_epoch": leader_epoch, "start_offset": start_offset}


def _journal(path: Path) -> Iterator[Row]:
    for entry in read_journal([path]):
        yield _journal_entry(entry)


def _journal_entry(entry: JournalEntry) -> Row:
    row: Row = {
        "kind": _KINDS.get(entry.kind, entry.kind),
        "partition": str(entry.topic_partition),
        "topic_id": str(entry.topic_id),
    }
    if entry.kind == START:
        row["start_offset"] = entry.start_offset
    elif entry.kind == EPOCH:
        row["epoch"], row["start_offset"] = entry.leader_epoch
    elif entry.kind == APPEND:
        headers = [header for _, header in iter_batches(entry.content)]
        row |= {"batches": len(headers), "size": len(entry.content)}
        if headers:
            row |= {"base_offset": headers[0].base_offset, "last_offset": headers[-1].last_offset}
    return row


_FILE_KINDS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    TXN_INDEX_SUFFIX: _aborted,
    CHECKSUMS_SUFFIX: _checksums,
    SNAPSHOT_SUFFIX: _snapshot,
    ".journal": _journal,
}
_FILE_NAMES: Mapping[str, Callable[[Path], Iterator[Row]]] = {CHECKPOINT_NAME: _epochs}
