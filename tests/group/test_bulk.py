"""Loading many records at once gives what replaying them one by one gives, whatever the log holds."""

import random
from uuid import UUID

import pytest

from kohort.group.bulk import ROWS_AT_ONCE
from kohort.group.records import GroupRecord, GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.model.errors import CorruptError
from kohort.records.values import GroupMetadataTombstone, OffsetCommit, OffsetCommitTombstone
from kohort.runtime.loading.columnar import BULK_MIN, scan_columns
from kohort.runtime.loading.loader import BULK_RECORDS_MIN, load
from kohort.runtime.loading.windows import Load, LoadSummary
from kohort.testing import ManualClock
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, stamp
from tests.conftest import LONG
from tests.group.raw_offsets import RUNS, LogMaker, RawLog, fresh, picture, recorded, replay_one_by_one
from tests.records.plain import PlainOffset, RefusedError, plain_offset
from tests.wire.sealed import drained

SEEDS = range(500 if LONG else 40)


def load_in_bulk(log: RawLog, *, start: int = 0, bytes_max: int = 1 << 24) -> tuple[GroupShard, LoadSummary]:
    shard, summary = fresh(), LoadSummary()
    under_way = Load(log, shard, GroupRecordSerde(), summary, ManualClock().now_ms, bytes_max // 2)  # type: ignore[arg-type]
    offset = start
    while offset < log.end_offset:
        offset = drained(under_way.window(scan_columns, offset, log.end_offset))
    return shard, summary


@pytest.mark.parametrize("run", RUNS)
def test_logs_of_a_broker_say_the_same_at_once(run: str) -> None:
    for name, log in recorded(run).items():
        wanted = picture(replay_one_by_one(log))
        for bytes_max in (1 << 24, 3000):
            loaded, _ = load_in_bulk(log, bytes_max=bytes_max)
            assert picture(loaded) == wanted, (run, name, bytes_max)


@pytest.mark.parametrize("number", SEEDS)
def test_any_log_says_the_same_at_once(number: int, seed: int) -> None:
    log = LogMaker(seed).log()
    naive = replay_one_by_one(log)
    bytes_max = random.Random(seed).choice((1 << 24, 1 << 24, 20_000, 500))
    loaded, summary = load_in_bulk(log, bytes_max=bytes_max)
    assert picture(loaded) == picture(naive)
    counts = [
        header.record_count for batch in log.batches for _, header in iter_batches(batch) if not header.is_control
    ]
    assert summary.records == sum(counts)


@pytest.mark.parametrize("number", SEEDS)
def test_any_log_says_the_same_without_numpy(number: int, seed: int) -> None:
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


def test_the_offsets_of_a_topic_share_its_id() -> None:
    """A table may have millions of offsets, and each has the id of its topic."""
    serde = GroupRecordSerde()
    topic_id = UUID(int=7)
    commits = [
        OffsetCommit(f"group-{number}", "orders", partition, 5, -1, "", 7, -1, topic_id)
        for number in range(2)
        for partition in range(3 * ROWS_AT_ONCE // 4)
    ]
    pairs = [BatchRecord(*serde.encode(commit)) for commit in commits]
    loaded, _ = load_in_bulk(RawLog([build_batch(pairs, timestamp_ms=5)]))
    kept = [offset.topic_id for table in loaded.offsets.by_group.values() for offset in table.values()]
    assert kept == [topic_id] * len(commits)
    assert len({id(each) for each in kept}) == 1


@pytest.mark.parametrize("count", [64, 5_000])
def test_there_may_be_nothing_but_tombstones_and_groups(count: int) -> None:
    """What a deleted topic leaves, or members without offsets; many, so that thousands in a row hold no offset."""
    serde = GroupRecordSerde()
    records: list[GroupRecord] = [OffsetCommitTombstone("group", "orders", partition) for partition in range(count)]
    records += [GroupMetadataTombstone(f"group-{number}") for number in range(count)]
    records.append(OffsetCommit("group", "payments", 0, 5, -1, "", 7))
    pairs = [BatchRecord(*serde.encode(record)) for record in records]
    log = RawLog([build_batch(pairs, timestamp_ms=5)])
    loaded, summary = load_in_bulk(log)
    assert picture(loaded) == picture(replay_one_by_one(log))
    assert summary.records == summary.replayed == 2 * count + 1


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
    drained(under_way.window(scan_columns, 0, log.end_offset))
    assert picture(shard) == picture(replay_one_by_one(log))
    registry.revert_to(5)
    assert picture(shard) == before


def test_a_load_knows_its_newest_offset() -> None:
    """Of a topic that is deleted, the offsets up to this one go."""
    serde = GroupRecordSerde()
    commits = [OffsetCommit("group", "orders", partition, 5, -1, "", 7) for partition in range(300)]
    pairs = [BatchRecord(*serde.encode(commit)) for commit in commits]
    loaded, _ = load_in_bulk(RawLog([build_batch(pairs, timestamp_ms=5)]))
    assert loaded.offsets.newest_record_offset == 299


def test_damaged_offsets_are_what_a_plain_decoder_reads(seed: int) -> None:
    """In one record of each log a byte or more is changed, or its end is cut off; other records have what they had."""
    read = refused = 0
    for number in range(2000 if LONG else 300):
        rng, maker = random.Random(seed + number), LogMaker(seed + number)
        maker.partitions = 1 << 30  # so that no record replaces another one
        pairs = [(maker.key(), maker.value(rng.choice((0, 1, 2, 3, 4, 4)))) for _ in range(BULK_MIN + 2)]
        place = rng.randrange(len(pairs))
        key, value = bytearray(pairs[place][0]), bytearray(pairs[place][1])
        if rng.random() < 0.1:
            key[1] = 0  # the key of Kafka 0.8, under which there is only version 0
        target, first = (key, 2) if rng.random() < 0.3 else (value, 0)
        for _ in range(rng.choice((1, 1, 3))):
            target[rng.randrange(first, len(target))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del target[rng.randrange(first, len(target)) :]
        pairs[place] = bytes(key), bytes(value)
        expected: dict[str, dict[tuple[str, int], PlainOffset]] = {}
        is_refused = False
        for pair in pairs:
            try:
                found = plain_offset(*pair)
            except RefusedError:
                is_refused = True
                continue
            expected.setdefault(found.group_id, {})[found.topic, found.partition] = found
        log = RawLog([build_batch([BatchRecord(*pair) for pair in pairs], timestamp_ms=5)])
        try:
            shard, _ = load_in_bulk(log)
        except CorruptError:
            assert is_refused, number
        else:
            assert plain_tables(shard) == expected, number
        refused, read = refused + is_refused, read + (not is_refused)
    assert read > 150
    assert refused > 30


def plain_tables(shard: GroupShard) -> dict[str, dict[tuple[str, int], PlainOffset]]:
    return {
        group_id: {
            (topic, partition): PlainOffset(
                group_id,
                topic,
                partition,
                found.offset,
                found.leader_epoch,
                found.metadata,
                found.commit_timestamp_ms,
                found.expire_timestamp_ms,
                None if found.topic_id is None else found.topic_id.bytes,
            )
            for (topic, partition), found in table.items()
        }
        for group_id, table in shard.offsets.by_group.items()
    }
