"""What is cleaned, when, and how far; what the map of offsets holds; what becomes of a log whose cleaning fails."""

import math
import os
import sys
import threading
from collections.abc import Callable
from errno import ENOENT
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.storage.cleaning.cleaner import CLEANER_OFFSETS
from kohort.storage.cleaning.compaction import group_segments
from kohort.storage.cleaning.job import CleanerJob, SegmentGroup, SourceSegment
from kohort.storage.cleaning.log_to_clean import job_of
from kohort.storage.cleaning.offset_map import DictMap, HashMap, OffsetMap, make_offset_map
from kohort.storage.cleaning.process import CleanerProcess, Throttler
from kohort.storage.disk import DiskStore
from kohort.storage.files.checkpoint_formats import read_offsets
from kohort.storage.log import LONG_MAX, CleanerConfig, LogConfig
from kohort.storage.tools.verify import Verified, verify
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.compacted import (
    CONFIG,
    batches,
    clean,
    end_transaction,
    make_durable,
    newest,
    open_log,
    put,
    records,
    roll,
)
from tests.storage.owner import PARTITION, WAIT_SECONDS, Owner, no_calls

NOW_MS = 1_700_000_000_000
HALF = msgspec.structs.replace(CONFIG, min_cleanable_dirty_ratio=0.5)


# The map


@pytest.mark.parametrize("make", [DictMap, lambda keys_max: HashMap(47, keys_max)])
@given(chunks=st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=20))
@settings(deadline=None)
def test_a_map_knows_the_newest_offset_of_each_key_until_it_is_full(
    make: Callable[[int], OffsetMap], chunks: list[list[int]]
) -> None:
    found, expected, offset = make(40), dict[bytes, int](), 0
    for chunk in chunks:
        keys = [_key(key) for key in chunk]
        taken = found.put(keys, range(offset, offset + len(keys)))
        for place, key in enumerate(keys[:taken]):
            expected[key] = offset + place
        if taken < len(keys):
            assert len(expected) == 40
            assert keys[taken] not in expected
            break
        offset += len(keys)
    assert found.count == len(expected) <= found.keys_max
    everything = [_key(key) for key in range(61)]
    assert found.get(everything) == [expected.get(key, -1) for key in everything]


def _key(number: int) -> bytes:
    """Some of them are long, and differ in their last bytes."""
    return b"%d" % number if number % 3 else b"long" * 20 + b"%d" % number


def test_the_map_takes_no_more_memory_than_it_is_given() -> None:
    assert make_offset_map(buffer_bytes=128 << 20, load_factor=0.9, records_max=1 << 40).keys_max == 5_033_135
    assert isinstance(make_offset_map(buffer_bytes=128 << 20, load_factor=0.9, records_max=1000), DictMap)


# Which segments become one

# fmt: off
GROUPS = {  # sizes in bytes, of indexes, next base offsets; segment.bytes 100, segment.index.bytes 20
    "all fit":               ([(30, 4, 10), (30, 4, 20), (40, 4, 30)],      [3]),
    "bytes":                 ([(60, 4, 10), (41, 4, 20), (59, 4, 30)],      [1, 2]),
    "index":                 ([(10, 10, 10), (10, 10, 20), (10, 1, 30)],    [2, 1]),
    "large alone":           ([(300, 4, 10), (1, 4, 20), (300, 4, 30)],     [1, 1, 1]),
    "offsets span an int32": ([(1, 0, 10), (1, 0, 1 << 31)],                [2]),
    "offsets span more":     ([(1, 0, 10), (1, 0, (1 << 31) + 1)],          [1, 1]),
    "but nothing is there":  ([(1, 0, 10), (0, 0, 1 << 40)],                [2]),
    "none":                  ([],                                           []),
}
# fmt: on


@pytest.mark.parametrize("name", GROUPS)
def test_neighbours_become_one_as_far_as_they_fit(name: str) -> None:
    shapes, expected = GROUPS[name]
    bases = [0, *(shape[2] for shape in shapes)]
    sources = [
        SourceSegment(base, size, index, index, next_base, 0)
        for base, (size, index, next_base) in zip(bases, shapes, strict=False)
    ]
    config = LogConfig(segment_bytes=100, segment_index_bytes=20)
    assert [len(group) for group in group_segments(sources, config)] == expected


