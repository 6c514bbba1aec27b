"""Index files with another content than the one that was written are rebuilt, although they look right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.crashed_disk import read_tree
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch
from tests.wire.control_batches import control_batch

CONFIG = LogConfig(index_interval_bytes=100, segment_bytes=1000)
COUNT = 24


def open_log(base: Path) -> tuple[DiskStore, DiskLog]:
    store = Owner().disk(base)
    return store, store.open(PARTITION, TOPIC_ID, CONFIG)


def left_behind(base: Path) -> None:
    """Two segments with rising timestamps and an aborted transaction each."""
    store, log = open_log(base)
    for number in range(COUNT):
        if number % 8 == 5:
            records = [BatchRecord(b"k", b"aborted", timestamp_ms=1000 * number)]
            log.append(
                build_batch(
                    records,
                    timestamp_ms=0,
                    producer_id=5,
                    producer_epoch=0,
                    base_sequence=number // 8,
                    transactional=True,
                ),
                leader_epoch=0,
            )
            marker = control_batch(
                producer_id=5, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=1000 * number
            )
            log.append(marker, leader_epoch=0)
        else:
            log.append(batch(f"value {number}", timestamp_ms=1000 * number), leader_epoch=0)
    assert len(log.segments) > 1
    store.close()


def answers(log: DiskLog) -> list[object]:
    return [
        *(log.offset_for_timestamp(1000 * number) for number in range(COUNT)),
        log.max_timestamp(),
        *(aborted_at(log, offset) for offset in range(log.end_offset)),
    ]


def aborted_at(log: DiskLog, offset: int) -> list[AbortedTxn]:
    """Without transactions that begin behind the batch: how many there are depends on the index."""
    data = log.read(offset, bytes_max=1)
    last_offset = next(iter_spans(data))[3]
    return [each for each in log.aborted_transactions(offset, data) if each.first_offset <= last_offset]


def shift_last_time(data: bytearray) -> None:
    """The last entry of a time index, with a smaller timestamp that is still above the one before."""
    data[-12:-4] = (int.from_bytes(data[-12:-4], "big") - 1).to_bytes(8, "big")


def shift_last_offset(data: bytearray) -> None:
    """The last entry of an offset index."""
    data[-5:-4] = bytes((data[-5] - 1,))


def other_producer(data: bytearray) -> None:
    data[9] ^= 1


CHANGES: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "a timestamp": ("timeindex", shift_last_time),
    "an offset": ("index", shift_last_offset),
    "a producer": ("txnindex", other_producer),
}


@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("what", CHANGES)
def test_it_is_rebuilt(base: Path, what: str, which: int) -> None:
    left_behind(base)
    store, log = open_log(base)
    expected = answers(log)
    store.close()
    suffix, change = CHANGES[what]
    path = sorted(path for path in (base / str(PARTITION)).glob(f"*.{suffix}") if path.stat().st_size)[which]
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    store, log = open_log(base)
    assert answers(log) == expected
    store.close()


def test_without_checksums_the_indexes_are_believed(base: Path) -> None:
    """As those of Apache Kafka."""
    left_behind(base)
    for path in (base / str(PARTITION)).glob("*.checksums"):
        path.unlink()
    before = read_tree(base)
    store, log = open_log(base)
    answers(log)
    store.close()
    assert read_tree(base) == before
