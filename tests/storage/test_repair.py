"""A log that a start does not load is repaired: every whole batch is kept, the lost offsets are named and not given again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.model.errors import UnavailableError
from kohort.storage.batchset import iter_spans
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.tools.repair import find_damaged, repair
from kohort.wire.batches import LogRecord, read_records
from kohort_lab.crashed_disk import read_tree
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch
from tests.storage.test_lost_data import minute_passes

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
COUNT = 24
JOURNALED = 3
OTHERS = 3
OTHER = PARTITION._replace(partition=1)


def flip(path: Path, batch_index: int, at: int = 65, bits: int = 0xFF) -> None:
    """Flip bits of a byte. A single bit below the checksum is corrected, so all bits of a record's byte are flipped."""
    content = bytearray(path.read_bytes())
    content[list(iter_spans(bytes(content)))[batch_index][0] + at] ^= bits
    path.write_bytes(content)


def cut(path: Path, batch_index: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: list(iter_spans(content))[batch_index][0] + 10])


def flip_two(paths: list[Path]) -> None:
    flip(paths[0], 0)
    flip(paths[4], 1)


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


# Segments of 5 batches begin at 0, 5, 10, 15 and 20. What is done to them, and the offsets that are lost.
# fmt: off
DAMAGE: dict[str, tuple[Callable[[list[Path]], object], list[int]]] = {
    "a record":                (lambda paths: flip(paths[1], 2), [7]),
    "the length of a batch":   (lambda paths: flip(paths[1], 2, at=10, bits=1), [7]),
    "the last of a segment":   (lambda paths: flip(paths[1], 4), [9]),
    "two batches":             (flip_two, [0, 21]),
    "an offset":               (lambda paths: flip(paths[2], 3, at=0, bits=1), [13]),
    "a cut segment":           (lambda paths: cut(paths[1], 3), [8, 9]),
    "the active segment cut":  (lambda paths: cut(paths[4], 1), [21, 22, 23]),
    "no active segment":       (lambda paths: paths[4].unlink(), [20, 21, 22, 23]),
    "no segment":              (remove_all, list(range(COUNT))),
}
# fmt: on


