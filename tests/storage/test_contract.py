"""What every store promises, asked of each of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import (
    CoordinatorError,
    ErrorCode,
    FencedError,
    InvariantError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnavailableError,
)
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans, placed_span
from kohort.storage.log import BatchSetTooLargeError, Log, LogConfig, LogStore, TimestampOffset
from kohort.storage.memory import MemoryStore
from kohort.storage.producers import ProducerStateManager
from kohort.wire.batches import BatchRecord, build_batch, check_crc, read_header, read_records, stamp
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

STORES = ("memory", "disk-commit", "disk-os", "postgres")
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
"""A new segment every few batches, an index entry every other."""


def make_store(kind: str, owner: Owner, data_dir: Path) -> LogStore:
    if kind == "memory":
        return MemoryStore(owner.defer)
    if kind == "postgres":
        return owner.postgres()
    return owner.disk(data_dir, flush=kind.removeprefix("disk-"))


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, owner: Owner, tmp_path: Path) -> Iterator[LogStore]:
    store = make_store(request.param, owner, tmp_path / "data")
    yield store
    store.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return store.open(PARTITION, TOPIC_ID, SMALL)


def offsets(data: bytes) -> list[int]:
    return [
        record.offset for start, size, *_ in iter_spans(data) for record in read_records(data[start : start + size])
    ]


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.log_start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (0, 0, 0, 0)
    assert (log.leader_epoch, log.size_bytes, log.topic_id) == (-1, 0, TOPIC_ID)
    assert log.read(0, bytes_max=100) == b""
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    assert log.end_offset_for_epoch(0) == (-1, -1)


def test_appending_sets_base_offset_and_leader_epoch_and_leaves_the_checksum_right(log: Log) -> None:
    assert log.append(batch("a", "b"), leader_epoch=3) == 2
    assert log.append(bytearray(batch("c") + batch("d", "e")), leader_epoch=3) == 5
    data = log.read(0, bytes_max=10_000)
    headers = [read_header(data, start) for start, *_ in iter_spans(data)]
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 3), (2, 3), (3, 3)]
    assert all(check_crc(data, start) for start, *_ in iter_spans(data))
    assert offsets(data) == [0, 1, 2, 3, 4]


def test_appends_to_transactions_are_fenced_by_epoch_and_guard(log: Log) -> None:
    """Source: Kafka UnifiedLog.analyzeAndValidateProducerState for the origin COORDINATOR."""

    def append(epoch: int, guard: object | None) -> str:
        records = [BatchRecord(b"k", b"v")]
        data = build_batch(
            records, timestamp_ms=0, producer_id=9, producer_epoch=epoch, base_sequence=0, transactional=True
        )
        try:
            log.append_transactional(data, leader_epoch=0, producer_id=9, producer_epoch=epoch, guard=guard)
        except CoordinatorError as error:
            return error.code.name
        return "written"

    def end(epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> str:
        marker = EndTransaction(9, epoch, coordinator_epoch, True, transaction_version)
        try:
            log.append_marker(marker, leader_epoch=0, timestamp_ms=0)
        except CoordinatorError as error:
            return error.code.name
        return "written"

    def verified(epoch: int) -> object | None:
        return log.start_verification(Producer("tx", 9, epoch), 0)

    assert append(3, None) == append(3, object()) == "INVALID_TXN_STATE"
    assert append(3, verified(3)) == "written"
    assert verified(3) is None
    assert append(3, None) == "written", "of an open transaction nothing is verified"
    assert append(2, None) == "INVALID_PRODUCER_EPOCH"
    assert end(2, 7) == end(3, 7, transaction_version=2) == "INVALID_PRODUCER_EPOCH"
    assert log.end_offset == 2
    assert end(4, 7, transaction_version=2) == "written"
    with pytest.raises(CoordinatorError, match="INVALID_PRODUCER_EPOCH"):
        verified(3)
    assert append(3, None) == "INVALID_PRODUCER_EPOCH"
    assert end(4, 6) == "TRANSACTION_COORDINATOR_FENCED"
    assert log.end_offset == 3


@pytest.mark.parametrize("committed", [True, False])
def test_producers_are_as_if_their_batches_and_markers_had_been_read(log: Log, committed: bool) -> None:
    for producer_id in (9, 8):
        records = [BatchRecord(b"k", b"v")]
        data = build_batch(records, timestamp_ms=5, producer_id=producer_id, producer_epoch=3, transactional=True)
        log.append(data, leader_epoch=0)
    log.append_marker(EndTransaction(9, 4, 7, committed, 2), leader_epoch=0, timestamp_ms=6)
    log.append_marker(EndTransaction(5, 0, 1, committed), leader_epoch=0, timestamp_ms=9)
    rebuilt = ProducerStateManager()
    data = log.read(0, bytes_max=1 << 20)
    aborted = [rebuilt.update(data, span) for span in iter_spans(data)]
    assert log.producers.states == rebuilt.states
    assert log.producers.first_unstable_offset == rebuilt.first_unstable_offset == 0
    assert log.aborted_transactions(0, data) == [each for each in aborted if each is not None]
    assert len(log.aborted_transactions(0, data)) == (not committed)


def test_the_callers_buffer_is_not_written_to(log: Log) -> None:
    log.append(batch("a"), leader_epoch=1)
    mine = bytearray(batch("b"))
    log.append(mine, leader_epoch=1)
    assert mine == batch("b")


def test_appending_nothing_changes_nothing(log: Log) -> None:
    assert log.append(b"", leader_epoch=1) == 0


def test_the_high_watermark_moves_after_the_turn_and_tells_listeners_once(owner: Owner, log: Log) -> None:
    heard: list[int] = []
    log.add_listener(heard.append)
    log.append(batch("a"), leader_epoch=1)
    log.append(batch("b", "c"), leader_epoch=1)
    assert (log.high_watermark, heard) == (0, [])
    owner.wait_for(lambda: log.high_watermark == 3)
    assert heard == [3]
    log.remove_listener(heard.append)
    log.append(batch("d"), leader_epoch=1)
    owner.wait_for(lambda: log.high_watermark == 4)
    assert heard == [3]


def test_what_a_listener_appends_is_committed_later(owner: Owner, log: Log) -> None:
    def on_high_watermark(high_watermark: int) -> None:
        if high_watermark < 5:
            log.append(batch("again"), leader_epoch=1)
            assert log.high_watermark == high_watermark

    log.add_listener(on_high_watermark)
    log.append(batch("first"), leader_epoch=1)
    owner.wait_for(lambda: log.high_watermark == 5)


def test_a_listener_that_fails_stops_nobody_else(owner: Owner, store: LogStore) -> None:
    def fail(_: int) -> None:
        raise InvariantError("a listener's defect")

    logs = [store.open(TopicPartition("t", partition), TOPIC_ID, SMALL) for partition in range(3)]
    for log in logs:
        log.add_listener(fail)
        log.append(batch("a"), leader_epoch=0)
    owner.wait_for(lambda: all(log.high_watermark == 1 for log in logs))


def test_flush_makes_everything_durable_at_once(store: LogStore, log: Log) -> None:
    log.append(batch("a", "b"), leader_epoch=1)
    store.flush()
    assert log.high_watermark == 2


# fmt: off
READS = {  # (offset, bytes_max in batches, up_to): offsets read from five batches of two records in one segment
    "all":                           ((0, 9, None), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    "as many as fit":                ((0, 2, None), [0, 1, 2, 3]),
    "at least one":                  ((4, 0, None), [4, 5]),
    "the batch that holds the offset": ((5, 1, None), [4, 5]),
    "up to a boundary":              ((0, 9, 4),    [0, 1, 2, 3]),
    "never a part of a batch":       ((0, 9, 5),    [0, 1, 2, 3]),
    "nothing below up_to":           ((4, 9, 4),    []),
    "not even the first":            ((4, 9, 5),    []),
    "at the end":                    ((10, 9, None), []),
    "last":                          ((9, 1, None), [8, 9]),
    "up_to beyond the end":          ((8, 9, 99),   [8, 9]),
}
# fmt: on


@pytest.mark.parametrize("case", READS)
@pytest.mark.parametrize("index_interval_bytes", [1, 100, 4096])
def test_reading(store: LogStore, case: str, index_interval_bytes: int) -> None:
    log = store.open(PARTITION, TOPIC_ID, LogConfig(index_interval_bytes=index_interval_bytes))
    for _ in range(5):
        log.append(batch("x", "y"), leader_epoch=0)
    (offset, batches_max, up_to), expected = READS[case]
    assert offsets(log.read(offset, bytes_max=batches_max * len(batch("x", "y")), up_to=up_to)) == expected


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    segment_bytes=st.integers(300, 900),
    index_interval_bytes=st.sampled_from([0, 70, 200, 5000]),
    bytes_max=st.integers(0, 700),
    data=st.data(),
)
@pytest.mark.parametrize("kind", STORES)
def test_reading_on_and_on_gives_every_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    sizes: list[int],
    segment_bytes: int,
    index_interval_bytes: int,
    bytes_max: int,
    data: st.DataObject,
) -> None:
    owner = Owner()
    store = make_store(kind, owner, tmp_path_factory.mktemp("data"))
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    log = store.open(PARTITION, TOPIC_ID, config)
    for size in sizes:
        log.append(batch(*["v"] * size), leader_epoch=0)
    start = data.draw(st.integers(0, log.end_offset))
    up_to = data.draw(st.integers(start, log.end_offset))
    found: list[int] = []
    at = start
    while piece := log.read(at, bytes_max=bytes_max, up_to=up_to):
        found += offsets(piece)
        at = found[-1] + 1
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    whole_until = max((end for end in ends if end <= up_to), default=0)
    assert [offset for offset in found if offset >= start] == list(range(start, whole_until))
    store.close()


@pytest.mark.parametrize("offset", [-1, 6])
def test_an_offset_outside_is_refused(log: Log, offset: int) -> None:
    log.append(batch(*"abcde"), leader_epoch=0)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(offset, bytes_max=10)


def test_an_older_leader_is_fenced_and_a_newer_one_begins_at_the_end(log: Log) -> None:
    log.become_leader(2)
    log.append(batch("a"), leader_epoch=2)
    log.append(batch("b", "c"), leader_epoch=5)
    with pytest.raises(FencedError):
        log.append(batch("d"), leader_epoch=4)
    with pytest.raises(FencedError):
        log.become_leader(4)
    assert (log.leader_epoch, log.end_offset) == (5, 3)
    assert [log.end_offset_for_epoch(epoch) for epoch in (-1, 1, 2, 3, 5, 6)] == [
        (-1, -1),
        (1, 0),
        (2, 1),
        (2, 1),
        (5, 3),
        (-1, -1),
    ]
    assert [log.epoch_for_offset(offset) for offset in (0, 1, 3)] == [2, 5, 5]


def test_an_epoch_without_appends_gives_way_to_the_next(log: Log) -> None:
    log.become_leader(1)
    log.become_leader(2)
    assert log.end_offset_for_epoch(1) == (1, 0)
    assert log.epoch_for_offset(0) == 2


def test_too_large_a_batch_is_refused_and_nothing_of_its_set_is_kept(store: LogStore, log: Log) -> None:
    log.config = LogConfig(max_message_bytes=100)
    assert log.batch_bytes_max == 100
    with pytest.raises(RecordTooLargeError):
        log.append(batch("a") + batch("b" * 100), leader_epoch=0)
    assert log.end_offset == 0
    log.config = LogConfig(segment_bytes=100)
    with pytest.raises(BatchSetTooLargeError) as refused:
        log.append(batch("b" * 100), leader_epoch=0)
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


def test_a_batch_with_its_offset_and_epoch_is_taken_as_it_is_and_any_other_is_stamped(log: Log) -> None:
    log.append(batch("a"), leader_epoch=3)
    data = bytearray(batch("b", "c"))
    stamp(data, base_offset=1, leader_epoch=3)
    placed = bytes(data)
    assert placed_span(placed, 1, 3, len(placed)) == (0, len(placed), 1, 2, 1000)
    for wrong in ((placed, 2, 3), (placed, 1, 4), (placed[:-1], 1, 3), (placed + placed, 1, 3), (b"", 1, 3)):
        assert placed_span(*wrong, 1_000) is None
    assert placed_span(placed, 1, 3, len(placed) - 1) is None
    assert log.append(placed, leader_epoch=3) == 3
    assert log.append(placed, leader_epoch=3) == 5
    assert log.append(placed, leader_epoch=4) == 7
    assert log.read(1, bytes_max=len(placed)) == placed
    headers = [read_header(log.read(offset, bytes_max=1)) for offset in (1, 3, 5)]
    assert [(each.base_offset, each.partition_leader_epoch) for each in headers] == [(1, 3), (3, 3), (5, 4)]
    stamp(data, base_offset=7, leader_epoch=4)
    for config in (LogConfig(max_message_bytes=len(data) - 1), LogConfig(segment_bytes=len(data) - 1)):
        log.config = config
        with pytest.raises(RecordTooLargeError):
            log.append(bytes(data), leader_epoch=4)
    assert log.end_offset == 7


def test_bytes_that_are_no_batches_are_our_own_defect(log: Log) -> None:
    for wrong in (b"x", bytes(61), batch("a")[:-1], batch("a") + b"\x00"):
        with pytest.raises(InvariantError):
            log.append(wrong, leader_epoch=0)
    assert log.end_offset == 0


def test_searching_by_time(log: Log) -> None:
    log.append(batch("a", "b", "c", timestamp_ms=100, step_ms=10), leader_epoch=1)
    log.append(batch("d", timestamp_ms=90), leader_epoch=1)
    log.append(batch("e", "f", timestamp_ms=500, step_ms=-200), leader_epoch=2)
    log.append(batch("g", timestamp_ms=500), leader_epoch=2)
    # fmt: off
    assert [log.offset_for_timestamp(timestamp_ms) for timestamp_ms in (0, 100, 101, 120, 121, 500, 501)] == [
        TimestampOffset(0, 100, 1), TimestampOffset(0, 100, 1), TimestampOffset(1, 110, 1), TimestampOffset(2, 120, 1),
        TimestampOffset(4, 500, 2), TimestampOffset(4, 500, 2), None,
    ]
    # fmt: on
    assert log.max_timestamp() == TimestampOffset(4, 500, 2)


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(timestamps=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), max_size=15), asked=st.integers(0, 31))
@pytest.mark.parametrize("kind", STORES)
def test_searching_by_time_agrees_with_looking_at_every_record(
    tmp_path_factory: pytest.TempPathFactory, kind: str, timestamps: list[list[int]], asked: int
) -> None:
    store = make_store(kind, Owner(), tmp_path_factory.mktemp("data"))
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=300, index_interval_bytes=80))
    for times in timestamps:
        log.append(b"".join(batch("v", timestamp_ms=time) for time in times), leader_epoch=0)
    records = list(enumerate(time for times in timestamps for time in times))
    expected = next((TimestampOffset(offset, time, 0) for offset, time in records if time >= asked), None)
    assert log.offset_for_timestamp(asked) == expected
    newest = max(records, key=lambda record: record[1], default=None)
    assert log.max_timestamp() == (None if newest is None else TimestampOffset(newest[0], newest[1], 0))
    store.close()


def test_a_store_knows_its_logs(store: LogStore) -> None:
    first = store.open(TopicPartition("b", 1), TOPIC_ID, LogConfig())
    store.open(TopicPartition("a", 0), TOPIC_ID, LogConfig())
    assert list(store.partitions()) == [TopicPartition("a", 0), TopicPartition("b", 1)]
    assert store.get(TopicPartition("b", 1)) is first
    assert store.get(TopicPartition("b", 2)) is None
    assert store.open(TopicPartition("b", 1), TOPIC_ID, SMALL) is first
    assert first.config is SMALL


def _delete(store: LogStore) -> None:
    store.delete(PARTITION)


def _replace(store: LogStore) -> None:
    assert store.open(PARTITION, UUID(int=8), LogConfig()).end_offset == 0


def _close(store: LogStore) -> None:
    store.close()


@pytest.mark.parametrize("end", [_delete, _replace, _close])
def test_a_log_that_is_gone_refuses_everything(
    owner: Owner, store: LogStore, log: Log, end: Callable[[LogStore], None]
) -> None:
    log.append(batch("a"), leader_epoch=0)
    end(store)
    heard: list[int] = []
    log.add_listener(heard.append)
    owner.run_turn()
    owner.run_posted()
    for refused in (
        lambda: log.append(batch("b"), leader_epoch=0),
        lambda: log.read(0, bytes_max=10),
        lambda: log.become_leader(1),
    ):
        with pytest.raises(UnavailableError):
            refused()
    assert heard == []


def test_deleting_forgets_and_the_name_is_free_again(store: LogStore, log: Log) -> None:
    log.append(batch("a"), leader_epoch=4)
    store.delete(PARTITION)
    store.delete(PARTITION)
    assert store.get(PARTITION) is None
    assert list(store.partitions()) == []
    again = store.open(PARTITION, UUID(int=9), SMALL)
    assert (again.end_offset, again.leader_epoch) == (0, -1)
    assert again.append(batch("b"), leader_epoch=0) == 1


def test_closing_twice_is_closing(store: LogStore, log: Log) -> None:
    log.append(batch("a"), leader_epoch=0)
    store.close()
    store.close()
    with pytest.raises(UnavailableError):
        store.open(TopicPartition("other", 0), TOPIC_ID, LogConfig())
