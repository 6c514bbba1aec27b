"""Batches with a wrong base offset or leader epoch, which no checksum covers, in reads of every size."""

from pathlib import Path

import pytest

from kohort.model.errors import StorageError
from kohort.storage.batchset import iter_spans
from kohort.storage.log import LogConfig
from kohort.wire.batch_header import LEADER_EPOCH_AT
from kohort.wire.batches import read_header
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

CONFIG = LogConfig(index_interval_bytes=100)
COUNT = 12
SIZES = (1, 400, 1 << 20)
NUMBERS = (0, 3, 4, 9, 10, 11)
"""The first and last batches of the log, of an epoch, and behind the last index entry."""


def left_behind(base: Path) -> Path:
    store = Owner().disk(base)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    for number in range(COUNT):
        log.append(batch(f"value {number:3}"), leader_epoch=number // 4)
    store.close()
    (path,) = (base / str(PARTITION)).glob("*.log")
    return path


def put(path: Path, number: int, at: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    start = list(iter_spans(bytes(content)))[number][0] + at
    content[start : start + len(value)] = value
    path.write_bytes(content)


@pytest.mark.parametrize("bytes_max", SIZES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("wrong", [0, 1 << 8, (1 << 31) - 1, -1])
def test_readers_get_the_leader_epoch_of_the_cache(base: Path, number: int, wrong: int, bytes_max: int) -> None:
    put(left_behind(base), number, LEADER_EPOCH_AT, wrong.to_bytes(4, "big", signed=True))
    store = Owner().disk(base)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    found, offset = [], 0
    while data := log.read(offset, bytes_max=bytes_max):
        for start, _, base_offset, last_offset, _ in iter_spans(data):
            found.append((base_offset, read_header(data, start).partition_leader_epoch))
            offset = last_offset + 1
    assert found == [(each, each // 4) for each in range(COUNT)]
    store.close()


@pytest.mark.parametrize("bytes_max", SIZES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("bit", [0, 1, 2, 3, 8, 40])
def test_no_batch_with_a_wrong_offset_is_served_or_skipped(base: Path, number: int, bit: int, bytes_max: int) -> None:
    put(left_behind(base), number, 0, (number ^ 1 << bit).to_bytes(8, "big"))
    store = Owner().disk(base)
    for begin in range(COUNT):
        try:
            data = store.open(PARTITION, TOPIC_ID, CONFIG).read(begin, bytes_max=bytes_max)
        except StorageError:  # the partition is not loaded, or the read is refused
            continue
        offsets = [base_offset for _, _, base_offset, _, _ in iter_spans(data)]
        assert offsets == list(range(begin, begin + len(offsets)))
        assert number not in offsets
        assert offsets
    store.close()


def test_bytes_that_were_checked_are_not_checked_again(base: Path) -> None:
    left_behind(base)
    store = Owner().disk(base)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    first = log.read(0, bytes_max=1 << 20)
    check = log.segments[0]._header_check
    assert check is not None
    assert (check._from, check._until) == (0, len(first))
    store.close()
