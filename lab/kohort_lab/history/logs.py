"""
Logs in memory that can be appended to, compacted as Kafka does, and written as segment files: batches of any codec, gaps where
records were removed, transaction markers, a torn end.

This module shares no code with the decoder that it tests, except the layout of batch headers.

Source: Kafka DefaultRecordBatch, DefaultRecord, EndTransactionMarker, Cleaner, LogCleaner.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crc32c import crc32c

from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
)
from kohort.wire.compression import Codec, compress
from kohort.wire.primitives import write_varint

COMMIT, ABORT = "COMMIT", "ABORT"

_NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class Record:
    """A record with the facts that it was made of, so that a test need not decode it."""

    key: bytes | None
    value: bytes | None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """
    A batch of a log.

    Attributes:
        records: by offset; compaction removes some and keeps the offsets of the batch.
        marker: COMMIT or ABORT for a transaction marker.
        open_ms: the first record has a timestamp that many milliseconds before `at_ms`, the timestamp of all others.
    """

    base_offset: int
    last_offset: int
    at_ms: int
    records: dict[int, Record]
    producer_id: int = _NO_PRODUCER
    producer_epoch: int = -1
    transactional: bool = False
    marker: str | None = None
    codec: Codec = Codec.NONE
    open_ms: int = 0

    @property
    def began_ms(self) -> int:
        """The timestamp of the first remaining record."""
        return self.at_ms - (self.open_ms if self.base_offset in self.records else 0)

    def encoded(self) -> bytes:
        """The batch as bytes."""
        body = bytearray()
        for index, (offset, record) in enumerate(self.records.items()):
            body += _record(offset - self.base_offset, record, delta_ms=self.at_ms - self.began_ms if index else 0)
        packed = compress(bytes(body), self.codec)
        attributes = int(self.codec) | (TRANSACTIONAL if self.transactional else 0)
        attributes |= CONTROL if self.marker is not None else 0
        header = HEADER.pack(
            *(self.base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed), 0, MAGIC, 0, attributes),
            *(self.last_offset - self.base_offset, self.began_ms, self.at_ms, self.producer_id, self.producer_epoch),
            *(-1 if self.marker is not None or self.producer_id < 0 else 0, len(self.records)),
        )
        raw = bytearray(header + packed)
        raw[CRC_AT:ATTRIBUTES_AT] = crc32c(bytes(raw[ATTRIBUTES_AT:])).to_bytes(4, "big")
        return bytes(raw)


def _record(offset_delta: int, record: Record, *, delta_ms: int) -> bytes:
    body = bytearray(b"\x00")
    write_varint(body, delta_ms)
    write_varint(body, offset_delta)
    for part in (record.key, record.value):
        write_varint(body, -1 if part is None else len(part))
        body += part or b""
    write_varint(body, 0)
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)


@dataclass(slots=True)
class Log:
    """The log of one partition, from the first remaining batch."""

    topic: str
    partition: int
    batches: list[Batch] = field(default_factory=list)
    next_offset: int = 0
    clean_until: int = 0

    def append(
        self,
        records: Iterable[Record],
        at_ms: int,
        *,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        open_ms: int = 0,
    ) -> Batch:
        """Append a batch; `producer` is id and epoch. `open_ms` has no effect on a batch of one record."""
        base = self.next_offset
        numbered = dict(enumerate(records, base))
        producer_id, producer_epoch = producer or (_NO_PRODUCER, -1)
        batch = Batch(base, base + len(numbered) - 1, at_ms, numbered, producer_id, producer_epoch, transactional)
        batch.codec = codec
        batch.open_ms = open_ms if len(numbered) > 1 else 0
        return self._appended(batch)

    def mark(self, kind: str, at_ms: int, *, producer: tuple[int, int]) -> Batch:
        """Append the marker that ends a producer's transaction in this log."""
        key = b"\x00\x00" + (b"\x00\x01" if kind == COMMIT else b"\x00\x00")
        record = Record(key, b"\x00\x00" + bytes(4))
        at = self.next_offset
        return self._appended(Batch(at, at, at_ms, {at: record}, *producer, transactional=True, marker=kind))

    def _appended(self, batch: Batch) -> Batch:
        self.batches.append(batch)
        self.next_offset = batch.last_offset + 1
        return batch

    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction; the end offset if none is open."""
        began: dict[int, int] = {}
        for batch in self.batches:
            if batch.marker is not None:
                began.pop(batch.producer_id, None)
            elif batch.transactional:
                began.setdefault(batch.producer_id, batch.base_offset)
        return min(began.values(), default=self.next_offset)

    def clean(self, until: int, *, drop_tombstones: bool) -> None:
        """
        Compact the log before `until`: the last record of each key stays, and no record of an aborted transaction.

        Args:
            until: the first offset of a batch; records from the last stable offset on stay in any case.
            drop_tombstones: the delete horizon of tombstones has passed.
        """
        limit = min(until, self.last_stable_offset())
        aborted = self._aborted(limit)
        newest: dict[bytes | None, int] = {}
        for batch in self.batches:
            if batch.last_offset < limit and batch.marker is None and batch.base_offset not in aborted:
                newest |= {record.key: offset for offset, record in batch.records.items()}
        kept = [self._cleaned(batch, limit, aborted, newest, drop_tombstones) for batch in self.batches]
        self.batches = [batch for batch in kept if batch is not None]
        self.clean_until = max(self.clean_until, limit)

    def _aborted(self, limit: int) -> set[int]:
        """The base offsets of batches whose transaction was aborted."""
        open_: dict[int, list[int]] = {}
        found: set[int] = set()
        for batch in self.batches:
            if batch.last_offset >= limit and batch.marker is None:
                continue
            if batch.marker is not None:
                ended = open_.pop(batch.producer_id, [])
                found |= set(ended) if batch.marker == ABORT else set()
            elif batch.transactional:
                open_.setdefault(batch.producer_id, []).append(batch.base_offset)
        return found

    @staticmethod
    def _cleaned(
        batch: Batch, limit: int, aborted: set[int], newest: dict[bytes | None, int], drop_tombstones: bool
    ) -> Batch | None:
        if batch.last_offset >= limit or batch.marker is not None:
            # Kafka removes a marker some time after the records of its transaction; here it stays.
            return batch
        batch.records = {
            offset: record
            for offset, record in batch.records.items()
            if batch.base_offset not in aborted and newest[record.key] == offset
            if record.value is not None or not drop_tombstones
        }
        return batch if batch.records else None

    def drop_before(self, offset: int) -> None:
        """Remove the batches that end before `offset`, as retention does."""
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]

    def write(self, directory: Path, *, batches_per_segment: int, torn_bytes: int = 0) -> Path:
        """
        Write the log as segment files in `<directory>/<topic>-<partition>/` and return the last file.

        Args:
            torn_bytes: the bytes that are cut off the last file.
        """
        topic_partition = directory / f"{self.topic}-{self.partition}"
        topic_partition.mkdir(parents=True)
        segments: Sequence[Sequence[Batch]] = [
            self.batches[first : first + batches_per_segment]
            for first in range(0, len(self.batches), batches_per_segment)
        ]
        path = topic_partition / f"{self.next_offset if not segments else segments[0][0].base_offset:020}.log"
        path.write_bytes(b"")
        for segment in segments:
            path = topic_partition / f"{segment[0].base_offset:020}.log"
            path.write_bytes(b"".join(batch.encoded() for batch in segment))
        if torn_bytes:
            path.write_bytes(path.read_bytes()[:-torn_bytes])
        return path
