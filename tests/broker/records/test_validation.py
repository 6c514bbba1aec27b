"""Validation of producers' batches beyond the recorded tables: bounds, and batches that are stored in another form."""

import struct
import tracemalloc
from typing import Any

import pytest

from kohort.broker.ports import at_once
from kohort.broker.records.large_batches import LargeBatches, Steps
from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.validation import InvalidRecordsError, LargeBatch, validate_batch
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import BATCH_RECORDS_MAX, RECORD_ERRORS_MAX, UNORDERED_RECORDS_MAX
from kohort.storage.log import LONG_MAX
from kohort.wire.batch_header import (
    ATTRIBUTES_AT,
    ATTRIBUTES_LOW_AT,
    BASE_TIMESTAMP_AT,
    DELETE_HORIZON,
    HEADER_BYTES,
    TRANSACTIONAL,
)
from kohort.wire.batches import BatchRecord, build_batch, check_crc, read_header, read_records
from kohort.wire.compression import Codec, compress, decompress
from kohort.wire.produced import validate_produced
from tests.wire.hostile_batches import batch_of, corpus, equal_records, record_at

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def rules(**changed: Any) -> ProduceRules:
    """The rules of a topic without configuration, changed."""
    usual = {
        "is_compacted": False,
        "is_log_append_time": False,
        "timestamp_before_max_ms": LONG_MAX,
        "timestamp_after_max_ms": HOUR_MS,
        "codec": None,
    }
    return ProduceRules(**(usual | changed))


