"""What a share partition with 100 000 records in flight takes, no two neighbours of which are alike."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from kohort.broker.shares.acknowledgement import Acknowledgement, AcknowledgementBatch, commit
from kohort.broker.shares.acquisition import BATCH_OPTIMIZED, Acquisition, LogBatches
from kohort.broker.shares.record_states import ACCEPT, ACKNOWLEDGED, AVAILABLE, RELEASE, ShareSettings
from kohort.broker.shares.share_partition import SharePartition
from kohort.machine.ports import StateBatch

COUNT = 100_000


def alternating() -> list[StateBatch]:
    return [StateBatch(offset, offset, ACKNOWLEDGED if offset % 2 else AVAILABLE, 1) for offset in range(COUNT)]


def test_a_loaded_share_partition_is_small_and_quickly_loaded() -> None:
    batches = alternating()
    partition = SharePartition(0)
    tracemalloc.start()
    try:
        partition.load(batches)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 5_000_000
    assert peak < 10_000_000
    assert (partition.start_offset, partition.end_offset) == (0, COUNT - 1)
    assert partition.complete_count == COUNT // 2


@pytest.mark.parametrize("kinds", [[ACCEPT, RELEASE], [RELEASE, ACCEPT]], ids=["start moves", "start stays"])
def test_every_second_record_of_many_is_acknowledged(kinds: list[int]) -> None:
    settings = ShareSettings(locks_max=COUNT)
    partition = SharePartition(0)
    log = LogBatches(range(0, COUNT, 100), range(99, COUNT, 100))
    Acquisition(partition, "m", BATCH_OPTIMIZED, 500, 0, settings).acquire(COUNT, 0, log)
    begun = time.process_time()
    change = Acknowledgement(partition, "m", 0, settings).acknowledge(
        [AcknowledgementBatch(0, COUNT - 1, kinds * (COUNT // 2))]
    )
    commit(partition, change)
    assert time.process_time() - begun < 5
    assert len(partition.runs) in (COUNT, COUNT - 1)
    assert partition.start_offset == (1 if kinds[0] == ACCEPT else 0)
    # What is next is found without a walk over what is done.
    assert partition.next_offset() == partition.start_offset
