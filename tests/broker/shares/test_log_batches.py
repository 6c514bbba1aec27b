"""Batches of a log as share partitions see them: their bytes, and those of aborted transactions."""

from kohort.broker.shares.log_batches import ReadBatches
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batches import BatchRecord, build_batch


def made(base_offset: int, count: int, producer_id: int = -1, *, control: bool = False) -> bytes:
    records = [BatchRecord(b"k", b"v") for _ in range(count)]
    return build_batch(
        records,
        timestamp_ms=0,
        producer_id=producer_id,
        transactional=producer_id >= 0,
        control=control,
        base_offset=base_offset,
    )


def test_the_bytes_between_two_offsets_are_whole_batches() -> None:
    batches = [made(0, 3), made(3, 2), made(10, 1)]
    read = ReadBatches(b"".join(batches) + made(11, 1)[:50])
    assert (list(read.offsets.firsts), list(read.offsets.lasts)) == ([0, 3, 10], [2, 4, 10])
    assert read.between(1, 1) == batches[0]
    assert read.between(2, 3) == batches[0] + batches[1]
    assert read.between(4, 10) == batches[1] + batches[2]
    assert read.between(6, 8) == b""
    assert ReadBatches(b"").between(0, 9) == b""


def test_a_producer_aborts_and_then_commits() -> None:
    data = made(0, 2, 7) + made(2, 1, 8) + made(3, 1, 7, control=True) + made(4, 2, 7) + made(6, 1)
    aborted = ReadBatches(data).aborted([AbortedTxn(7, 0, 3, 3)])
    assert aborted == [(0, 1)]
    both = [AbortedTxn(8, 2, 9, 9), AbortedTxn(7, 0, 3, 3)]
    assert ReadBatches(data).aborted(both) == [(0, 1), (2, 2)]


def test_batches_behind_what_is_wanted_are_left_out() -> None:
    data = made(4, 3) + made(7, 2) + made(9, 1)
    lasts = {
        (offset, count): list(ReadBatches(data, offset, count).offsets.lasts)
        for offset, count in ((5, 2), (5, 3), (5, 4), (5, 5), (0, 3), (0, 4), (5, 0))
    }
    assert lasts == {
        (5, 2): [6],
        (5, 3): [6, 8],
        (5, 4): [6, 8],
        (5, 5): [6, 8, 9],
        # The first batch begins behind the offset.
        (0, 3): [6],
        (0, 4): [6, 8],
        (5, 0): [6, 8, 9],
    }
    assert ReadBatches(data, 5, 2).between(5, 6) == made(4, 3)
