"""Logs as bytes, written independently of the decoder: batches by aiokafka's builder, records by hand."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment

TIMESTAMP_MS = 1_795_252_834_123

Pair = tuple[bytes | None, bytes | None]


def batch(
    base_offset: int,
    pairs: Sequence[Pair],
    *,
    codec: int = 0,
    timestamp_ms: int = TIMESTAMP_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    attributes: int = 0,
) -> bytes:
    """A record batch; `attributes` are set beside those of the codec."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        batch_size=1 << 30,
    )
    for index, (key, value) in enumerate(pairs):
        assert builder.append(index, timestamp_ms + index, key, value, []) is not None
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, base_offset)
    (flags,) = struct.unpack_from(">h", raw, 21)
    struct.pack_into(">h", raw, 21, flags | attributes)
    return sealed(raw)


def sealed(raw: bytearray) -> bytes:
    """The batch with the CRC that its bytes have now."""
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return bytes(raw)


def marker(base_offset: int, producer_id: int, *, committed: bool, coordinator_epoch: int = 0) -> bytes:
    """A control batch of one end-of-transaction marker."""
    pair = (struct.pack(">hh", 0, int(committed)), struct.pack(">hi", 0, coordinator_epoch))
    return batch(base_offset, [pair], producer_id=producer_id, producer_epoch=0, attributes=0x30)


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def offset_key(group: str, topic: str, partition: int, *, key_type: int = 1) -> bytes:
    return struct.pack(">h", key_type) + string(group) + string(topic) + struct.pack(">i", partition)


def offset_value(offset: int, *, metadata: str = "", leader_epoch: int = -1, at_ms: int = TIMESTAMP_MS) -> bytes:
    """Value version 3."""
    return struct.pack(">hqi", 3, offset, leader_epoch) + string(metadata) + struct.pack(">q", at_ms)


def flexible_offset_value(offset: int, metadata: bytes, tags: bytes, *, at_ms: int = TIMESTAMP_MS) -> bytes:
    """Value version 4; `metadata` with its length in front, `tags` with their count."""
    return struct.pack(">hqi", 4, offset, 5) + metadata + struct.pack(">q", at_ms) + tags


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def segment(
    path: Path | None = None, *, topic: str = "__consumer_offsets", partition: int = 0, base: int = 0
) -> Segment:
    """A segment; written nowhere when there is no path."""
    name = str(path or f"/nowhere/{topic}-{partition}/{base:020}.log")
    return Segment(topic, partition, base, name, path.stat().st_size if path else 0)


def decode_directory(segments: Iterable[Segment], decoder: Decoder) -> pa.Table:
    """All rows of some segments as one table."""
    batches = [rows for segment in segments for rows in decoder.decode_file(segment)]
    return pa.Table.from_batches(batches, schema=decoder.schema)
