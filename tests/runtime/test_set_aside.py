"""A record that cannot be decoded costs itself, not the load of its partition: without numpy and with it."""

import logging
from collections.abc import Callable, Generator, Iterator
from struct import pack_into

import pytest

from kohort.model.errors import CorruptError
from kohort.runtime.loading import columnar, windows
from kohort.runtime.loading.ahead import Pause
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.set_aside import DETAILS_MAX, find_set_aside
from kohort.runtime.loading.windows import Load, LoadSummary
from kohort.runtime.states import State
from kohort.testing import FaultyLog
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import iter_batches, write_crc
from kohort.wire.compression import Codec
from tests.runtime.harness import Bench, batch_of
from tests.runtime.shards import PutSerde, TableShard
from tests.runtime.test_loader import fresh
from tests.wire.control_batches import control_batch

GOOD = batch_of([(b"a", b"1")])
ALSO_GOOD = batch_of([(b"z", b"9")])
BAD_VALUE = batch_of([(b"b", b"2"), (b"bad", b"no number"), (b"c", b"3")])
BAD_KEY = batch_of([(b"\xc3", b"1")])
BAD_IN_TRANSACTION = batch_of([(b"x", b"1"), (b"bad", b"no number")], producer_id=7)


def with_contents(batch: bytes, change: Callable[[bytearray], None], *, seal: bool = True) -> bytes:
    changed = bytearray(batch)
    change(changed)
    if seal:
        write_crc(changed)
    return bytes(changed)


def long_record(batch: bytearray) -> None:
    """The first record claims to be longer than the batch."""
    batch[HEADER_BYTES] = 0x7E


def zstd(batch: bytearray) -> None:
    """The records claim to be compressed."""
    batch[22] |= Codec.ZSTD


def long_value(batch: bytearray) -> None:
    """The value of the last record, "3", claims to have 20 bytes."""
    batch[-3] = 40


NO_RECORDS = with_contents(BAD_VALUE, long_record)
NOT_COMPRESSED = with_contents(BAD_VALUE, zstd)
DAMAGED = with_contents(BAD_VALUE, long_record, seal=False)
DAMAGED_VALUE = with_contents(BAD_VALUE, lambda batch: pack_into("1s", batch, -2, b"4"), seal=False)


def all_at_once(log: FaultyLog, shard: TableShard, summary: LoadSummary) -> Iterator[Pause]:
    return load(log, shard, PutSerde(), summary, start=0, end=log.end_offset)


def by_columns(log: FaultyLog, shard: TableShard, summary: LoadSummary) -> Iterator[Pause]:
    under_way = Load(log, shard, PutSerde(), summary, lambda: 0)
    offset = 0
    while offset < log.end_offset:
        offset = yield from under_way.window(columnar.scan_columns, offset, log.end_offset)


WAYS = pytest.mark.parametrize("way", [all_at_once, by_columns])
Way = Callable[[FaultyLog, TableShard, LoadSummary], Iterator[Pause]]


def loaded(way: Way, *batches: bytes) -> tuple[TableShard, LoadSummary]:
    log, shard, summary = FaultyLog("state", 3), fresh(), LoadSummary()
    for batch in batches:
        log.append(batch, leader_epoch=0)
    for _ in way(log, shard, summary):
        """A step of the load."""
    return shard, summary


