"""
Columns of batch rows that a header does not state: the transaction marker, and the timestamp of the first record.

The header is enough for nearly all batches. Records are read in control batches, and for the timestamp in batches with a delete
horizon, which replaces the timestamp of the first record in the header. Unreadable records leave the column null.

Source: Kafka DefaultRecordBatch, MemoryRecordsBuilder (base timestamp), ControlRecordType, EndTransactionMarker; KIP-534
(delete horizon).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.pipeline.decode.batches import Scan
from kohort.pipeline.decode.records import WINDOW_BYTES, Records, parse, windows
from kohort.pipeline.decode.schemas import ABORT, COMMIT
from kohort.pipeline.decode.vectors import integers
from kohort.wire.batch_header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME
from kohort.wire.columnar.vectors import Ints, big_endian

_ENDS = (ABORT, COMMIT)
"""By type of control record."""
_NO_END = -1
_KEY_BYTES = 4
_VALUE_BYTES = 6


def markers(records: Records) -> list[dict[str, Any]]:
    """
    End-of-transaction markers as rows of the schema: their own columns, and `row`, the index into `records`. Other control
    records are skipped.
    """
    data = records.window.data
    readable = (records.key_bytes >= _KEY_BYTES) & (records.value_bytes >= _VALUE_BYTES)
    types = big_endian(data, np.where(readable, records.key_at + 2, 0), "i2")
    epochs = big_endian(data, np.where(readable, records.value_at + 2, 0), "i4")
    return [
        {"row": row, "control": _ENDS[types[row]], "coordinator_epoch": int(epochs[row])}
        for row in np.flatnonzero(readable & (types >= 0) & (types < len(_ENDS))).tolist()
    ]


def controls(found: Scan) -> pa.Array:
    """COMMIT or ABORT for each batch that ends a transaction, null for every other."""
    count = len(found.headers)
    chosen = np.flatnonzero(found.headers["attributes"] & CONTROL)
    if not len(chosen):
        return pa.nulls(count, pa.string())
    ends = np.full(count, _NO_END, np.int8)
    for records, batch in _records(found, chosen):
        for row in markers(records):
            ends[batch[row["row"]]] = _ENDS.index(row["control"])
    return pa.array(_ENDS, pa.string()).take(pa.array(ends, mask=ends == _NO_END))


def first_timestamps_ms(found: Scan) -> pa.Array:
    """
    The timestamp of each batch's first record; null for a batch without records. It is the batch's largest timestamp in a topic
    with LogAppendTime, and if the records cannot be read.
    """
    headers = found.headers
    is_appended = (headers["attributes"] & LOG_APPEND_TIME) != 0
    is_moved = (headers["attributes"] & DELETE_HORIZON) != 0
    first_ms = np.where(is_appended | is_moved, headers["max_timestamp"], headers["base_timestamp"]).astype(np.int64)
    chosen = np.flatnonzero(is_moved & ~is_appended)
    for records, batch in _records(found, chosen):
        batches, first = np.unique(batch, return_index=True)
        first_ms[batches] = records.timestamp_ms[first]
    return integers(first_ms, pa.int64(), headers["count"] > 0)


def _records(found: Scan, chosen: Ints) -> Iterator[tuple[Records, Ints]]:
    """The records of chosen batches, a window at a time, and for each record the index of its batch in `found`."""
    sizes = (found.ends - found.positions)[chosen]
    parts = np.split(chosen, np.flatnonzero(np.diff(np.cumsum(sizes) // WINDOW_BYTES)) + 1) if len(chosen) else ()
    for part in parts:
        places = zip(found.positions[part].tolist(), found.ends[part].tolist(), strict=True)
        pieces = [found.data[begin:end] for begin, end in places]
        # The batches are joined, so that the bytes between them are not copied.
        begins = np.cumsum([0, *(len(piece) for piece in pieces[:-1])])
        for window in windows(Scan(np.concatenate(pieces), begins, found.headers[part])):
            records = parse(window)
            yield records, part[np.searchsorted(begins, window.positions)[records.batch]]
