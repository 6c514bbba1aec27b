"""
Files beside a segment that tell of transactions: the producers' snapshot before it, and the index of aborted transactions.

- `<base offset>.snapshot`: version int16 (1), CRC-32C uint32 of what follows, count int32; then per producer: id int64, epoch
  int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of
  its open transaction int64 (-1: none).
- `<base offset>.txnindex`: for each aborted transaction whose marker is in the segment: version int16 (0), producer id, first
  offset, last offset and last stable offset, int64 each.

Source: Kafka ProducerStateManager.readSnapshot, ProducerSnapshot.json, TransactionIndex, AbortedTxn.
"""

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kohort.model.errors import CorruptError
from kohort.pipeline.decode.checksums import crc32c
from kohort.pipeline.decode.segments import Segment

_SNAPSHOT_VERSION = 1
_SNAPSHOT = Struct(">hIi")
_CRC_COVERS_FROM = 6
_PRODUCER = Struct(">q18xq4xq")
_ABORTED_VERSION = 0
_ABORTED = Struct(">hqqqq")


class OpenTransaction(NamedTuple):
    """The first offset of a transaction in a log, and the timestamp of its last batch."""

    first_offset: int
    last_ms: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction: first offset, offset of the marker, and the last stable offset when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def open_before(segment: Segment) -> dict[int, OpenTransaction] | None:
    """Return the transactions that were open when a segment began, by producer id; None without a whole snapshot."""
    try:
        data = Path(segment.path).with_suffix(".snapshot").read_bytes()
    except OSError:
        return None
    if len(data) < _SNAPSHOT.size:
        return None
    version, crc, count = _SNAPSHOT.unpack_from(data)
    is_whole = len(data) == _SNAPSHOT.size + count * _PRODUCER.size
    if version != _SNAPSHOT_VERSION or not is_whole or crc != crc32c(memoryview(data)[_CRC_COVERS_FROM:]):
        return None
    producers = _PRODUCER.iter_unpack(data[_SNAPSHOT.size :])
    return {producer_id: OpenTransaction(first, at_ms) for producer_id, at_ms, first in producers if first >= 0}


def aborted_in(segment: Segment) -> list[AbortedTransaction]:
    """
    Return the transactions that markers in a segment abort, by rising offset of the marker.

    Raises:
        CorruptError: the index is damaged.
    """
    path = Path(segment.path).with_suffix(".txnindex")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    # A broker may be appending an entry.
    entries = list(_ABORTED.iter_unpack(data[: len(data) - len(data) % _ABORTED.size]))
    if any(version != _ABORTED_VERSION for version, *_ in entries):
        raise CorruptError(f"{path}: an entry of another version than {_ABORTED_VERSION}")
    return [AbortedTransaction(*fields) for _, *fields in entries]
