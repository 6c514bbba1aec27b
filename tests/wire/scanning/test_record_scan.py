"""The scan of records: it agrees with a plain decoder on any bytes, and its memory does not depend on the number of records."""

import gzip
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import CorruptError
from kohort.model.limits import UNORDERED_RECORDS_MAX
from kohort.pipeline.decode.batches import scan as scan_segment
from kohort.pipeline.decode.records import windows
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_header, read_records
from kohort.wire.columnar.layout import BatchBuffer
from kohort.wire.compression import Codec, compress
from kohort.wire.scanning.record_scan import RecordReader, scan_records
from tests.wire.hostile_batches import batch_of, equal_between_ends, record_at
from tests.wire.plain_records import NotTextError, PlainRecord, RefusedError, plain_records
from tests.wire.sealed import drained, sealed
from tests.wire.test_batches import GOLDEN, NAMES, golden

BATCHES = st.lists(
    st.builds(
        BatchRecord,
        key=st.none() | st.binary(max_size=90),
        value=st.none() | st.binary(max_size=90),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2),
        timestamp_ms=st.integers(-(1 << 62), 1 << 62),
    ),
    min_size=1,
    max_size=6,
)


def summary(records: list[PlainRecord], base_ms: int) -> tuple[int, int, int, int, bool, int]:
    times = [record.timestamp - base_ms for record in records]
    offsets = [record.offset for record in records]
    is_rising = all(one < other for one, other in pairwise(offsets))
    null_keys = sum(record.key is None for record in records)
    return min(times), max(times), min(offsets), max(offsets), is_rising, null_keys


def scanned(batch: bytes) -> tuple[int, int, int, int, bool, int]:
    found = scan_records(batch, HEADER_BYTES, read_header(batch).record_count)
    times = found.earliest_delta, found.latest_delta
    return *times, found.lowest_offset_delta, found.highest_offset_delta, found.is_rising, found.null_keys


@given(BATCHES)
def test_records_as_clients_write_them(records: list[BatchRecord]) -> None:
    batch = build_batch(records, timestamp_ms=0)
    plain = plain_records(batch)
    assert plain is not None
    assert scanned(batch) == summary(plain, read_header(batch).base_timestamp)
    reader = RecordReader(batch, HEADER_BYTES)
    for record in plain:
        reader.read()
        sizes = (-1 if part is None else len(part) for part in (record.key, record.value))
        assert (reader.offset_delta, reader.key_bytes, reader.value_bytes) == (record.offset, *sizes)
    assert reader.position == len(batch)


@settings(max_examples=300)
@given(BATCHES, st.data())
def test_changed_bytes_are_accepted_or_refused_as_by_a_plain_decoder(
    records: list[BatchRecord], data: st.DataObject
) -> None:
    changed = bytearray(build_batch(records, timestamp_ms=0))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(HEADER_BYTES, len(changed) - 1))
        match data.draw(st.sampled_from(["set", "insert", "remove", "long"])):
            case "set":
                changed[place] = data.draw(st.integers(0, 255))
            case "insert":
                changed.insert(place, data.draw(st.integers(0, 255)))
            case "remove" if len(changed) > HEADER_BYTES + 1:
                del changed[place]
            case _:
                changed[place:place] = b"\x80" * data.draw(st.integers(1, 10))
    batch = sealed(changed)
    try:
        plain = plain_records(batch)
    except NotTextError:
        return
    except RefusedError:
        plain = None
    try:
        found = scanned(batch)
    except CorruptError:
        assert plain is None
        return
    if found[2] < 0 or found[3] >= len(records):
        assert plain is None
        return
    assert plain is not None
    assert found == summary(plain, read_header(batch).base_timestamp)


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_batches_of_kafka_are_well_formed(path: Path) -> None:
    segment, _ = golden(path)
    for position, header in iter_batches(segment):
        if header.codec in (Codec.NONE, Codec.GZIP) and not header.is_control:
            records = segment[position + HEADER_BYTES : position + header.size_bytes]
            plain = gzip.decompress(records) if header.codec else records
            assert scan_records(plain, 0, header.record_count).lowest_offset_delta >= 0


