"""Compaction in memory: the survivors are those of the cleaner on disk, the size is bounded, and the thread is given back."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.storage.log import CleanerConfig, Log, LogConfig
from kohort.storage.memory import MemoryStore, cleaner
from kohort.storage.memory.log import SEGMENT_BYTES_MAX, MemoryLog
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch, read_header
from kohort.wire.compression import Codec
from tests.conftest import LONG
from tests.storage.compacted import CONFIG, batches, clean, make_durable, roll
from tests.storage.conftest import IN_MEMORY
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch
from tests.wire.control_batches import control_batch

CLEANER = CleanerConfig()
RETENTION_MS = 1000
PROPERTY_CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)

pairs = st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), min_size=1, max_size=4)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
producers = st.sampled_from([1, 2, 3])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pairs, codecs),
        st.tuples(st.just("idempotent"), pairs),
        st.tuples(st.just("transactional"), producers, pairs),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("delete"), st.integers(0, 40)),
        st.tuples(st.just("clean"), st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1])),
    ),
    min_size=5,
    max_size=60,
)


class Both:
    """The same log on disk and in memory."""

    def __init__(self, path: Path) -> None:
        self.owner = Owner()
        self.disk = self.owner.disk(path)
        self.memory = MemoryStore(self.owner.defer, clock=self.owner.clock)
        self.on_disk = self.disk.open(PARTITION, TOPIC_ID, PROPERTY_CONFIG)
        self.in_memory = self.memory.open(PARTITION, TOPIC_ID, PROPERTY_CONFIG)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.values = 0

    def append(self, data: bytes) -> None:
        assert self.on_disk.append(data, leader_epoch=0) == self.in_memory.append(data, leader_epoch=0)

    def put(self, chosen: list[tuple[str, bool]], codec: Codec = Codec.NONE, **header: Any) -> None:
        records = []
        for key, has_value in chosen:
            self.values += 1
            records.append(BatchRecord(key.encode(), b"value %d" % self.values if has_value else None))
        self.append(build_batch(records, timestamp_ms=self.owner.clock.now_ms(), compression=codec, **header))

    def idempotent(self, chosen: list[tuple[str, bool]], producer_id: int = 9, *, transactional: bool = False) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(chosen)
        self.put(
            chosen,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )

    def transactional(self, producer_id: int, chosen: list[tuple[str, bool]]) -> None:
        self.idempotent(chosen, producer_id, transactional=True)
        self.open.add(producer_id)

    def end(self, producer_id: int, committed: bool) -> None:
        if producer_id in self.open:
            self.open.remove(producer_id)
            marker = control_batch(
                producer_id=producer_id,
                producer_epoch=0,
                committed=committed,
                coordinator_epoch=0,
                timestamp_ms=self.owner.clock.now_ms(),
            )
            self.append(marker)

    def roll(self) -> None:
        if self.in_memory.segments[-1].size_bytes:
            self.in_memory._roll()
        roll(self.on_disk)

    def delete(self, offset: int) -> None:
        """Into the part that readers of committed data see."""
        make_durable(self.owner, self.disk)
        self.memory.flush()
        offset = min(offset, self.on_disk.last_stable_offset)
        for log in (self.on_disk, self.in_memory):
            if offset > log.log_start_offset:
                log.delete_before(offset)
        self.owner.run_turn()
        self.disk.flush()

    def clean(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        clean(self.owner, self.disk)
        self.memory.flush()
        self.memory.clean(CLEANER)
        assert not self.memory.cleaner.uncleanable

    def check(self) -> None:
        assert contents(self.in_memory) == contents(self.on_disk)
        assert self.in_memory.last_stable_offset == self.on_disk.last_stable_offset
        if self.on_disk.has_segments and not self.in_memory.log_start_offset:
            bases = [segment.base_offset for segment in self.in_memory.segments]
            assert bases == [segment.base_offset for segment in self.on_disk.segments]
        assert self.in_memory.producers.states == self.on_disk.producers.states
        offset = self.in_memory.log_start_offset
        data = self.in_memory.read(offset, bytes_max=1 << 20)
        told = self.in_memory.aborted_transactions(offset, data)
        # A read on disk ends with its segment, and so may its list of aborted transactions.
        on_disk = [entry for segment in self.on_disk.segments for entry in segment.aborted.entries]
        assert told == [entry for entry in on_disk if entry.last_offset >= offset]


def contents(log: Log) -> list[bytes]:
    found, offset = [], log.log_start_offset
    while offset < log.end_offset and (data := log.read(offset, bytes_max=1)):
        found.append(data)
        offset = read_header(data).next_offset
    return found


@settings(max_examples=2000 if LONG else 60)
@given(steps)
def test_memory_keeps_what_the_disk_keeps(chosen: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        both = Both(Path(directory))
        for name, *arguments in chosen:
            getattr(both, name)(*arguments)
            if name == "clean":
                both.check()
        both.clean(RETENTION_MS + 1)
        both.check()
        both.disk.close()


def commits(store: MemoryStore, log: MemoryLog, *, rounds: int, keys: int, on_turn: Callable[[], None]) -> None:
    """The same keys again and again, in batches of a hundred records of about a hundred bytes."""
    for number in range(rounds):
        for first in range(0, keys, 100):
            records = [
                BatchRecord(b"group-%d" % key, b"%0100d" % number) for key in range(first, min(first + 100, keys))
            ]
            log.append(build_batch(records, timestamp_ms=1000), leader_epoch=0)
        store.flush()
        on_turn()


def test_a_log_under_repeated_commits_stays_small() -> None:
    owner = Owner()
    store = MemoryStore(owner.defer, call_soon=owner.call_soon_threadsafe, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    store.clean(CLEANER)
    commits(store, log, rounds=1, keys=1000, on_turn=owner.run_posted)
    clean_bytes = log.size_bytes
    sizes: list[int] = []
    tracemalloc.start()

    def on_turn() -> None:
        owner.run_posted()
        sizes.append(log.size_bytes)

    commits(store, log, rounds=60, keys=1000, on_turn=on_turn)
    allocated_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sum(sizes) > 60 * clean_bytes
    bound = 2 * clean_bytes + 2 * SEGMENT_BYTES_MAX
    assert max(sizes) <= bound
    assert allocated_bytes < 2 * bound
    assert store.cleaner_metrics().passes > 5
    kept = {record.key: record.value for _, found in batches(log) for record in found}
    assert len(kept) == 1000
    assert set(kept.values()) == {b"%0100d" % 59}


def test_a_pass_gives_the_thread_back_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of no length each one handles 16 KiB at most, and appends come in between."""
    monkeypatch.setattr(cleaner, "SLICE_S", 0.0)
    owner = Owner()
    posted: list[Callable[[], None]] = []
    store = MemoryStore(owner.defer, call_soon=posted.append, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    commits(store, log, rounds=10, keys=1000, on_turn=lambda: None)
    store.clean(CLEANER)
    slices = 0
    while posted:
        posted.pop(0)()
        slices += 1
        log.append(batch("in between"), leader_epoch=0)
        store.flush()
    assert slices > log.end_offset * 100 // (1 << 14)
    assert store.cleaner_metrics().passes == 1
    values = [record.value for _, found in batches(log) for record in found]
    assert values.count(b"in between") == slices
    assert len(values) < 3000 + slices


@pytest.mark.parametrize("keys", [200, 1500])
def test_a_log_that_gets_more_than_slices_clean_stays_bounded(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """A slice goes on until its pass is ahead of the appends."""
    monkeypatch.setattr(cleaner, "SLICE_S", 0.0)
    owner = Owner()
    posted: list[Callable[[], None]] = []
    store = MemoryStore(owner.defer, call_soon=posted.append, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    commits(store, log, rounds=1, keys=keys, on_turn=lambda: None)
    clean_bytes = log.size_bytes
    store.clean(CLEANER)
    sizes: list[int] = []

    def on_turn() -> None:
        assert len(posted) <= 1, "one slice in a turn"
        if posted:
            posted.pop()()
        sizes.append(log.size_bytes)

    commits(store, log, rounds=30_000 // keys, keys=keys, on_turn=on_turn)
    assert max(sizes) <= 3 * clean_bytes + 4 * SEGMENT_BYTES_MAX
    assert store.cleaner_metrics().passes > 3


@pytest.mark.parametrize("in_slices", [True, False])
def test_any_number_of_logs_may_be_due_at_once(monkeypatch: pytest.MonkeyPatch, in_slices: bool) -> None:
    monkeypatch.setattr(cleaner, "SLICE_S", 1e9)
    owner = Owner()
    call_soon = owner.call_soon_threadsafe if in_slices else None
    store = MemoryStore(owner.defer, call_soon=call_soon, clock=owner.clock)
    for number in range(400):
        log = store.open(TopicPartition("t", number), TOPIC_ID, CONFIG)
        log.append(batch("k"), leader_epoch=0)
        log._roll()
    store.flush()
    store.clean(CLEANER)
    owner.run_posted()
    assert store.cleaner_metrics().passes == 400


def test_a_log_whose_high_watermark_has_not_risen_yet_is_looked_at_again() -> None:
    owner = Owner()
    store = MemoryStore(owner.defer, call_soon=owner.call_soon_threadsafe, clock=owner.clock)
    store.clean(CLEANER)
    logs = [store.open(TopicPartition("t", number), TOPIC_ID, CONFIG) for number in range(2)]
    for log in logs:
        log.append(batch("k"), leader_epoch=0)
        log._roll()
        owner.run_posted()
        store.flush()
    owner.run_posted()
    assert store.cleaner_metrics().passes == 1, "the first one with the second"
    logs[1]._roll()
    owner.run_posted()
    assert store.cleaner_metrics().passes == 2


def test_a_map_of_few_keys_takes_more_passes_and_cleans_as_much() -> None:
    owner = Owner()
    store = MemoryStore(owner.defer, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0))
    commits(store, log, rounds=3, keys=300, on_turn=lambda: None)
    log._roll()
    store.flush()
    store.clean(CleanerConfig(dedupe_buffer_size=100 * 256))
    assert store.cleaner_metrics().passes > 5
    assert len([record for _, found in batches(log) for record in found]) == 300


CASES = ["deleted", "closed", "start raised"]


@pytest.mark.parametrize("what", CASES)
def test_a_pass_whose_log_changes_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(cleaner, "SLICE_S", 0.0)
    owner = Owner()
    posted: list[Callable[[], None]] = []
    store = MemoryStore(owner.defer, call_soon=posted.append, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    commits(store, log, rounds=10, keys=1000, on_turn=lambda: None)
    store.clean(CLEANER)
    posted.pop(0)()
    wanted, other = contents(log)[-5:], log
    if what == "deleted":
        store.delete(PARTITION)
        other = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
        other.append(batch("new"), leader_epoch=0)
    elif what == "closed":
        store.close()
    else:
        log.delete_before(9000)
        owner.run_turn()
    while posted:
        posted.pop(0)()
    if what == "deleted":
        assert store.get(PARTITION) is other
        assert (other.end_offset, store.cleaner.offsets) == (1, {})
    elif what == "start raised":
        assert contents(log)[-5:] == wanted
        store.clean(CLEANER)
        while posted:
            posted.pop(0)()
        assert {record.key for _, found in batches(log) for record in found} >= {b"group-%d" % n for n in range(999)}


def test_a_batch_that_cannot_be_read_makes_its_log_uncleanable_and_no_other() -> None:
    owner = Owner()
    store = MemoryStore(owner.defer, clock=owner.clock)
    other = TopicPartition("other", 0)
    logs = [store.open(partition, TOPIC_ID, CONFIG) for partition in (PARTITION, other)]
    for number in range(30):
        for log in logs:
            data = bytearray(build_batch([BatchRecord(b"k", b"%d" % number * 20)], timestamp_ms=1000))
            if log is logs[0] and number == 5:
                data[HEADER_BYTES:] = b"\xff" * (len(data) - HEADER_BYTES)
            log.append(data, leader_epoch=0)
    store.flush()
    store.clean(CLEANER)
    assert store.cleaner.uncleanable == {PARTITION}
    assert (logs[0].size_bytes, store.cleaner_metrics().uncleanable_partitions) == (
        store.cleaner_metrics().uncleanable_bytes,
        1,
    )
    assert logs[1].size_bytes < logs[0].size_bytes // 2


def test_a_log_that_rolls_before_the_first_search_is_cleaned() -> None:
    """The cleaner of Kafka searches at its start; the first search of Kohort is `log.cleaner.backoff.ms` later."""
    owner = Owner()
    store = MemoryStore(
        owner.defer, call_soon=owner.call_soon_threadsafe, clock=owner.clock, cleaner_config=lambda: CLEANER
    )
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    commits(store, log, rounds=10, keys=1000, on_turn=owner.run_posted)
    assert store.cleaner_metrics().passes > 1
    assert len([record for _, found in batches(log) for record in found]) < 5_000


def test_nothing_is_cleaned_before_cleaning_is_asked_for() -> None:
    """`log.cleaner.enable=false`."""
    owner = Owner()
    store = MemoryStore(owner.defer, call_soon=owner.call_soon_threadsafe, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(cleanup_policy="compact"))
    commits(store, log, rounds=10, keys=1000, on_turn=owner.run_posted)
    assert len([record for _, found in batches(log) for record in found]) == 10_000


def test_retention_deletes_from_logs_in_memory() -> None:
    owner = Owner()
    begin_ms = owner.clock.now_ms()
    store = MemoryStore(owner.defer, clock=owner.clock)
    by_time = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=300, retention_ms=1000))
    by_size = store.open(TopicPartition("t", 1), TOPIC_ID, LogConfig(segment_bytes=300, retention_bytes=700))
    both = store.open(
        TopicPartition("t", 2),
        TOPIC_ID,
        LogConfig(segment_bytes=300, retention_ms=1000, cleanup_policy="compact,delete"),
    )
    for number in range(20):
        for log in (by_time, by_size, both):
            record = BatchRecord(b"%d" % number, b"x" * 50)
            log.append(build_batch([record], timestamp_ms=begin_ms + number * 100), leader_epoch=0)
    store.flush()
    owner.clock.set(begin_ms + 2500)
    for log in (by_time, by_size):
        log.apply_retention(begin_ms + 2500)
    store.clean(CLEANER)
    assert by_time.log_start_offset == both.log_start_offset > 10
    assert 700 <= by_size.size_bytes < 1000
    by_time.apply_retention(1 << 42)
    assert (by_time.log_start_offset, by_time.size_bytes) == (20, 0)


def test_a_cleaned_segment_has_the_aborted_transactions_whose_markers_stay() -> None:
    owner = Owner()
    store = MemoryStore(owner.defer, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    producer = BatchRecord(b"k", b"1")
    log.append(
        build_batch([producer], timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=0,
    )
    marker = control_batch(producer_id=5, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=1)
    log.append(marker, leader_epoch=0)
    log._roll()
    store.flush()
    store.clean(CLEANER)
    assert store.cleaner_metrics().passes == 1
    (aborted,) = log.segments[0].aborted
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 0, 1)