@WAYS
@pytest.mark.parametrize(
    ("bad", "offset", "records", "key", "kept"),
    [
        (BAD_VALUE, 2, 1, b"bad", {"a": 1, "b": 2, "c": 3, "z": 9}),
        (BAD_KEY, 1, 1, b"\xc3", {"a": 1, "z": 9}),
        (BAD_IN_TRANSACTION, 2, 1, b"bad", {"a": 1, "z": 9}),
        (NO_RECORDS, 1, 3, None, {"a": 1, "z": 9}),
        (NOT_COMPRESSED, 1, 3, None, {"a": 1, "z": 9}),
    ],
    ids=["value", "key", "transaction", "batch", "compressed batch"],
)
def test_what_cannot_be_decoded_is_set_aside_and_the_rest_loaded(
    way: Way,
    bad: bytes,
    offset: int,
    records: int,
    key: bytes | None,
    kept: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "kohort.runtime"):
        shard, summary = loaded(way, GOOD, bad, ALSO_GOOD)
    assert shard.table == kept
    assert summary.set_aside_count == records
    (found,) = summary.set_aside
    assert (found.offset, found.records, found.key) == (offset, records, key)
    assert found.reason
    (line,) = caplog.messages
    assert line == f"load.set_aside partition=state-3 {found}"
    if key is not None:
        assert f"offset={offset} key={key.hex()}" in line
    assert summary.records == 2 + next(iter(iter_batches(bad)))[1].record_count


@WAYS
def test_a_transaction_keeps_its_other_records(way: Way) -> None:
    end = control_batch(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=0)
    shard, summary = loaded(way, BAD_IN_TRANSACTION, end)
    assert shard.table == {"x": 1}
    assert summary.set_aside_count == 1


@WAYS
def test_a_value_that_is_longer_than_its_record_costs_no_more_than_its_batch(way: Way) -> None:
    shard, summary = loaded(way, GOOD, with_contents(batch_of([(b"c", b"3")]), long_value), ALSO_GOOD)
    assert shard.table == {"a": 1, "z": 9}
    assert summary.set_aside_count == 1


