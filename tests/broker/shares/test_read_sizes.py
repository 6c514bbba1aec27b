"""A fetch reads few bytes first, and more if it may acquire more records than they have."""

import pytest

from kohort.broker.shares.log_batches import reaches
from kohort.broker.shares.share_reads import FEW_BYTES
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.shares.members import Member, configure, sharing

RECORD_BYTES = 1_000
BATCHES = 4 * FEW_BYTES // (10 * RECORD_BYTES)


@pytest.mark.parametrize("records_max", [1, 10, 11, 64, 65, 200, 10 * BATCHES, 10_000])
def test_as_many_records_are_acquired_as_with_one_large_read(records_max: int) -> None:
    harness = sharing()
    configure(harness, share_auto_offset_reset="earliest")
    topic_id = harness.create("t", 1)
    for _ in range(BATCHES):
        harness.write("t", *[b"v" * RECORD_BYTES] * 10)
    member = Member(harness, "m", topic_id)
    found = member.fetch(max_records=records_max, share_acquire_mode=1, batch_size=records_max)
    assert sum(last - first + 1 for first, last, _ in found) == min(records_max, 10 * BATCHES)


@pytest.mark.parametrize(("offset", "is_reached"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_whole_batches_reach_an_offset(offset: int, is_reached: bool) -> None:
    batches = [
        bytes(build_batch([BatchRecord(key=None, value=b"v")] * 2, timestamp_ms=0, base_offset=at)) for at in (0, 2, 4)
    ]
    data = b"".join(batches)
    assert reaches(data[:-1], offset) == is_reached
    assert reaches(data, 5)
    assert not reaches(data, 6)