MALFORMED = {
    "a negative length":                  (b"\x0d\0\0\0\1\1\0", "a record has a length of -7"),
    "a length above its parts":           (b"\x0e\0\0\0\1\1\0\0", "a record of 7 bytes has 6 bytes"),
    "a length below its parts":           (b"\x0a\0\0\0\1\1\0", "a record of 5 bytes has 6 bytes"),
    "a key of length -2":                 (b"\x0c\0\0\0\3\1\0", "a key has a length of -2"),
    "a value of length -2":               (b"\x0c\0\0\0\1\3\0", "a value has a length of -2"),
    "a header with a null key":           (b"\x0e\0\0\0\1\1\2\1", "the key of a header has a length of -1"),
    "a header with a value of length -2": (b"\x10\0\0\0\1\1\2\0\3", "the value of a header has a length of -2"),
    "a negative number of headers":       (b"\x0c\0\0\0\1\1\1", "a record has -1 headers"),
    "2^31 - 1 headers":                   (b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", "the records end before"),
    "headers longer than the record":     (b"\x10\0\0\0\1\1\2\x40\1" + bytes(40), "longer than the record"),
    "a time of eleven bytes":             (b"\x20\0" + b"\x80" * 10 + b"\0\0\1\1\0", "has more than 10 bytes"),
    "a time of 65 bits":                  (b"\x1e\0" + b"\x80" * 9 + b"\2\0\1\1\0", "of 10 bytes is too large"),
    "an offset of six bytes":             (b"\x16\0\0" + b"\x80" * 5 + b"\0\1\1\0", "has more than 5 bytes"),
    "an offset of 33 bits":               (b"\x14\0\0" + b"\x80" * 4 + b"\x10\1\1\0", "of 5 bytes is too large"),
    "no byte":                            (b"", "the records end before there are 1"),
    "a piece":                            (b"\x0c\0\0\0\1", "the records end before there are 1"),
    "a value behind the end":             (b"\x0c\0\0\0\1\x40", "the records end before there are 1"),
    "a byte after it":                    (b"\x0c\0\0\0\1\1\0\0", "1 bytes after 1 records"),
}  # fmt: skip
"""A record without content, changed; and a part of the message."""


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records(name: str) -> None:
    records, message = MALFORMED[name]
    with pytest.raises(CorruptError, match=message):
        scan_records(records, 0, 1)


def test_a_header_key_need_not_be_utf_8() -> None:
    batch = bytearray(build_batch([BatchRecord(b"k", b"v", [("header", b"value")])], timestamp_ms=0))
    batch[batch.index(b"header")] = 0xFF
    scanned(bytes(batch))


# Many small records that compress well.

CHUNKS = 12
EQUAL = equal_between_ends(CHUNKS, UNORDERED_RECORDS_MAX)
COUNT = CHUNKS * UNORDERED_RECORDS_MAX
EQUAL_BATCH = batch_of(compress(EQUAL, Codec.ZSTD), Codec.ZSTD, COUNT)


def scan_all() -> None:
    scan_records(EQUAL, 0, COUNT, must_rise=True)


def read_one_by_one() -> None:
    read_records(EQUAL_BATCH)


def read_columns() -> None:
    buffer = BatchBuffer()
    buffer.add(EQUAL_BATCH, bytes_max=1 << 20)
    drained(buffer.parse())


def read_in_the_pipeline() -> None:
    (window,) = windows(scan_segment(EQUAL_BATCH))
    assert not len(window.positions)
    raise CorruptError(window.damage[0].problem)


@pytest.mark.parametrize("read", [scan_all, read_one_by_one, read_columns, read_in_the_pipeline])
def test_equal_records_between_rising_ones_are_refused_in_little_memory(read: Callable[[], None]) -> None:
    """Objects of these records would take 100 MB, columns 75 MB."""
    assert len(EQUAL_BATCH) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="rise"):
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (0 if read is scan_all else 4 * len(EQUAL)) + (1 << 20)


def test_a_scan_of_rising_records_takes_no_memory() -> None:
    count = 20_000
    records = b"".join(map(record_at, range(count)))
    tracemalloc.start()
    try:
        found = scan_records(records, 0, count, must_rise=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.lowest_offset_delta, found.highest_offset_delta) == (0, count - 1)
    assert peak < 4096
