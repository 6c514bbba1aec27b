"""Loading a partition is replaying it, however the log is cut into batches; and it never takes long at a time."""

import os
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.machine.timeline import SnapshotRegistry
from kohort.runtime.loading import columnar, loader, windows
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.testing import FaultyLog
from tests.runtime.harness import batch_of
from tests.runtime.shards import Put, PutSerde, TableShard
from tests.wire.control_batches import control_batch


class NoDeadlines:
    def __getattr__(self, name: str) -> None:
        raise AssertionError(name)


def fresh() -> TableShard:
    return TableShard(0, SnapshotRegistry(), NoDeadlines())  # type: ignore[arg-type]


RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 9)), min_size=1, max_size=4)
BATCHES = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.just(-1), RECORDS),
        st.tuples(st.just("pending"), st.sampled_from([7, 8]), RECORDS),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([7, 8]), st.just([])),
    ),
    max_size=12,
)


class Counted(TableShard):
    """Notes every record that it replays."""

    def __init__(self) -> None:
        super().__init__(0, SnapshotRegistry(), NoDeadlines())  # type: ignore[arg-type]
        self.replayed: list[tuple[int, str, int | None]] = []

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: Put, /) -> None:
        self.replayed.append((offset, record.name, record.number))
        super().replay(offset, producer_id, producer_epoch, record)


@pytest.mark.parametrize("count", [5, 20_000], ids=["plain", "with numpy"])
def test_every_record_of_a_log_that_is_not_compacted_is_replayed(count: int) -> None:
    log, shard, summary = FaultyLog(), Counted(), LoadSummary()
    rows = [(offset, "ab"[offset % 2], offset if offset % 5 else None) for offset in range(count)]
    for low in range(0, count, 1_000):
        puts = [PutSerde().encode(Put(name, number)) for _, name, number in rows[low : low + 1_000]]
        log.append(batch_of(puts), leader_epoch=0)
    loader._import()
    for _ in load(log, shard, PutSerde(), summary, start=0, end=log.end_offset, is_compacted=False):
        """A step of the load."""
    assert shard.replayed == rows
    assert summary.replayed == summary.records == count


@given(BATCHES)
def test_a_load_equals_replaying_record_by_record(
    batches: list[tuple[str, int, list[tuple[str, int | None]]]],
) -> None:
    log, naive, offset = FaultyLog(), fresh(), 0
    for kind, producer_id, records in batches:
        if kind in ("commit", "abort"):
            committed = kind == "commit"
            naive.replay_end_transaction_marker(producer_id, 0, committed=committed)
            batch = control_batch(
                producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=0
            )
            log.append(batch, leader_epoch=0)
            continue
        puts = [Put(name, number) for name, number in records]
        for put in puts:
            naive.replay(offset, producer_id, 0 if producer_id != -1 else -1, put)
            offset += 1
        log.append(batch_of([PutSerde().encode(put) for put in puts], producer_id), leader_epoch=0)
    loaded, summary = fresh(), LoadSummary()
    for _ in load(log, loaded, PutSerde(), summary, start=0, end=log.end_offset):
        """A step of the load."""
    assert (loaded.table, loaded.pending) == (naive.table, naive.pending)
    assert loaded.producers == naive.producers, "records of transactions are replayed one by one"
    assert summary.records == sum(len(records) for _, _, records in batches)
    assert summary.bytes == sum(map(len, log.batches))


def test_records_without_a_key_and_of_unknown_types_are_left_out() -> None:
    log, shard, summary = FaultyLog(), fresh(), LoadSummary()
    log.append(batch_of([(None, b"1"), (b"\xff?", b"1"), (b"\xff!", b"1"), (b"a", b"1")]), leader_epoch=0)  # type: ignore[list-item]
    assert sum(1 for _ in load(log, shard, PutSerde(), summary, start=0, end=4)) > 0
    assert shard.table == {"a": 1}
    assert (summary.records, summary.replayed, summary.unknown_types) == (4, 1, (0xFF,))


def test_the_newest_value_and_the_newest_tombstone_of_a_key_are_decoded() -> None:
    log, shard, summary = FaultyLog(), fresh(), LoadSummary()
    log.append(batch_of([(b"a", b"1"), (b"a", b"2"), (b"b", b"3")]), leader_epoch=0)
    log.append(batch_of([(b"a", None), (b"a", None), (b"c", None)]), leader_epoch=0)
    for _ in load(log, shard, PutSerde(), summary, start=0, end=6):
        """A step of the load."""
    assert shard.table == {"b": 3}
    assert (summary.records, summary.replayed) == (6, 4)


def test_a_load_may_start_within_a_batch() -> None:
    log, shard = FaultyLog(), fresh()
    log.append(batch_of([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]), leader_epoch=0)
    for _ in load(log, shard, PutSerde(), LoadSummary(), start=1, end=3):
        """A step of the load."""
    assert shard.table == {"b": 2, "c": 3}


def test_a_step_handles_a_bounded_number_of_records() -> None:
    log, shard = FaultyLog(), fresh()
    count = 3 * windows.REPLAYED_PER_STEP
    for start in range(0, count, 512):
        pairs: list[tuple[bytes, bytes | None]] = [(b"%d" % key, b"1") for key in range(start, start + 512)]
        log.append(batch_of(pairs), leader_epoch=0)
    sizes = [len(shard.table) for _ in load(log, shard, PutSerde(), LoadSummary(), start=0, end=count)]
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    assert len(shard.table) == count
    assert max(steps) <= windows.REPLAYED_PER_STEP


def test_a_step_ends_when_its_time_is_over() -> None:
    """By a clock that goes on whenever somebody looks at it: a step ends after so many looks, not after so many records."""
    looks = iter(range(1 << 30))
    log, shard = FaultyLog(), fresh()
    for start in range(0, 4096, 64):
        log.append(batch_of([(b"%d" % key, b"1") for key in range(start, start + 64)]), leader_epoch=0)
    steps = load(log, shard, PutSerde(), LoadSummary(), start=0, end=4096, now_ms=lambda: next(looks))
    before = 0
    for _ in steps:
        now = next(looks)
        assert now - before <= windows.STEP_MS + 2
        before = now
    assert len(shard.table) == 4096


def test_a_window_ends_with_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read twice."""

    class Watched(FaultyLog):
        def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
            asked.append(offset)
            return super().read(offset, bytes_max=bytes_max, up_to=up_to)

    asked: list[int] = []
    log = Watched()
    for number in range(20):
        log.append(batch_of([PutSerde().encode(Put("ab"[number % 2], number))] * 1_000), leader_epoch=0)
    size = len(log.batches[-1])
    loader._import()
    monkeypatch.setattr(columnar, "READ_BYTES", 3 * size)
    for _ in load(log, fresh(), PutSerde(), LoadSummary(), start=0, end=20_000, buffer_bytes=4 * size):
        """A step of the load."""
    # The last thousands are too few for numpy, and their windows are reads of the load buffer.
    assert asked == [0, 3_000, 6_000, 9_000, 12_000, 16_000]


@pytest.mark.parametrize("wanted", [None, "3"])
def test_numpy_is_imported_without_threads_of_its_own_unless_somebody_wants_them(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "OPENBLAS_NUM_THREADS"
    if wanted is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, wanted)
    seen: list[str | None] = []

    def look(_: str) -> ModuleType:
        seen.append(os.environ.get(name))
        raise ImportError

    monkeypatch.setattr(loader, "import_module", look)
    monkeypatch.setattr(loader._Numpy, "scan", None)
    loader._import()
    assert seen == [wanted or "1"]
    assert os.environ.get(name) == wanted
