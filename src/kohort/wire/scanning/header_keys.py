"""
Records with header keys that are not UTF-8, read and written without a loss.

The protocol calls the key of a header a string, and no broker checks it: clients outside the JVM send any bytes. Java replaces
bytes that it cannot decode, also when a log is compacted. Here such bytes are surrogates (PEP 383), so that the key that is
written is the key that was read. Native code refuses such records; these functions are for the few batches that have them.
"""

from typing import Any, Final

import msgspec

from kohort.wire.batch_header import as_long
from kohort.wire.primitives import write_varint
from kohort.wire.scanning.record_scan import read_size, read_time, scan_records

ERRORS: Final = "surrogateescape"


class AnyRecord(msgspec.Struct, frozen=True, gc=False):
    """A `kohort.wire.batches.LogRecord`."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_any_records(
    data: bytes, position: int, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[AnyRecord]:
    """
    Read `count` records that fill the data from a position on.

    Args:
        append_time: the time of all records, if the batch has the time of its append.

    Raises:
        CorruptError: a record is malformed, or there are more or fewer records.
    """
    scan_records(data, position, count)
    records = []
    for _ in range(count):
        _, position = read_size(data, position)
        timestamp_delta, position = read_time(data, position + 1)
        offset_delta, position = read_size(data, position)
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        header_count, position = read_size(data, position)
        headers = []
        for _ in range(header_count):
            header_key, position = _read_bytes(data, position)
            header_value, position = _read_bytes(data, position)
            headers.append(((header_key or b"").decode(errors=ERRORS), header_value))
        timestamp = as_long(base_timestamp + timestamp_delta) if append_time is None else append_time
        records.append(AnyRecord(base_offset + offset_delta, timestamp, key, value, headers))
    return records


def write_any_record(out: bytearray, record: Any, *, base_offset: int, base_timestamp: int) -> None:
    """Append the bytes of a record whose header keys may have surrogates; its time as a delta modulo 2^64, as in Java."""
    body = bytearray(1)  # attributes
    write_varint(body, as_long(record.timestamp - base_timestamp))
    write_varint(body, record.offset - base_offset)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, key.encode(errors=ERRORS))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def shown_key(key: str) -> str:
    """The key of a header for people: replacement characters for bytes that are not UTF-8."""
    return key.encode(errors=ERRORS).decode(errors="replace")


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_size(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value