# When, and how far


@pytest.mark.parametrize(
    ("config", "is_due"),
    [
        (HALF, False),  # as much is clean as is dirty: the ratio has to be above
        (msgspec.structs.replace(HALF, min_cleanable_dirty_ratio=0.49), True),
        (msgspec.structs.replace(HALF, max_compaction_lag_ms=NOW_MS - 1000), False),
        (msgspec.structs.replace(HALF, max_compaction_lag_ms=NOW_MS - 1001), True),
    ],
    ids=["ratio", "above the ratio", "maximum lag", "above the maximum lag"],
)
def test_a_log_is_cleaned_when_it_is_dirty_enough_or_has_waited_too_long(
    tmp_path: Path, config: LogConfig, is_due: bool
) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store, config)
    for _ in range(2):
        put(log, ("k", "v"))
        roll(log)
    put(log, ("k", "active"))
    make_durable(owner, store)
    store.cleaner.offsets[PARTITION] = 1
    looked = store.cleaner.look_at(log)
    assert (looked.ratio, looked.is_due) == (0.5, is_due)
    store.close()


@pytest.mark.parametrize("is_scanned", [False, True])
@pytest.mark.parametrize(("timestamp_ms", "expected"), [(1000, (1000, 1000)), (-1, (-1, 5000))])
def test_the_times_of_a_segment_outlive_a_stop_and_a_pass(
    tmp_path: Path, timestamp_ms: int, expected: tuple[int, int], *, is_scanned: bool
) -> None:
    """Its first timestamp and its largest; without timestamps the time when its file was written. They need no disk."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    put(log, ("k", "v"), ("other", "v"), timestamp_ms=timestamp_ms)
    roll(log)
    put(log, ("k", "active"))
    store.close()
    for path in log.directory.glob(f"{0:020d}.*"):
        os.utime(path, (5, 5))
        if is_scanned and path.suffix == ".index":
            path.unlink()
    store = owner.disk(tmp_path)
    log = open_log(store)
    stopped = log.segments[0]
    clean(owner, store)
    cleaned = log.segments[0]
    assert cleaned is not stopped
    with no_calls():
        for segment in (stopped, cleaned):
            assert (segment.rolling_timestamp_ms, segment.newest_ms) == expected
    store.close()


def test_a_log_is_cleaned_up_to_what_is_active_new_undecided_or_not_durable(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for number in range(4):
        put(log, ("k", f"{number}"), timestamp_ms=NOW_MS - 100 + number)
        roll(log)
    put(log, ("k", "active"), timestamp_ms=NOW_MS)
    assert store.cleaner.look_at(log).first_uncleanable_offset == 0  # nothing is durable yet
    make_durable(owner, store)
    dirty = store.cleaner.look_at(log)
    assert dirty.first_uncleanable_offset == 4
    assert job_of(dirty, CleanerConfig(), now_ms=NOW_MS)().terms.high_watermark == log.high_watermark == 5
    log.config = msgspec.structs.replace(CONFIG, min_compaction_lag_ms=99)
    assert store.cleaner.look_at(log).first_uncleanable_offset == 2
    log.config = CONFIG
    put(log, ("t", "open"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    roll(log)
    put(log, ("k", "active again"))
    make_durable(owner, store)
    assert store.cleaner.look_at(log).first_uncleanable_offset == 4  # the segment in which the transaction begins
    store.close()


def test_a_checkpoint_out_of_range_makes_everything_dirty(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    put(log, ("k", "v"))
    for offset in (-1, 2):
        store.cleaner.offsets[PARTITION] = offset
        assert store.cleaner.look_at(log).first_dirty_offset == 0
    store.close()


def idle(store: DiskStore) -> None:
    """The background thread has done what it was given so far; the owner has not heard of it."""
    done = threading.Event()
    store._flush_coordinator.submit(done.set)
    assert done.wait(WAIT_SECONDS)


@pytest.mark.parametrize("when", ["after a pass", "at its end"])
def test_a_log_made_again_is_dirty_from_its_beginning(tmp_path: Path, when: str) -> None:
    """How far its namesake was clean says nothing of it, not after a crash either."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for _ in range(3):
        put(log, ("k", "v"))
        roll(log)
    put(log, ("k", "active"))
    path = tmp_path / "cleaner-offset-checkpoint"
    if when == "after a pass":
        clean(owner, store)
        idle(store)
        assert read_offsets(path) == {PARTITION: 3}
        store.delete(PARTITION)
    else:
        make_durable(owner, store)
        store.clean(CleanerConfig())
        (pass_,) = store.cleaner._passes.values()
        owner.wait_for(lambda: not pass_.is_running)
        idle(store)
        assert pass_.swapping == 1, "its segment is in place, and that is still to be told"
        store.delete(PARTITION)
    owner.wait_for(lambda: not store.cleaner.in_progress)
    idle(store)
    assert store.cleaner.offsets == {}
    assert read_offsets(path) == {}
    store.close()


