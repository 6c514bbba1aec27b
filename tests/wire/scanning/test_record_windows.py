"""The scan in steps: it gives the result of the scan at once, for any bytes, and no step is long."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import CorruptError
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, read_header
from kohort.wire.scanning.record_scan import RecordScan, scan_records
from kohort.wire.scanning.record_windows import STEP_HEADERS, STEP_RECORDS, RecordWindows, scan_in_steps

_WINDOW = 1 << 16
"""Not much more than the largest record that is read at once."""

BATCHES = st.lists(
    st.builds(
        BatchRecord,
        key=st.none() | st.integers(0, 40_000).map(bytes),
        value=st.none() | st.integers(0, 140_000).map(bytes),
        headers=st.lists(
            st.tuples(st.text(max_size=3), st.none() | st.sampled_from([b"", b"x", bytes(9_000)])), max_size=3
        ),
        timestamp_ms=st.integers(-(1 << 62), 1 << 62),
    ),
    min_size=1,
    max_size=8,
)


def driven(steps: Generator[None, None, RecordScan]) -> tuple[RecordScan, int]:
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number
        number += 1


# Compiled classes have no `__slots__`.
FIELDS = ("earliest_delta", "highest_offset_delta", "is_rising", "latest_delta", "lowest_offset_delta", "null_keys")


def outcome(scan: Callable[[], RecordScan]) -> Any:
    try:
        found = scan()
    except CorruptError:
        return "corrupt"
    return {name: getattr(found, name) for name in FIELDS}


def both(batch: bytes, count: int, *, must_rise: bool = False) -> tuple[Any, Any]:
    reader = RecordWindows(batch, HEADER_BYTES, _WINDOW)
    return (
        outcome(lambda: scan_records(batch, HEADER_BYTES, count, must_rise=must_rise)),
        outcome(lambda: driven(scan_in_steps(reader, count, must_rise=must_rise))[0]),
    )


DAMAGE = st.lists(st.tuples(st.integers(0, 1 << 20) | st.integers(0, 40), st.integers(0, 255)), max_size=3)


@given(BATCHES, DAMAGE, st.sampled_from([0, 0, 1, 9]), st.integers(0, 1), st.booleans())
@settings(max_examples=150)
def test_both_scans_agree_on_sound_and_damaged_records(
    records: list[BatchRecord], damage: list[tuple[int, int]], cut: int, more: int, must_rise: bool
) -> None:
    batch = bytearray(build_batch(records, timestamp_ms=5))
    at_once, in_steps = both(bytes(batch), len(records))
    assert in_steps == at_once != "corrupt"
    for place, byte in damage:
        batch[HEADER_BYTES + place % (len(batch) - HEADER_BYTES)] = byte
    del batch[len(batch) - cut :]
    for count in (len(records), len(records) + more):
        at_once, in_steps = both(bytes(batch), count, must_rise=must_rise)
        assert in_steps == at_once


def test_many_small_records_are_scanned_in_steps_across_windows() -> None:
    records = [BatchRecord(b"", bytes(number % 90)) for number in range(20_000)]
    batch = build_batch(records, timestamp_ms=1)
    count = read_header(batch).record_count
    scan, steps = driven(scan_in_steps(RecordWindows(batch, HEADER_BYTES), count, must_rise=True))
    assert scan.is_rising
    assert scan.highest_offset_delta == count - 1
    assert steps >= count // STEP_RECORDS - 1


@pytest.mark.parametrize("headers", [50_000, 50_001])
def test_the_headers_of_one_record_are_scanned_in_steps(headers: int) -> None:
    batch = build_batch([BatchRecord(b"k", b"v", [("", None)] * headers)], timestamp_ms=1)
    scan, steps = driven(scan_in_steps(RecordWindows(batch, HEADER_BYTES), 1))
    assert scan.highest_offset_delta == 0
    assert steps >= headers // STEP_HEADERS - 1


def test_a_small_record_that_claims_many_headers_is_corrupt() -> None:
    """Found by coverage-guided fuzzing: the bound of headers that are read at once is not one of the scan in steps."""
    body = bytes.fromhex("1a2bb20000001a0000c8868686868786867979798e8f8e8f010030000079797979")
    with pytest.raises(CorruptError):
        driven(scan_in_steps(RecordWindows(body, 0), 41))