@WAYS
@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([b"1", b"bad"], 1),
        ([b"1", b"2", b"bad", b"bad"], 2),
        ([b"1", None, b"bad"], None),
        ([None, b"1", b"bad"], 1),
        ([b"1", b"bad", None], None),
        ([b"1", b"bad", b"3"], 3),
        ([b"bad"], None),
    ],
)
@pytest.mark.parametrize("batches", [1, 10])
def test_the_record_before_a_bad_one_counts(
    way: Way, values: list[bytes | None], kept: int | None, batches: int
) -> None:
    """As if the bad one were not in the log, wherever a window begins: an older offset is better than none."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"k", value) for value in values]
    if batches == 1:
        shard, _ = loaded(way, GOOD, batch_of(pairs), ALSO_GOOD)
    else:
        shard, _ = loaded(way, GOOD, *(batch_of([pair]) for pair in pairs), ALSO_GOOD)
    assert shard.table.get("k") == kept
    assert (shard.table["a"], shard.table["z"]) == (1, 9)


def test_a_record_before_the_start_of_a_load_does_not_count_for_a_bad_one() -> None:
    log, shard = FaultyLog(), fresh()
    log.append(batch_of([(b"k", b"1"), (b"k", b"bad")]), leader_epoch=0)
    for _ in load(log, shard, PutSerde(), LoadSummary(), start=1, end=2):
        """A step of the load."""
    assert shard.table == {}


@WAYS
def test_the_record_before_a_bad_one_comes_before_a_later_transaction(way: Way) -> None:
    end = control_batch(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=0)
    plain = batch_of([(b"k", b"1"), (b"k", b"bad")])
    shard, _ = loaded(way, plain, batch_of([(b"k", b"5")], producer_id=7), end, ALSO_GOOD)
    assert shard.table == {"k": 5, "z": 9}


@WAYS
@pytest.mark.parametrize("damaged", [DAMAGED, DAMAGED_VALUE], ids=["batch", "record"])
def test_a_batch_with_a_wrong_checksum_fails_the_load(way: Way, damaged: bytes) -> None:
    """Damage of the log, and not what a producer wrote: nothing in the batch can be trusted."""
    with pytest.raises(CorruptError, match="checksum of the batch at offset"):
        loaded(way, GOOD, damaged)


@WAYS
def test_a_marker_that_cannot_be_read_fails_the_load(way: Way) -> None:
    """Without it the transaction would stay pending."""
    marker = control_batch(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=0)
    cut = with_contents(marker, lambda batch: pack_into("b", batch, HEADER_BYTES + 4, 2))
    with pytest.raises(CorruptError):
        loaded(way, GOOD, cut)


@WAYS
def test_many_bad_records_are_counted_and_some_logged(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"bad%d" % number, b"no number") for number in range(DETAILS_MAX + 50)]
    with caplog.at_level(logging.WARNING, "kohort.runtime"):
        _, summary = loaded(way, batch_of(pairs))
    assert summary.set_aside_count == DETAILS_MAX + 50
    assert len(summary.set_aside) == len(caplog.messages) == DETAILS_MAX


def test_a_partition_with_a_bad_record_is_served_and_measured() -> None:
    bench = Bench()
    for batch in (GOOD, BAD_VALUE):
        bench.log.append(batch, leader_epoch=0)
    bench.log.commit()
    bench.load()
    assert bench.state() is State.ACTIVE
    assert bench.read() == {"a": 1, "b": 2, "c": 3}
    assert bench.runtime.metrics().records_set_aside == 1
    bench.put("a", ("bad", 5))
    bench.node.settle()
    bench.log.commit()
    bench.runtime.unload(0, None)
    bench.load(leader_epoch=1)
    assert bench.read() == {"a": 1, "b": 2, "bad": 5, "c": 3}, "a newer record of the key counts"


def test_an_error_of_the_shard_still_fails_the_load() -> None:
    """`replay` may have changed half of the state, and what it would have done is not known."""
    bench = Bench()
    bench.log.append(batch_of([(b"poison", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.load()
    assert bench.state() is State.FAILED
    assert bench.runtime.metrics().records_set_aside == 0


@pytest.mark.parametrize("batch", [GOOD, BAD_VALUE, BAD_KEY, BAD_IN_TRANSACTION, NO_RECORDS, NOT_COMPRESSED])
def test_a_tool_finds_what_a_load_sets_aside(batch: bytes) -> None:
    _, summary = loaded(all_at_once, batch)
    ((_, header),) = iter_batches(batch)
    assert tuple(find_set_aside(header, batch, PutSerde())) == summary.set_aside


def test_the_window_of_a_load_is_its_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """`offsets.load.buffer.size`: how much is read at once, but at least one batch."""
    asked: list[int] = []

    class Watched(FaultyLog):
        def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
            asked.append(bytes_max)
            return super().read(offset, bytes_max=bytes_max, up_to=up_to)

    log, shard, summary = Watched(), fresh(), LoadSummary()
    for _ in range(5):
        log.append(GOOD, leader_epoch=0)
    for _ in load(log, shard, PutSerde(), summary, start=0, end=5, buffer_bytes=2 * len(GOOD)):
        """A step of the load."""
    assert asked == [2 * len(GOOD)] * 3
    assert summary.records == 5
    asked.clear()
    under_way = Load(log, fresh(), PutSerde(), LoadSummary(), lambda: 0, 1)
    assert len(list(under_way.window(columnar.scan_columns, 0, 5))) > 0
    assert asked == [2]
    assert windows.LOAD_BUFFER_BYTES == 5 * 1024 * 1024


def test_loads_at_the_same_time_share_the_memory_of_one_window() -> None:
    asked: list[int] = []

    class Watched(FaultyLog):
        def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
            asked.append(bytes_max)
            return super().read(offset, bytes_max=bytes_max, up_to=up_to)

    log = Watched()
    log.append(GOOD, leader_epoch=0)

    def begun() -> Generator[Pause, None, int]:
        steps = Load(log, fresh(), PutSerde(), LoadSummary(), lambda: 0).window(columnar.scan_columns, 0, 1)
        next(steps)
        return steps

    loads = [begun() for _ in range(7)]
    assert asked == [columnar.READ_BYTES] * 5 + [columnar.WINDOWS_BYTES // 6, columnar.WINDOWS_BYTES // 7]
    for load_in_progress in loads:
        for _ in load_in_progress:
            """A step of the load."""
    begun().close()
    assert asked[-1] == columnar.READ_BYTES
