"""Keys of headers need not be UTF-8: they are read, compacted and shown, and no byte of them is lost."""

import struct

import pytest

from kohort.model.errors import CorruptError
from kohort.storage.cleaning.batches import rebuild
from kohort.storage.logs.timestamps import first_at_least
from kohort.storage.tools.dump import _batch, as_text
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records
from kohort.wire.compression import Codec, compress
from tests.wire.sealed import sealed

PLACE = b"header-key"
BYTES = b"\xc1\xff\x80key\xed\xa0\x80"


def batch_of(*, codec: Codec = Codec.NONE, log_append_time: bool = False) -> bytes:
    """Three records, the second with a header whose key is no text. The 10 bytes of another key are replaced."""
    assert len(PLACE) == len(BYTES) + 1
    records = [
        BatchRecord(b"a", b"1", timestamp_ms=5),
        BatchRecord(b"b", b"2", headers=[("x", None), ("header-key", b"h")], timestamp_ms=3),
        BatchRecord(None, None, timestamp_ms=9),
    ]
    batch = bytearray(build_batch(records, timestamp_ms=5, base_offset=40))
    batch[batch.index(PLACE) : batch.index(PLACE) + len(PLACE)] = b"k" + BYTES
    if log_append_time:
        batch[22] |= 8
        batch[35:43] = struct.pack(">q", 77)
    if codec:
        batch[61:] = compress(bytes(batch[61:]), codec)
        batch[22] |= codec
    return sealed(batch)


@pytest.mark.parametrize("codec", Codec)
def test_they_are_read(codec: Codec) -> None:
    found = read_records(batch_of(codec=codec))
    assert [(record.offset, record.timestamp, record.key, record.value) for record in found] == [
        (40, 5, b"a", b"1"),
        (41, 3, b"b", b"2"),
        (42, 9, None, None),
    ]
    (empty, last) = found[1].headers
    assert empty == ("x", None)
    assert last[0].encode(errors="surrogateescape") == b"k" + BYTES
    assert last[1] == b"h"


def test_records_of_a_topic_with_append_time_have_the_time_of_the_batch() -> None:
    assert [record.timestamp for record in read_records(batch_of(log_append_time=True))] == [77, 77, 77]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("delete_horizon_ms", [-1, 1_000])
def test_a_compacted_batch_has_the_same_bytes(codec: Codec, delete_horizon_ms: int) -> None:
    """Kafka's cleaner writes replacement characters in their place."""
    batch = batch_of(codec=codec)
    kept = read_records(batch)[1:]
    again = rebuild(read_header(batch), kept, delete_horizon_ms=delete_horizon_ms)
    header = read_header(again)
    assert (header.record_count, header.codec, header.base_offset) == (2, codec, 40)
    found = [
        (record.offset, record.timestamp, record.key, record.value, record.headers) for record in read_records(again)
    ]
    assert found == [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in kept]


def test_a_record_is_found_by_its_time() -> None:
    found = first_at_least(batch_of(), 9, 0)
    assert found is not None
    assert found.offset == 42


def test_they_are_shown_with_replacement_characters() -> None:
    row = _batch(0, batch_of(), as_text)
    assert list(row["records"][1]["headers"]) == ["x", "k" + BYTES.decode(errors="replace")]


def test_damage_beside_them_is_damage() -> None:
    batch = bytearray(batch_of())
    with pytest.raises(CorruptError):
        read_records(sealed(batch[:-3]))