def taken(steps: Steps[Any]) -> Any:
    """Take all steps; what waits is resumed at once."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            return end.value
        if wait is not None:
            wait(lambda: None)


def validate(batch: bytes, **changed: Any) -> bytes | bytearray:
    """Validate a batch at once, or in steps if it is large."""
    header, topic = read_header(batch), rules(**changed)
    try:
        return validate_batch(batch, header, topic, NOW_MS)
    except LargeBatch:
        stored: bytes | bytearray = taken(LargeBatches(at_once).validate(batch, header, topic, NOW_MS, ""))
        return stored


def refused(batch: bytes, **changed: Any) -> CoordinatorError:
    with pytest.raises(CoordinatorError) as raised:
        validate(batch, **changed)
    return raised.value


def test_a_batch_that_breaks_no_rule_is_not_copied() -> None:
    for codec in Codec:
        batch = build_batch([BatchRecord(b"k", b"v")] * 3, timestamp_ms=NOW_MS, compression=codec)
        assert validate(batch) is batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_answer_lists_a_bounded_number_of_record_errors(codec: Codec) -> None:
    batch = build_batch([BatchRecord(None, b"v")] * (RECORD_ERRORS_MAX + 5), timestamp_ms=NOW_MS, compression=codec)
    error = refused(batch, is_compacted=True)
    assert isinstance(error, InvalidRecordsError)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [place for place, _ in error.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert f"due to {RECORD_ERRORS_MAX + 5} record errors in total" in str(error.message)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_records_stay_as_they_are_when_they_get_another_codec(source: Codec, target: Codec) -> None:
    records = [BatchRecord(b"k", bytes([n]) * n, [("h", None)], NOW_MS - n) for n in range(1, 30)]
    batch = build_batch(
        records, timestamp_ms=NOW_MS, compression=source, producer_id=7, producer_epoch=2, base_sequence=5
    )
    made = bytes(validate(batch, codec=int(target)))
    header = read_header(made)
    assert check_crc(made)
    assert header.size_bytes == len(made)
    assert header.codec == target
    assert (header.max_timestamp, header.record_count, header.last_offset_delta) == (NOW_MS - 1, 29, 28)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    before, after = (decompress(one[HEADER_BYTES:], read_header(one).codec) for one in (batch, made))
    assert before == after


def test_only_the_transactional_attribute_stays_when_records_get_another_codec() -> None:
    """Kafka builds the batch anew."""
    batch = bytearray(build_batch([BatchRecord(b"k", b"v")], timestamp_ms=NOW_MS, transactional=True))
    batch[ATTRIBUTES_AT] = 0x7F
    batch[ATTRIBUTES_LOW_AT] |= DELETE_HORIZON
    made = validate(bytes(batch), codec=int(Codec.GZIP))
    assert read_header(made).attributes == TRANSACTIONAL | Codec.GZIP


def test_a_timestamp_beyond_64_bits_wraps_around() -> None:
    """As in Java; the sum is within the limit here, and what it wraps to is not."""
    batch = bytearray(build_batch([BatchRecord(b"k", b"v", timestamp_ms=t) for t in (0, LONG_MAX)], timestamp_ms=0))
    struct.pack_into(">q", batch, BASE_TIMESTAMP_AT, NOW_MS)
    error = refused(bytes(batch), timestamp_after_max_ms=LONG_MAX)
    assert error.code == ErrorCode.INVALID_TIMESTAMP


def test_a_header_key_that_is_not_utf_8_gets_another_codec() -> None:
    batch = bytearray(build_batch([BatchRecord(b"k", b"v", [("header", b"value")])], timestamp_ms=NOW_MS))
    batch[batch.index(b"header")] = 0xFF
    made = validate(bytes(batch), codec=int(Codec.GZIP))
    assert b"\xffeader" in decompress(made[HEADER_BYTES:], Codec.GZIP)


def test_a_wrong_largest_timestamp_is_corrected() -> None:
    batch = bytearray(build_batch([BatchRecord(b"k", b"v")], timestamp_ms=NOW_MS))
    struct.pack_into(">q", batch, 35, NOW_MS + 5)
    made = bytes(validate(bytes(batch)))
    assert check_crc(made)
    assert read_header(made).max_timestamp == NOW_MS
    assert [record.timestamp for record in read_records(made)] == [NOW_MS]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_offsets_of_very_many_records_have_to_rise(codec: Codec) -> None:
    """Readers would refuse the batch, so no consumer and no cleaner would get past it."""
    count = UNORDERED_RECORDS_MAX + 1
    error = refused(batch_of(compress(equal_records(count), codec), codec, count))
    assert (error.code, str(error.message)) == (ErrorCode.INVALID_RECORD, "offsets do not rise: 0 follows 0")
    rising = b"".join(map(record_at, range(count)))
    made = validate(batch_of(compress(rising, codec), codec, count))
    assert len(read_records(bytes(made))) == count


@pytest.mark.parametrize("count", [1, 3_000], ids=["at once", "in steps"])
@pytest.mark.parametrize("codec", Codec)
def test_a_record_of_a_compressed_batch_has_a_bounded_size(codec: Codec, count: int) -> None:
    """`max.decompressed.message.bytes` is that of the record without its size. Seen on a 4.4.0, which has no message."""
    small = [BatchRecord(b"k", b"v")] * (count - 1)
    for value_bytes, is_refused in ((43, False), (44, codec is not Codec.NONE), (1_000, codec is not Codec.NONE)):
        batch = build_batch([*small, BatchRecord(b"k", b"v" * value_bytes)], timestamp_ms=NOW_MS, compression=codec)
        limit = 50 if count == 1 else 51  # an offset of one byte, or of two
        if is_refused:
            error = refused(batch, decompressed_bytes_max=limit)
            assert (error.code, error.message, type(error)) == (ErrorCode.INVALID_RECORD, None, CoordinatorError)
        else:
            assert validate(batch, decompressed_bytes_max=limit) == batch


@pytest.mark.parametrize("changed", [{"is_compacted": True}, {"timestamp_after_max_ms": -1}])
def test_a_large_record_is_judged_before_keys_and_timestamps(changed: dict[str, Any]) -> None:
    records = [BatchRecord(None, b"v"), BatchRecord(None, b"v" * 99)]
    batch = build_batch(records, timestamp_ms=NOW_MS, compression=Codec.GZIP)
    assert type(refused(batch, decompressed_bytes_max=50, **changed)) is CoordinatorError
    assert type(refused(batch, **changed)) is InvalidRecordsError


def test_a_batch_has_a_bounded_number_of_records() -> None:
    batch = batch_of(b"", Codec.ZSTD, BATCH_RECORDS_MAX + 1)
    with pytest.raises(CoordinatorError, match="1000001 records") as raised:
        validate_produced(batch, api_version=9)
    assert raised.value.code == ErrorCode.INVALID_RECORD


def test_validation_makes_no_objects_of_records() -> None:
    count = UNORDERED_RECORDS_MAX
    records = b"".join(map(record_at, range(count)))
    batch = batch_of(compress(records, Codec.ZSTD), Codec.ZSTD, count)
    tracemalloc.start()
    try:
        validate(batch, codec=int(Codec.LZ4))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(records)


@pytest.mark.parametrize("hostile", list(corpus()), ids=lambda one: f"{one.codec.name}, {one.name}")
def test_hostile_records_are_refused(hostile: Any) -> None:
    """UNKNOWN_SERVER_ERROR if they cannot be decompressed, INVALID_RECORD for records that are none, as Kafka."""
    code = refused(batch_of(hostile.packed, hostile.codec, 1)).code
    assert code == (ErrorCode.UNKNOWN_SERVER_ERROR if hostile.plain_bytes is None else ErrorCode.INVALID_RECORD)
