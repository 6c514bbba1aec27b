"""Loading many records at once gives what replaying them one by one gives, whatever the log holds."""

import random

import pytest

from kohort.group.records import GroupRecord, GroupRecordSerde, GroupTombstone, OffsetCommit, OffsetTombstone
from kohort.group.shard import GroupShard
from kohort.model.errors import KohortError, UnknownRecordTypeError
from kohort.runtime.loading.columnar import load_window
from kohort.runtime.loading.loader import BULK_RECORDS_MIN, Load, LoadSummary, load
from kohort.testing import ManualClock
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, stamp
from tests.conftest import LONG
from tests.group.raw_offsets import RUNS, LogMaker, RawLog, fresh, picture, recorded, replay_one_by_one
from tests.wire.sealed import drained

SEEDS = range(500 if LONG else 40)


def load_in_bulk(log: RawLog, *, start: int = 0, bytes_max: int = 1 << 24) -> tuple[GroupShard, LoadSummary]:
    shard, summary = fresh(), LoadSummary()
    under_way = Load(log, shard, GroupRecordSerde(), summary, ManualClock().now_ms)  # type: ignore[arg-type]
    offset: int | None = start
    while offset is not None and offset < log.end_offset:
        offset = drained(load_window(under_way, offset, log.end_offset, bytes_max=bytes_max))
    return shard, summary


@pytest.mark.parametrize("run", RUNS)
def test_logs_of_a_broker_say_the_same_at_once(run: str) -> None:
    for name, log in recorded(run).items():
        wanted = picture(replay_one_by_one(log))
        for bytes_max in (1 << 24, 3000):
            loaded, _ = load_in_bulk(log, bytes_max=bytes_max)
            assert picture(loaded) == wanted, (run, name, bytes_max)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_log_says_the_same_at_once(seed: int) -> None:
    log = LogMaker(seed).log()
    naive = replay_one_by_one(log)
    bytes_max = random.Random(seed).choice((1 << 24, 1 << 24, 20_000, 500))
    loaded, summary = load_in_bulk(log, bytes_max=bytes_max)
    assert picture(loaded) == picture(naive)
    counts = [
        header.record_count for batch in log.batches for _, header in iter_batches(batch) if not header.is_control
    ]
    assert summary.records == sum(counts)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_log_says_the_same_without_numpy(seed: int) -> None:
    log, shard = LogMaker(seed).log(300), fresh()
    for _ in load(log, shard, GroupRecordSerde(), LoadSummary(), start=0, end=log.end_offset):  # type: ignore[arg-type]
        """A step of the load."""
    assert picture(shard) == picture(replay_one_by_one(log))


def test_a_large_log_is_loaded_in_bulk_by_itself() -> None:
    maker = LogMaker(3)
    maker.records_max, maker.transactional_share = 200, 0.05
    log, shard, summary = maker.log(2 * BULK_RECORDS_MIN), fresh(), LoadSummary()
    start = next(iter_batches(log.batches[0]))[1].base_offset
    for _ in load(log, shard, GroupRecordSerde(), summary, start=start, end=log.end_offset):  # type: ignore[arg-type]
        """A step of the load."""
    assert picture(shard) == picture(replay_one_by_one(log))
    assert summary.replayed < summary.records


@pytest.mark.parametrize("count", [64, 5_000])
def test_there_may_be_nothing_but_tombstones_and_groups(count: int) -> None:
    """What a deleted topic leaves, or members without offsets; many, so that thousands in a row hold no offset."""
    serde = GroupRecordSerde()
    records: list[GroupRecord] = [OffsetTombstone("group", "orders", partition) for partition in range(count)]
    records += [GroupTombstone(f"group-{number}") for number in range(count)]
    records.append(OffsetCommit("group", "payments", 0, 5, -1, "", 7))
    pairs = [BatchRecord(*serde.encode(record)) for record in records]
    log = RawLog([build_batch(pairs, timestamp_ms=5)])
    loaded, summary = load_in_bulk(log)
    assert picture(loaded) == picture(replay_one_by_one(log))
    assert summary.records == 2 * count + 1


def test_a_load_at_once_may_start_within_a_batch() -> None:
    maker = LogMaker(5)
    pairs = [(maker.key(), maker.value(4)) for _ in range(300)]
    whole = build_batch([BatchRecord(*pair) for pair in pairs], timestamp_ms=5)
    rest = bytearray(build_batch([BatchRecord(*pair) for pair in pairs[100:]], timestamp_ms=5))
    stamp(rest, base_offset=100, leader_epoch=0)
    loaded, summary = load_in_bulk(RawLog([whole]), start=100)
    assert picture(loaded) == picture(replay_one_by_one(RawLog([bytes(rest)])))
    assert summary.records == 200


def test_with_a_snapshot_the_past_can_still_be_read() -> None:
    log = LogMaker(8).log()
    shard = fresh()
    before = picture(shard)
    registry = shard.groups._registry
    registry.create(5)
    under_way = Load(log, shard, GroupRecordSerde(), LoadSummary(), ManualClock().now_ms)  # type: ignore[arg-type]
    drained(load_window(under_way, 0, log.end_offset))
    assert picture(shard) == picture(replay_one_by_one(log))
    registry.revert_to(5)
    assert picture(shard) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_refused_or_read_and_never_anything_else(seed: int) -> None:
    chance = random.Random(seed)
    log = LogMaker(seed).log(200)
    damaged = []
    for batch in log.batches:
        data = bytearray(batch)
        for _ in range(chance.choice((0, 0, 1, 3))):
            # Behind the length and the magic byte, which storage has judged, and the last offset, which says where to go on.
            place = chance.choice((*range(57, 61), *range(61, len(data))))
            data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        damaged.append(bytes(data))
    log.batches = damaged
    try:
        load_in_bulk(log, bytes_max=chance.choice((1 << 24, 5000)))
    except (KohortError, UnknownRecordTypeError):
        """Damage that was seen."""
