"""The search for a time among the records of one batch gives what a list of its records gives."""

import threading
from random import Random

import pytest

from kohort.storage.logs import timestamps
from kohort.storage.logs.timestamps import first_at_least, newest_from
from kohort.wire.batch_header import ATTRIBUTES_AT
from kohort.wire.batches import BatchRecord, build_batch, read_records
from kohort.wire.compression import Codec
from kohort.wire.scanning.record_windows import STEP_RECORDS

TIMES_MS = (100, 5, 300, 300, 200, 7, 250)
LOG_APPEND_TIME = 0x08


def batch_of(codec: Codec, *, value_bytes: int = 3, count: int = len(TIMES_MS), base_offset: int = 40) -> bytes:
    records = [
        BatchRecord(b"k", bytes(value_bytes), headers=(("h", b"x"),), timestamp_ms=TIMES_MS[number % len(TIMES_MS)])
        for number in range(count)
    ]
    return build_batch(records, timestamp_ms=0, compression=codec, base_offset=base_offset)


@pytest.mark.parametrize("value_bytes", [3, 40_000])
@pytest.mark.parametrize("codec", Codec)
def test_every_time_from_every_offset(codec: Codec, value_bytes: int) -> None:
    batch = batch_of(codec, value_bytes=value_bytes)
    records = [(record.offset, record.timestamp) for record in read_records(batch)]
    for offset_min in range(39, 49):
        above = [record for record in records if record[0] >= offset_min]
        assert newest_from(batch, offset_min) == max((time_ms for _, time_ms in above), default=-1)
        for timestamp_ms in (-1, 0, *TIMES_MS, 301):
            expected = next((record for record in above if record[1] >= timestamp_ms), None)
            found = first_at_least(batch, timestamp_ms, offset_min)
            assert (None if found is None else (found.offset, found.timestamp_ms)) == expected


def test_more_records_than_one_step_has() -> None:
    batch = batch_of(Codec.GZIP, count=3 * STEP_RECORDS + Random().randrange(STEP_RECORDS))
    assert first_at_least(batch, 301, 0) is None
    last = read_records(batch)[-1]
    found = first_at_least(batch, 0, last.offset)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (last.offset, last.timestamp)


def test_records_with_the_time_of_their_append() -> None:
    """All have the largest timestamp of the header."""
    batch = bytearray(batch_of(Codec.NONE))
    batch[ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME
    found = first_at_least(bytes(batch), 300, 41)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (41, 300)
    assert newest_from(bytes(batch), 45) == 300


def test_one_batch_is_decompressed_at_a_time() -> None:
    """Sixteen searches at a time would take two gigabytes."""
    batch = batch_of(Codec.GZIP)
    thread = threading.Thread(target=first_at_least, args=(batch, 301, 0))
    with timestamps._one_at_a_time:
        thread.start()
        assert first_at_least(batch_of(Codec.NONE), 0, 0) is not None, "no other room is needed"
        assert thread.is_alive()
    thread.join()
    assert first_at_least(batch, 0, 0) is not None, "the room is free after a search that has not read to the end"
