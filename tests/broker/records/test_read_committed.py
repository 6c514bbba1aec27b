"""
Readers with `read_committed`: Fetch, fetch sessions and ListOffsets around open and ended transactions.

Every expected value is an answer of Apache Kafka 4.2.1 to the same requests.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CoordinatorError
from kohort.model.ids import TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches
from tests.broker.harness import Harness, produce_request
from tests.broker.records.in_steps import in_steps  # noqa: F401 -- a fixture
from tests.broker.transactions.test_producers import NOW_MS, end
from tests.storage.owner import AWAITED, Owner

ALL, COMMITTED = 0, 1
A, B = 7, 8
"""Producer ids."""
BASE_MS = NOW_MS - 10_000
"""Timestamps below count from here; markers have the time of the clock."""


class Confirming:
    """A transaction coordinator that knows every transaction."""

    def verify(
        self, _partition: TopicPartition, _producer: Producer, verified: Callable[[CoordinatorError | None], None], /
    ) -> None:
        verified(None)


class Readers:
    """A topic with one partition; its writers and readers."""

    def __init__(self, directory: Path | None = None) -> None:
        coordinator = Confirming()
        self.sequences: dict[int, int] = {}
        if directory is None:
            self.harness = Harness(verification=coordinator)
        else:
            owner = Owner()
            store = owner.disk(directory, flush="os", **AWAITED)
            self.harness = Harness(store=store, node=owner.node, verification=coordinator)
        self.harness.create("t")

    def produce_request(self, count: int, timestamp_ms: int = 1000, *, producer_id: int = -1) -> m.ProduceRequest:
        """One batch, in a transaction if there is a producer."""
        is_transactional = producer_id >= 0
        sequence = self.sequences.get(producer_id, 0) if is_transactional else -1
        records = build_batch(
            [BatchRecord(b"k", b"v")] * count,
            timestamp_ms=BASE_MS + timestamp_ms,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        self.sequences[producer_id] = sequence + count
        return produce_request("t", {0: records}, transactional_id="tx" if is_transactional else None)

    def write(self, count: int, timestamp_ms: int = 1000, *, producer_id: int = -1) -> None:
        request = self.produce_request(count, timestamp_ms, producer_id=producer_id)
        (topic,) = self.harness.ask(ApiKey.PRODUCE, request, version=12).responses
        assert topic.partition_responses[0].error_code == 0

    def end(self, producer_id: int, *, committed: bool = False) -> None:
        assert end(self.harness, committed=committed, producer_id=producer_id) == {("t", 0): 0}

    def delete_before(self, offset: int) -> None:
        partition = m.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = m.DeleteRecordsTopic(name="t", partitions=[partition])
        answer = self.harness.ask(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        assert answer.topics[0].partitions[0].error_code == 0

    def request(self, offset: int, isolation_level: int = COMMITTED, **fields: Any) -> m.FetchRequest:
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        defaults: dict[str, Any] = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": isolation_level,
            "session_epoch": -1,
            "topics": [m.FetchRequestFetchTopic(topic="t", partitions=[partition])],
        }
        return m.FetchRequest(**defaults | fields)

    def begin_fetch(self, offset: int, **fields: Any) -> list[Any]:
        return self.harness.begin(ApiKey.FETCH, self.request(offset, **fields), version=12)

    def fetch(self, offset: int, isolation_level: int = COMMITTED) -> Any:
        return seen(self.harness.ask(ApiKey.FETCH, self.request(offset, isolation_level), version=12))

    def offset(self, timestamp: int, isolation_level: int = COMMITTED) -> int:
        at = BASE_MS + timestamp if timestamp >= 0 else timestamp
        partition = m.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=at)
        topic = m.ListOffsetsTopic(name="t", partitions=[partition])
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic], timeout_ms=1000)
        ((found,),) = [answer.partitions for answer in self.harness.ask(ApiKey.LIST_OFFSETS, request, version=8).topics]
        assert found.error_code == 0
        return int(found.offset)


def seen(response: Any) -> Any:
    """
    The answer for one partition: last stable offset, producer ids and first offsets of aborted transactions (None: not told),
    base offsets of batches; or the error code.
    """
    (data,) = response.responses[0].partitions
    if data.error_code:
        return data.error_code
    aborted = data.aborted_transactions
    return (
        data.last_stable_offset,
        None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted],
        [header.base_offset for _, header in iter_batches(bytes(data.records or b""))],
    )


@pytest.fixture(params=["memory", "disk"])
def readers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Readers]:
    readers = Readers(tmp_path if request.param == "disk" else None)
    yield readers
    readers.harness.store.close()


@pytest.fixture
def interleaved(readers: Readers) -> Readers:
    """Plain records at 0 and 1, 5, and 8; A's transaction from 2 to 4, B's from 6 to 7, both open."""
    readers.write(2, 500)
    readers.write(3, 600, producer_id=A)
    readers.write(1, 700)
    readers.write(2, 800, producer_id=B)
    readers.write(1, 900)
    return readers


AHEAD = 1001
"""A timestamp after all records."""
OUT_OF_RANGE = 1
# fmt: off
OPEN_FETCHES = {  # by fetch offset
    0: (2, [], [0]), 1: (2, [], [0]), 2: (2, [], []), 3: (2, [], []), 5: (2, [], []), 8: (2, [], []), 9: (2, [], []),
    10: OUT_OF_RANGE,
}
OPEN_OFFSETS = {  # by timestamp: offsets with read_committed and read_uncommitted
    -1: (2, 9), -2: (0, 0), -3: (-1, 8), -4: (0, 0), 0: (0, 0), 500: (0, 0), 501: (-1, 2), 600: (-1, 2), 700: (-1, 5),
    900: (-1, 8), AHEAD: (-1, -1),
}
OLDEST_ABORTED = [(A, 2)]
ONE_ENDED_FETCHES = {
    0: (6, OLDEST_ABORTED, [0, 2, 5]), 2: (6, OLDEST_ABORTED, [2, 5]), 4: (6, OLDEST_ABORTED, [2, 5]),
    5: (6, OLDEST_ABORTED, [5]), 6: (6, [], []), 9: (6, [], []), 10: (6, [], []),
}
ONE_ENDED_OFFSETS = {-1: (6, 10), -3: (-1, 9), 600: (2, 2), 700: (5, 5), 800: (-1, 6), 900: (-1, 8)}
ABORTED = [(A, 2), (B, 6)]
ENDED_FETCHES = {
    0: (11, ABORTED, [0, 2, 5, 6, 8, 9, 10]), 2: (11, ABORTED, [2, 5, 6, 8, 9, 10]), 4: (11, ABORTED, [2, 5, 6, 8, 9, 10]),
    5: (11, ABORTED, [5, 6, 8, 9, 10]), 7: (11, ABORTED, [6, 8, 9, 10]), 9: (11, ABORTED, [9, 10]),
    10: (11, [(B, 6)], [10]), 11: (11, [], []),
}
ENDED_OFFSETS = {-1: (11, 11), 600: (2, 2), 700: (5, 5), 800: (6, 6), 900: (8, 8), 901: (9, 9)}
# fmt: on


def check(readers: Readers, fetches: dict[int, Any], offsets: dict[int, tuple[int, int]]) -> None:
    assert {offset: readers.fetch(offset) for offset in fetches} == fetches
    assert {at: (readers.offset(at), readers.offset(at, ALL)) for at in offsets} == offsets


def test_committed_records_end_at_the_first_open_transaction(interleaved: Readers) -> None:
    check(interleaved, OPEN_FETCHES, OPEN_OFFSETS)
    assert interleaved.fetch(0, ALL) == (2, None, [0, 2, 5, 6, 8])


def test_of_two_interleaved_transactions_the_first_ends(interleaved: Readers) -> None:
    """The entry in the transaction index filters later fetches, also one that begins within the transaction."""
    interleaved.end(A)
    check(interleaved, ONE_ENDED_FETCHES, ONE_ENDED_OFFSETS)


def test_of_two_interleaved_transactions_the_second_ends(interleaved: Readers) -> None:
    interleaved.end(B)
    assert interleaved.fetch(0) == (2, [(B, 6)], [0]), "the list may name transactions behind the records"
    interleaved.end(A, committed=True)
    assert interleaved.fetch(0) == (11, [(B, 6)], [0, 2, 5, 6, 8, 9, 10])


def test_both_of_two_interleaved_transactions_end(interleaved: Readers) -> None:
    interleaved.end(A)
    interleaved.end(B)
    check(interleaved, ENDED_FETCHES, ENDED_OFFSETS)


# Waiting


def test_a_fetch_waits_for_the_end_of_a_transaction(readers: Readers) -> None:
    readers.write(2, producer_id=A)
    answers = readers.begin_fetch(0, max_wait_ms=3000)
    readers.write(3)
    assert answers == [], "bytes above the last stable offset do not count"
    readers.end(A, committed=True)
    assert [seen(answer) for answer in answers] == [(6, [], [0, 2, 5])]


def test_a_fetch_that_waits_in_vain_gets_what_is_committed(readers: Readers) -> None:
    readers.write(1)
    readers.write(100, producer_id=A)
    answers = readers.begin_fetch(0, max_wait_ms=500, min_bytes=150)
    readers.harness.node.advance(499)
    assert answers == []
    readers.harness.node.advance(1)
    assert [seen(answer) for answer in answers] == [(1, [], [0])]


def test_bytes_of_aborted_transactions_count(readers: Readers) -> None:
    answers = readers.begin_fetch(0, max_wait_ms=500, min_bytes=150)
    readers.write(100, producer_id=A)
    assert answers == []
    readers.end(A)
    assert [seen(answer) for answer in answers] == [(101, [(A, 0)], [0, 100])]


# Sessions


def test_a_session_tells_of_a_transaction_when_the_high_watermark_moves(readers: Readers) -> None:
    def ask(session: int, epoch: int, *offsets: int) -> Any:
        fields: dict[str, Any] = {} if offsets else {"topics": []}
        request = readers.request(*(offsets or (0,)), session_id=session, session_epoch=epoch, **fields)
        return readers.harness.ask(ApiKey.FETCH, request, version=12)

    session = ask(0, 0, 0).session_id
    readers.write(2, producer_id=A)
    assert seen(ask(session, 1)) == (0, [], [])
    assert ask(session, 2).responses == ()
    readers.end(A)
    assert seen(ask(session, 3)) == (3, [(A, 0)], [0, 2])
    assert ask(session, 4, 3).responses == ()


# The log start above the start of an open transaction


def test_the_log_start_within_an_open_transaction(readers: Readers) -> None:
    """The last stable offset is the base offset of the batch that holds the log start."""
    readers.write(5)
    readers.write(5, producer_id=A)
    readers.write(5, producer_id=A)
    readers.write(5)
    readers.delete_before(7)
    fetches: dict[int, Any] = {6: OUT_OF_RANGE} | dict.fromkeys((7, 8, 10, 15, 20), (5, [], []))
    check(readers, fetches, {-1: (5, 20), -2: (7, 7), 0: (-1, 7), 1000: (-1, 7)})
    readers.delete_before(12)
    check(readers, {12: (10, [], [])}, {-1: (10, 20)})
    readers.delete_before(20)
    check(readers, {20: (20, [], [])}, {-1: (20, 20)})
    readers.write(2, producer_id=A)
    check(readers, {20: (20, [], [])}, {-1: (20, 22)})
    readers.end(A)
    check(readers, {20: (23, [(A, 5)], [20, 22]), 22: (23, [(A, 5)], [22])}, {-1: (23, 23)})


def test_the_log_start_above_a_whole_transaction(readers: Readers) -> None:
    readers.write(5, producer_id=A)
    readers.delete_before(5)
    check(readers, {5: (5, [], [])}, {-1: (5, 5)})
    readers.end(A)
    check(readers, {5: (6, [(A, 0)], [5]), 6: (6, [], [])}, {-1: (6, 6)})


# The last stable offset never moves back


_STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([-1, A, B]), st.integers(1, 3)),
    st.tuples(st.just("end"), st.sampled_from([A, B]), st.booleans()),
    st.tuples(st.just("hold")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("delete"), st.integers(0, 20)),
)


@given(st.lists(_STEPS, min_size=3, max_size=30))
def test_the_last_stable_offset_never_moves_back(steps: list[tuple[Any, ...]]) -> None:
    readers = Readers()
    harness = readers.harness
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    log, stable = partition.log, 0
    for step in steps:
        match step:
            case ("write", producer_id, count):
                harness.begin(ApiKey.PRODUCE, readers.produce_request(count, producer_id=producer_id), version=12)
            case ("end", producer_id, is_committed):
                marker = EndTransaction(producer_id, 0, 0, committed=is_committed)
                harness.broker.markers.write(TopicPartition("t", 0), marker, lambda _: None)
            case ("hold",) if harness.held is None:
                harness.hold()
            case ("flush",) if harness.held is not None:
                harness.let_go()
            case ("delete", offset) if offset <= log.high_watermark:
                log.delete_before(offset)
        harness.node.settle()
        # The batch that holds the log start may begin before it, but no reader can be there.
        now_stable = max(log.last_stable_offset, log.log_start_offset)
        assert stable <= now_stable <= log.high_watermark
        stable = now_stable
