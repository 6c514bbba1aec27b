"""Which segments go, that they go for good, and that nothing else does."""

from pathlib import Path

import pytest

from kohort.model.errors import OffsetOutOfRangeError
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.logs.retention import count_expired
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

NOW_MS = 1_000_000
# fmt: off
SEGMENTS = {  # sizes, ages in ms, retention.bytes, retention.ms, high watermark (segments hold ten offsets): how many go
    "nothing limits":             ([10, 10, 10], [9, 9, 9],    -1, -1,  30, 0),
    "too old":                    ([10, 10, 10], [9, 9, 2],    -1, 5,   30, 2),
    "just old enough":            ([10, 10, 10], [5, 5, 5],    -1, 5,   30, 0),
    "a young one protects":       ([10, 10, 10], [9, 2, 9],    -1, 5,   30, 1),
    "all of them":                ([10, 10, 10], [9, 9, 9],    -1, 5,   30, 3),
    "an empty last one stays":    ([10, 10, 0],  [9, 9, 9],    -1, 5,   20, 2),
    "not above the watermark":    ([10, 10, 10], [9, 9, 9],    -1, 5,   19, 1),
    "too large":                  ([10, 10, 10], [0, 0, 0],    20, -1,  30, 1),
    "a byte too small for one":   ([10, 10, 10], [0, 0, 0],    21, -1,  30, 0),
    "nothing is to be kept":      ([10, 10, 10], [0, 0, 0],    0,  -1,  30, 3),
    "one by size, more by time":  ([10, 10, 10], [0, 9, 0],    20, 5,   30, 2),
    "no time at all":             ([10, 10, 10], [1, 1, 0],    -1, 0,   30, 2),
}
# fmt: on


@pytest.mark.parametrize("what", SEGMENTS)
def test_what_goes(what: str) -> None:
    sizes, ages, retention_bytes, retention_ms, high_watermark, count = SEGMENTS[what]
    ends = [10 * (place + 1) for place in range(len(sizes))]
    if sizes[-1] == 0:
        ends[-1] = ends[-2]
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms)
    times = [NOW_MS - age for age in ages]
    assert count_expired(sizes, ends, times.__getitem__, config, high_watermark, NOW_MS) == count
    for policy, goes in {"compact": 0, "compact,delete": count, "": 0}.items():
        config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms, cleanup_policy=policy)
        assert count_expired(sizes, ends, times.__getitem__, config, high_watermark, NOW_MS) == goes


SMALL = LogConfig(segment_bytes=150, retention_ms=1000)


def filled(owner: Owner, directory: Path) -> DiskLog:
    log = owner.disk(directory).open(PARTITION, TOPIC_ID, SMALL)
    for number in range(8):
        log.append(batch("a", timestamp_ms=number * 1000), leader_epoch=0)
    owner.wait_for(lambda: log.high_watermark == 8)
    return log


def segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("orders-0/*.log"))


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("leave", ["clean", "crash"])
def test_segments_before_the_log_start_go_with_the_next_checkpoint(tmp_path: Path, flush: str, leave: str) -> None:
    owner = Owner()
    store = owner.disk(tmp_path, flush=flush)
    log = store.open(PARTITION, TOPIC_ID, SMALL)
    for number in range(8):
        log.append(batch("a", timestamp_ms=number * 1000), leader_epoch=0)
    store.flush()
    before = segments(tmp_path)
    assert len(before) >= 4
    log.apply_retention(now_ms=4500)
    start = log.log_start_offset
    assert 0 < start < 8
    owner.wait_for(lambda: log.first_base_offset == start)
    owner.settle(store)
    assert segments(tmp_path)[0] == start
    with pytest.raises(OffsetOutOfRangeError):
        log.read(start - 1, bytes_max=100)
    whole = log.read(start, bytes_max=1 << 20)
    store.close() if leave == "clean" else store._lock.release()
    again = Owner().disk(tmp_path, flush=flush)
    found = again.open(PARTITION, TOPIC_ID, SMALL)
    assert (found.log_start_offset, found.end_offset) == (start, 8)
    assert found.read(start, bytes_max=1 << 20) == whole
    again.close()
    kept = {path.name for path in (tmp_path / "orders-0").iterdir()}
    assert not [name for name in kept if name.endswith(".deleted")]
    assert not [name for name in kept if name[:20].isdigit() and int(name[:20]) < start]


def test_all_of_a_log_can_go(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, SMALL)
    for number in range(3):
        log.append(batch("a", timestamp_ms=number), leader_epoch=0)
    store.flush()
    log.apply_retention(now_ms=1 << 40)
    assert (log.log_start_offset, log.end_offset, log.read(3, bytes_max=10)) == (3, 3, b"")
    owner.wait_for(lambda: log.first_base_offset == 3)
    owner.settle(store)
    assert segments(tmp_path) == [3]
    log.append(batch("b", timestamp_ms=1 << 40), leader_epoch=0)
    store.close()
    found = Owner().disk(tmp_path).open(PARTITION, TOPIC_ID, SMALL)
    assert (found.log_start_offset, found.end_offset) == (3, 4)


def test_the_start_lies_within_a_segment(tmp_path: Path) -> None:
    owner = Owner()
    log = filled(owner, tmp_path)
    done: list[bool] = []
    log.delete_before(1, lambda: done.append(True))
    assert done == [], "not before it is durable"
    owner.wait_for(lambda: bool(done))
    assert (log.log_start_offset, segments(tmp_path)[0]) == (1, 0)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_before(9)