def test_tombstones_go_in_a_pass_after_their_time(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store, msgspec.structs.replace(CONFIG, delete_retention_ms=100))
    put(log, ("k", "v"), ("k", None))
    for elapsed_ms, tombstones in ((0, 1), (99, 1), (1, 0)):
        roll(log)
        put(log, ("other", "v"))
        roll(log)
        put(log, ("active", "v"))
        owner.node.advance(elapsed_ms)
        clean(owner, store)
        assert sum(value is None for _, _, value in records(log)) == tombstones
    store.close()


@pytest.mark.parametrize("retention_ms", [LONG_MAX, LONG_MAX - NOW_MS + 1])
def test_tombstones_whose_time_is_beyond_all_times_stay(tmp_path: Path, retention_ms: int) -> None:
    """`delete.retention.ms` may be that large. Kafka's sum turns negative, which is no horizon."""
    owner = Owner()
    owner.clock.set(NOW_MS)
    store = owner.disk(tmp_path)
    log = open_log(store, msgspec.structs.replace(CONFIG, delete_retention_ms=retention_ms))
    put(log, ("k", "v"))
    put(log, ("k", None), ("l", "v"))
    for _ in range(3):
        roll(log)
        put(log, ("active", "v"))
        clean(owner, store)
        assert not store.cleaner.uncleanable
        assert records(log)[:2] == [(1, b"k", None), (2, b"l", b"v")]
        assert not any(header.has_delete_horizon for header, _ in batches(log))
    store.close()


@pytest.mark.parametrize("retention_ms", [0, LONG_MAX - NOW_MS])
@pytest.mark.parametrize("latest_ms", [0, LONG_MAX])
def test_times_at_the_ends_of_all_times_are_kept(tmp_path: Path, retention_ms: int, latest_ms: int) -> None:
    """A client may send them, and the distance from a batch's base to them may be more than fits."""
    owner = Owner()
    owner.clock.set(NOW_MS)
    store = owner.disk(tmp_path)
    log = open_log(store, msgspec.structs.replace(CONFIG, delete_retention_ms=retention_ms))
    times_ms = [0, -LONG_MAX, latest_ms, NOW_MS]
    found = [BatchRecord(key.encode(), None, timestamp_ms=time) for key, time in zip("abcd", times_ms, strict=True)]
    log.append(build_batch(found, timestamp_ms=0), leader_epoch=0)
    put(log, ("a", "v"))
    roll(log)
    put(log, ("active", "v"))
    clean(owner, store)
    assert not store.cleaner.uncleanable
    ((header, left), *_) = batches(log)
    assert header.has_delete_horizon
    assert [(record.key, record.timestamp) for record in left] == list(
        zip((b"b", b"c", b"d"), times_ms[1:], strict=True)
    )
    store.close()