@pytest.mark.parametrize("how", ["stopped", "killed", "killed and started"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_whole_batch_is_kept(base: Path, damage: str, how: str) -> None:
    root = left_behind(base, how)
    directory = root / str(PARTITION)
    destroy, lost = DAMAGE[damage]
    destroy(sorted(directory.glob("*.log")))
    if how == "killed and started":
        store = Owner().disk(root)
        store.close()
    before = read_tree(root)
    damaged = list(find_damaged(root))
    assert read_tree(root) == before
    assert [partition.topic_partition for partition in damaged] == [PARTITION]
    for partition in damaged:
        named = [offset for each in partition.lost for offset in range(each.offset, each.next_offset)]
        assert named == lost
    repair(root, damaged)
    assert list(find_damaged(root)) == []
    check(root, lost, COUNT + (0 if how == "stopped" else JOURNALED))


def left_behind(base: Path, how: str) -> Path:
    owner = Owner()
    store = owner.disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    other = store.open(OTHER, TOPIC_ID, CONFIG)
    for number in range(COUNT):
        log.append(batch(f"value {number:5}"), leader_epoch=0)
    for _ in range(OTHERS):
        minute_passes(owner, store, other)
    if how != "stopped":
        for number in range(COUNT, COUNT + JOURNALED):
            log.append(batch(f"value {number:5}"), leader_epoch=0)
        store.flush()
        shutil.copytree(base / "data", base / "killed")
    store.close()
    return base / ("data" if how == "stopped" else "killed")


def check(root: Path, lost: list[int], end_offset: int) -> None:
    """Start twice, with and without a clean stop: all other records are there, and new ones get new offsets."""
    for again in range(3):
        store = Owner().disk(root)
        log = store.open(PARTITION, TOPIC_ID, CONFIG)
        assert log.end_offset == end_offset + again
        found = {record.offset: record.value for record in records(log)}
        values = {number: f"value {number:5}".encode() for number in range(end_offset) if number not in lost}
        assert found == values | {end_offset + number: b"next" for number in range(again)}
        for offset in values:
            assert next(iter_spans(log.read(offset, bytes_max=1)))[2] == offset
        assert log.append(batch("next"), leader_epoch=log.leader_epoch) == end_offset + again + 1
        assert store.open(OTHER, TOPIC_ID, CONFIG).end_offset == OTHERS
        store.flush()
        if again == 1:
            abandon(store)
        else:
            store.close()


def records(log: DiskLog) -> list[LogRecord]:
    found: list[LogRecord] = []
    offset = log.log_start_offset
    while data := log.read(offset, bytes_max=1):
        first = next(iter_spans(data))
        assert first[3] >= offset
        offset = first[3] + 1
        found += read_records(data)
    return found


@pytest.mark.parametrize("at", [17, 21, 30, 65], ids=["the checksum", "attributes", "a timestamp", "a record"])
def test_one_wrong_bit_is_corrected(base: Path, at: int) -> None:
    root = left_behind(base, "stopped")
    path = sorted((root / str(PARTITION)).glob("*.log"))[1]
    content = path.read_bytes()
    flip(path, 2, at=at, bits=4)
    (damaged,) = find_damaged(root)
    assert damaged.lost == []
    assert [note.rpartition(": ")[2] for note in damaged.notes] == ["the one wrong bit of the batch is corrected"]
    repair(root, [damaged])
    assert path.read_bytes() == content
    check(root, [], COUNT)


def test_a_damaged_segment_is_kept(base: Path) -> None:
    root = left_behind(base, "stopped")
    path = sorted((root / str(PARTITION)).glob("*.log"))[1]
    flip(path, 2)
    content = path.read_bytes()
    repair(root, list(find_damaged(root)))
    assert path.with_name(path.name + ".damaged").read_bytes() == content
    spans = list(iter_spans(content))
    assert path.read_bytes() == content[: spans[2][0]] + content[spans[3][0] :]


def test_a_batch_within_a_record_is_not_taken_for_one_of_the_log(base: Path) -> None:
    """Behind a damaged batch the search goes on where its length says."""
    store = Owner().disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    within = bytearray(batch("within"))
    within[:8] = (1).to_bytes(8, "big")
    log.append(batch("x" * 20, within.decode("latin-1")), leader_epoch=0)
    log.append(batch("next"), leader_epoch=0)
    store.close()
    (path,) = (base / "data" / str(PARTITION)).glob("*.log")
    flip(path, 0)
    (damaged,) = find_damaged(base / "data")
    assert [(each.offset, each.next_offset) for each in damaged.lost] == [(0, 2)]


def test_a_note_of_missing_files_is_shown_and_removed(base: Path) -> None:
    owner = Owner()
    store = owner.disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    for _ in range(OTHERS):
        store.open(OTHER, TOPIC_ID, CONFIG).append(batch("other"), leader_epoch=0)
    for number in range(COUNT):
        log.append(batch(f"value {number:5}"), leader_epoch=0)
    make_durable(owner, store)
    log.segments[1].path.unlink()
    store.close()
    (damaged,) = find_damaged(base / "data")
    assert damaged.reason == f"{log.segments[1].path} cannot be found: No such file or directory"
    assert damaged.lost == [], "the journal has its data"
    repair(base / "data", [damaged])
    check(base / "data", [], COUNT)


def test_a_torn_tail_is_left_to_the_start(base: Path) -> None:
    root = left_behind(base, "killed")
    newest = max((root / str(PARTITION)).glob("*.log"))
    cut(newest, -1)
    assert list(find_damaged(root)) == []
    check(root, [], COUNT + JOURNALED)


def test_until_a_repair_nothing_is_served(base: Path) -> None:
    root = left_behind(base, "stopped")
    max((root / str(PARTITION)).glob("*.log")).unlink()
    for _ in range(2):
        store = Owner().disk(root)
        with pytest.raises(UnavailableError, match=r"00000000000000000020.log is missing, though its index is"):
            store.open(PARTITION, TOPIC_ID, CONFIG)
        store.close()
