"""Batches that a load has read are checked: no flipped byte becomes a record or an offset."""

import pytest

from kohort.model.errors import CorruptError
from kohort.runtime.loading.checks import CHECKED_PER_STEP, check_batches
from kohort.wire.batch_header import LEADER_EPOCH_AT, MAGIC_AT
from kohort.wire.batches import encode_batch, stamp

COUNT, SIZE = 3, 3


def batch(base_offset: int) -> bytes:
    data = bytearray(encode_batch([(b"key %d" % index, b"value") for index in range(SIZE)], 1000))
    stamp(data, base_offset=base_offset, leader_epoch=5)
    return bytes(data)


BATCHES = [batch(base_offset) for base_offset in range(0, COUNT * SIZE, SIZE)]
DATA = b"".join(BATCHES)


def checked(data: bytes, start: int = 0, end: int = COUNT * SIZE) -> int:
    steps = check_batches(data, start, end)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return int(stop.value)


@pytest.mark.parametrize("bit", range(8))
def test_every_flip_is_found_except_in_the_leader_epoch(bit: int) -> None:
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= 1 << bit
        if LEADER_EPOCH_AT <= position % len(BATCHES[0]) < MAGIC_AT:
            assert checked(bytes(damaged)) == COUNT * SIZE
        else:
            with pytest.raises(CorruptError):
                checked(bytes(damaged))


@pytest.mark.parametrize("start", range(COUNT * SIZE))
def test_a_read_begins_with_the_batch_that_holds_its_offset(start: int) -> None:
    assert checked(b"".join(BATCHES[start // SIZE :]), start) == COUNT * SIZE


def test_compaction_leaves_gaps() -> None:
    assert checked(BATCHES[0] + BATCHES[2]) == COUNT * SIZE


# fmt: off
WRONG = {
    "cut":             (DATA[:-1], "no whole batch"),
    "cut in a header": (DATA[: -len(BATCHES[0]) + 20], "20 bytes behind offset 5"),
    "twice":           (BATCHES[0] + BATCHES[0], "0 to 2 begins where 3 to 8"),
    "in disorder":     (BATCHES[1] + BATCHES[0], "0 to 2 begins where 6 to 8"),
    "behind the end":  (DATA + batch(COUNT * SIZE), "9 to 11 begins where 9 to 8"),
}
# fmt: on


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    data, what = WRONG[case]
    with pytest.raises(CorruptError, match=what):
        checked(data)


def test_a_long_read_is_checked_in_steps() -> None:
    count = 2 * CHECKED_PER_STEP + 1
    data = b"".join(batch(number * SIZE) for number in range(count))
    assert sum(1 for _ in check_batches(data, 0, count * SIZE)) == 2