def test_a_log_without_room_for_all_keys_is_cleaned_in_several_passes(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for turn in range(3):
        for number in range(20):
            put(log, (f"k{number}", f"{turn}"))
    roll(log)
    put(log, ("active", "v"))
    expected = newest(log)
    clean(owner, store, CleanerConfig(dedupe_buffer_size=24 * 8))
    assert store.cleaner.counters.passes > 3
    assert newest(log) == expected
    assert len(records(log)) == len(expected)
    store.close()


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf, -1.0])
def test_a_process_gets_any_configuration(tmp_path: Path, rate: float) -> None:
    """It gets them as JSON, which has neither NaN nor infinity."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    log.config = msgspec.structs.replace(log.config, min_cleanable_dirty_ratio=math.nan, max_compaction_lag_ms=1)
    for number in range(20):
        put(log, ("same", f"{number}"))
    make_durable(owner, store)
    dirty = store.cleaner.look_at(log)
    job = job_of(dirty, CleanerConfig(io_max_bytes_per_second=rate), now_ms=owner.clock.now_ms())()
    assert msgspec.json.decode(msgspec.json.encode(job), type=CleanerJob) == job
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduler of Linux")
def test_the_process_of_a_pass_gives_way_to_the_broker(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for number in range(100):
        put(log, ("same", f"{number}"))
    make_durable(owner, store)
    job = job_of(store.cleaner.look_at(log), CleanerConfig(), now_ms=owner.clock.now_ms())()
    store.close()
    process, found = CleanerProcess(), set[tuple[int, int]]()

    def look(_group: SegmentGroup) -> None:
        process_id = process.id or 0
        found.add((os.getsid(process_id), os.getpgid(process_id) - process_id))
        found.add((os.sched_getscheduler(process_id), os.getpriority(os.PRIO_PROCESS, process_id)))

    process.run(job, look)
    policy = os.SCHED_IDLE if len(os.sched_getaffinity(0)) > 1 else os.SCHED_OTHER
    assert found == {(os.getsid(0), 0), (policy, 19)}, "signals of a terminal do not reach it"


@pytest.mark.parametrize("process_bytes", [0, 1 << 40], ids=["process", "thread"])
def test_a_log_is_cleaned_and_starts_again(tmp_path: Path, process_bytes: int) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    store.cleaner._process_bytes = process_bytes
    log = open_log(store)
    for number in range(100):
        put(log, (f"k{number % 7}", f"{number}"), ("same", f"{number}"))
    expected = newest(log)
    clean(owner, store)
    cleaned = records(log)
    assert newest(log) == expected
    end = log.segments[-1].base_offset
    assert len([offset for offset, _, _ in cleaned if offset < end]) == 8
    store.close()
    assert read_offsets(tmp_path / CLEANER_OFFSETS) == {PARTITION: end}
    assert list(verify(tmp_path, Verified())) == []
    store = owner.disk(tmp_path)
    assert records(open_log(store)) == cleaned
    assert store.cleaner.look_at(open_log(store)).first_dirty_offset == end
    store.close()


def test_the_last_batch_of_a_producer_stays_without_its_records(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    put(log, ("k", "old"), ("j", "old"), producer_id=5, producer_epoch=0, base_sequence=3)
    put(log, ("k", "new"), ("j", "new"))
    roll(log)
    put(log, ("active", "v"))
    clean(owner, store)
    header, found = next(batches(log))
    assert (header.producer_id, header.base_sequence, header.last_offset, header.base_timestamp) == (5, 3, 1, -1)
    assert found == []
    store.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()  # a crash: the state is built from the log
    for path in tmp_path.glob("*/*.snapshot"):
        path.unlink()
    store = owner.disk(tmp_path)
    assert open_log(store).producers.states[5].last_sequence == 4
    store.close()


def test_a_marker_stays_as_long_as_something_of_its_transaction_does(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store, msgspec.structs.replace(CONFIG, delete_retention_ms=0))
    put(log, ("k", "aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 5, committed=False)
    put(log, ("k", "kept"), producer_id=5, producer_epoch=0, base_sequence=1)
    # The pass that drops the data, the one that gives the marker its time, the one that drops it.
    for markers in (1, 1, 0):
        roll(log)
        put(log, ("other", "v"))
        roll(log)
        put(log, ("active", "v"))
        clean(owner, store)
        assert sum(header.is_control for header, _ in batches(log)) == markers
        assert b"aborted" not in {value for _, _, value in records(log)}
    store.close()


# Policies of both, and failures


def test_a_log_of_both_policies_is_deleted_from_by_the_cleaner(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store, msgspec.structs.replace(CONFIG, cleanup_policy="compact,delete", retention_ms=1000))
    put(log, ("old", "v"), timestamp_ms=NOW_MS - 1001)
    roll(log)
    put(log, ("new", "v"), timestamp_ms=NOW_MS)
    clean(owner, store)
    assert log.log_start_offset == 1
    store.close()


def test_a_damaged_log_is_set_aside_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    logs = [open_log(store, CONFIG, PARTITION._replace(partition=index)) for index in range(2)]
    for log in logs:
        for number in range(4):
            put(log, ("k", f"value {number}"))
        roll(log)
        put(log, ("active", "v"))
    make_durable(owner, store)
    path = logs[0].segments[0].path
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    clean(owner, store)
    assert store.cleaner.uncleanable == {logs[0].topic_partition}
    assert "log.uncleanable partition=orders-0" in caplog.text
    assert path.read_bytes() == damaged
    assert list(tmp_path.rglob("*.cleaned")) == []
    assert [value for _, _, value in records(logs[1])] == [b"value 3", b"v"]
    store.close()


def test_a_log_that_is_deleted_while_it_is_cleaned_leaves_nothing_behind(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for number in range(50):
        put(log, ("k", f"{number}"))
    make_durable(owner, store)
    store.clean(CleanerConfig())
    assert store.cleaner.in_progress == {PARTITION}
    store.delete(PARTITION)
    owner.wait_for(lambda: not store.cleaner.in_progress)
    assert not store.cleaner.uncleanable
    log = open_log(store)
    assert put(log, ("k", "of the next topic")) == 1
    store.close()
    assert [path.name for path in tmp_path.glob("*/*.swap")] == []


def test_a_store_that_is_closed_while_it_cleans_leaves_nothing_half_done(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = open_log(store)
    for number in range(200):
        put(log, (f"k{number % 3}", f"{number}"))
    expected = newest(log)
    make_durable(owner, store)
    store.clean(CleanerConfig())
    store.close()
    assert list(verify(tmp_path, Verified())) == []
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".cleaned", ".swap")]
    store = owner.disk(tmp_path)
    assert newest(open_log(store)) == expected
    store.close()


def test_a_checkpoint_may_meet_a_segment_that_is_being_replaced(base: Path) -> None:
    """The name is not there for a moment; when it comes to that, a cleaned segment has it. One that stays away is a loss."""
    root, owner = base / "data", Owner()
    with FaultyFiles(root) as files:
        store = owner.disk(root)
        log = open_log(store)
        put(log, ("a", "1"))
        store.flush()
        segment = log.segments[0].path
        missed: list[Path] = []

        def miss_once(call: str, path: Path) -> int | None:
            if call != "open" or path != segment or missed:
                return None
            missed.append(path)
            return ENOENT

        files.refuse = miss_once
        make_durable(owner, store)
        owner.run_posted()
        assert missed
        assert log.refusal is None
        put(log, ("a", "2"))
        store.flush()
        segment.unlink()
        store._flush_coordinator.want_checkpoint()
        owner.run_turn()
        owner.wait_for(lambda: log.refusal is not None)
        store.close()


@pytest.mark.parametrize("load_factor", [0.0, 5e-324, 1e-320, 1e-7, 1.0])
@pytest.mark.parametrize("records", [1, 1 << 20, 1 << 62])
@pytest.mark.parametrize("buffer_bytes", [1 << 20, 1 << 27])
def test_an_offset_map_holds_a_key_whatever_the_configuration(
    load_factor: float, records: int, buffer_bytes: int
) -> None:
    assert make_offset_map(buffer_bytes=buffer_bytes, load_factor=load_factor, records_max=records).keys_max >= 1


@pytest.mark.parametrize("rate", [5e-324, 1e-320, 1e-7, 0.0, -1.0, math.inf, math.nan, -math.inf])
def test_a_throttled_pass_waits_a_time_that_a_thread_can_wait(rate: float) -> None:
    waits: list[float] = []
    Throttler(rate, waits.append)(1 << 20)
    assert all(0 < wait <= 86_400 for wait in waits)
    assert bool(waits) == (0 < rate < 1)
