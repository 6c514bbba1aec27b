"""
Records that are on the disk and not in memory: another thread reads them, and a disk that hangs delays those requests alone.

The store was opened anew, so that nothing is in memory; `Held` takes the place of the threads.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.records import log_reads
from kohort.broker.records.log_reads import AbandonedError
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch, disk_store
from tests.broker.records.test_fetch import LIMITS, SIZE, asked, fetch_request, values
from tests.broker.transactions.test_producers import end

PARTITIONS = 3

pytestmark = pytest.mark.usefixtures("cold_page_cache")


class Held:
    """Runs work when it is told to, as a thread whose disk hangs until then."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        """Do the oldest work."""
        work, done = self.waiting.pop(0)
        work()
        done()

    def run_all(self, harness: Harness) -> None:
        harness.node.settle()
        while self.waiting:
            self.run()
            harness.node.settle()


class Old(Harness):
    """A broker with topics whose records are on the disk, and the threads that read them."""

    def __init__(self, path: Path, **settings: Any) -> None:
        node = VirtualNode()
        first = Harness(store=disk_store(path, node), node=node)
        first.create("t", PARTITIONS)
        for partition in range(PARTITIONS):
            for value in (b"a", b"b", b"c"):
                first.write("t", value, partition=partition)
        first.store.close()
        self.reads, self.searches = Held(), Held()
        super().__init__(store=disk_store(path, node), node=node, reads=self.reads, searches=self.searches, **settings)
        self.node.settle()

    def fetch(self, *partitions: m.FetchRequestFetchPartition, **what: Any) -> list[Any]:
        answers = self.begin(ApiKey.FETCH, fetch_request(*partitions, **what), version=12)
        self.node.settle()
        return answers

    def find(self, timestamp: int) -> list[Any]:
        wanted = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = m.ListOffsetsTopic(name="t", partitions=[wanted])
        answers = self.begin(ApiKey.LIST_OFFSETS, m.ListOffsetsRequest(replica_id=-1, topics=[topic]))
        self.node.settle()
        return answers

    def settle_until(self, is_so: Callable[[], bool]) -> None:
        """Run turns until the disk thread has done something."""
        while not is_so():
            self.node.settle()

    def delete_topic(self) -> None:
        state = m.DeleteTopicsRequestDeleteTopicState(name="t")
        request = m.DeleteTopicsRequest(topics=[state], timeout_ms=1000)
        assert self.ask(ApiKey.DELETE_TOPICS, request).responses[0].error_code == 0


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    harness = Old(tmp_path)
    yield harness
    harness.store.close()


def told(answers: Sequence[Any]) -> list[tuple[int, list[bytes | None]]]:
    """Code and values of each partition of the one answer."""
    (answer,) = answers
    return [(data.error_code, values(data)) for topic in answer.responses for data in topic.partitions]


def test_who_wants_old_records_waits_alone(old: Old) -> None:
    slow = old.fetch(asked(1))
    assert not slow
    old.write("t", b"new")
    assert told(old.fetch(asked(3))) == [(0, [b"new"])], "the end of the same partition"
    assert len(old.reads.waiting) == 1
    old.reads.run_all(old)
    assert told(slow) == [(0, [b"b", b"c"])]


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_of_bytes_are_those_of_records_in_memory(old: Old, limits: tuple[int, int]) -> None:
    request_bytes, partition_bytes = limits
    partitions = [asked(partition=index, bytes_max=partition_bytes) for index in range(PARTITIONS)]
    answers = old.fetch(*partitions, max_bytes=request_bytes)
    old.reads.run_all(old)
    assert tuple(len(found) for _, found in told(answers)) == LIMITS[limits]


def test_old_and_new_records_share_the_room(old: Old) -> None:
    """The first partition has its records in memory, the second on the disk."""
    old.write("t", b"d", partition=0)
    partitions = [asked(3), asked(partition=1), asked(partition=2)]
    answers = old.fetch(*partitions, max_bytes=3 * SIZE)
    old.reads.run_all(old)
    assert [len(found) for _, found in told(answers)] == [1, 2, 0]


def test_one_read_of_a_log_at_a_time(old: Old) -> None:
    """Further ones wait without a thread, so that a file that hangs takes one."""
    answers = [old.fetch(asked(offset)) for offset in range(3)]
    other = old.fetch(asked(partition=1))
    assert (len(old.reads.waiting), old.broker.log_reads.running, old.broker.log_reads.waiting) == (2, 2, 2)
    old.reads.waiting.reverse()
    old.reads.run()
    old.node.settle()
    assert len(told(other)) == 1
    old.reads.run_all(old)
    assert [len(told(each)[0][1]) for each in answers] == [3, 2, 1]
    assert (old.broker.log_reads.running, old.broker.log_reads.waiting) == (0, 0)


def test_the_reads_at_the_same_time_are_bounded(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "LOG_READS_MAX", 2)
    answers = [old.fetch(asked(partition=partition)) for partition in range(PARTITIONS)]
    assert (len(old.reads.waiting), old.broker.log_reads.waiting) == (2, 1)
    old.reads.run_all(old)
    assert [told(each) for each in answers] == [[(0, [b"a", b"b", b"c"])]] * 3


def test_a_client_that_has_gone_leaves_nothing_that_waits(old: Old) -> None:
    first, second, third = (old.fetch(asked()) for _ in range(3))
    old.parked[1]()
    assert old.broker.log_reads.waiting == 1
    old.parked[0]()
    assert (len(old.reads.waiting), old.broker.log_reads.running) == (1, 1), "what has begun ends by itself"
    old.reads.run_all(old)
    assert (first, second) == ([], [])
    assert told(third) == [(0, [b"a", b"b", b"c"])]


def test_a_read_that_waits_for_a_thread_is_dropped_too(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "LOG_READS_MAX", 1)
    first, second, third = (old.fetch(asked(partition=partition)) for partition in range(PARTITIONS))
    old.parked[1]()
    old.reads.run_all(old)
    assert (len(first), len(second), len(third)) == (1, 0, 1)


def test_segments_that_go_meanwhile_are_looked_up_again(old: Old, tmp_path: Path) -> None:
    """The file of the read is gone, and the log is not offline for it."""
    old.create("small", 1, **{"segment.bytes": str(1 << 20)})
    for _ in range(9):
        old.write("small", bytes(200_000))
    old.store.close()
    again = Harness(store=disk_store(tmp_path, old.node), node=old.node, reads=old.reads)
    old.store = again.store
    answers = again.begin(ApiKey.FETCH, fetch_request(asked(), topic="small"), version=12)
    again.node.settle()
    assert len(old.reads.waiting) == 1
    wanted = m.DeleteRecordsPartition(partition_index=0, offset=8)
    topics = [m.DeleteRecordsTopic(name="small", partitions=[wanted])]
    again.ask(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    log = again.store.get(TopicPartition("small", 0))
    assert log is not None
    old.settle_until(lambda: not (tmp_path / "small-0" / f"{0:020}.log").exists())
    old.reads.run_all(again)
    assert told(answers) == [(ErrorCode.OFFSET_OUT_OF_RANGE, [])]
    assert log.refusal is None


def test_a_topic_that_is_deleted_meanwhile(old: Old) -> None:
    answers = old.fetch(asked(), asked(partition=1))
    old.delete_topic()
    old.reads.run_all(old)
    assert told(answers) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])] * 2


def test_records_that_are_deleted_meanwhile(old: Old) -> None:
    answers = old.fetch(asked())
    wanted = m.DeleteRecordsPartition(partition_index=0, offset=2)
    request = m.DeleteRecordsRequest(topics=[m.DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=1000)
    old.ask(ApiKey.DELETE_RECORDS, request)
    old.reads.run_all(old)
    assert told(answers) == [(ErrorCode.OFFSET_OUT_OF_RANGE, [])]


def test_a_file_that_cannot_be_read_ends_its_partition(old: Old) -> None:
    log = old.store.get(TopicPartition("t", 0))
    assert log is not None
    Path(log.location_of(0)).unlink()
    answers = old.fetch(asked(), asked(partition=1))
    old.reads.run_all(old)
    assert told(answers) == [(ErrorCode.KAFKA_STORAGE_ERROR, []), (0, [b"a", b"b", b"c"])]


def test_a_fetch_that_waits_for_more_reads_again(old: Old) -> None:
    answers = old.fetch(asked(), min_bytes=4 * SIZE, max_wait_ms=500)
    old.reads.run_all(old)
    assert not answers, "three are not enough"
    old.write("t", b"d")
    assert (len(answers), len(old.reads.waiting)) == (0, 1)
    old.reads.run_all(old)
    assert told(answers) == [(0, [b"a", b"b", b"c", b"d"])]


@pytest.mark.parametrize("is_read", [False, True])
def test_the_longest_wait_ends_while_the_disk_hangs(old: Old, is_read: bool) -> None:
    """The answer has what the disk gives, as soon as it gives it."""
    answers = old.fetch(asked(), min_bytes=9 * SIZE, max_wait_ms=500)
    if is_read:
        old.reads.run_all(old)
        old.write("t", b"d")
        old.node.settle()
    old.node.advance(1_000)
    assert not answers
    old.reads.run_all(old)
    old.node.advance(1_000)
    old.reads.run_all(old)
    assert told(answers) == [(0, [b"a", b"b", b"c", b"d"][: 4 if is_read else 3])]


def test_a_client_that_goes_while_its_wait_reads(old: Old) -> None:
    answers = old.fetch(asked(), min_bytes=9 * SIZE, max_wait_ms=500)
    old.reads.run_all(old)
    old.write("t", bytes(9 * SIZE))
    assert len(old.reads.waiting) == 1
    old.parked[0]()
    old.reads.run_all(old)
    assert not answers
    assert old.broker.fetches.delayed == 0


def test_a_session_has_its_records_from_the_disk(old: Old) -> None:
    begun = old.fetch(asked(), asked(partition=1), session_id=0, session_epoch=0, max_bytes=SIZE)
    old.reads.run_all(old)
    assert [len(found) for _, found in told(begun)] == [1, 0]
    session = begun[0].session_id
    moved = old.fetch(asked(1), session_id=session, session_epoch=1, max_bytes=SIZE)
    other = old.fetch(asked(2), session_id=session, session_epoch=2, max_bytes=SIZE)
    old.reads.run_all(old)
    assert moved[0].error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "another fetch went on with the session"
    assert told(other) == [(0, [b"c"])]
    last = old.fetch(asked(3), session_id=session, session_epoch=3, max_bytes=SIZE)
    old.reads.run_all(old)
    assert told(last) == [(0, [b"a"])], "of the other partition"


def test_aborted_transactions_are_read_with_the_records(tmp_path: Path) -> None:
    node = VirtualNode()
    first = Harness(store=disk_store(tmp_path, node), node=node)
    first.create("t", 1)
    partition = first.broker.partitions.find("t", 0)
    assert partition is not None
    partition.append(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    assert end(first, committed=False, topics={"t": [0]}) == {("t", 0): 0}
    first.store.close()
    reads = Held()
    again = Harness(store=disk_store(tmp_path, node), node=node, reads=reads)
    answers = again.begin(ApiKey.FETCH, fetch_request(asked(), isolation_level=1), version=12)
    assert not answers
    reads.run_all(again)
    (found,) = answers[0].responses[0].partitions
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(7, 0)]
    again.store.close()


# ListOffsets


def test_a_search_for_a_time_holds_up_no_other_request(old: Old) -> None:
    searching, newest = old.find(0), old.find(-3)
    assert (searching, newest) == ([], [])
    assert old.find(-1)[0].topics[0].partitions[0].offset == 3
    assert not old.reads.waiting, "reads do not wait for searches"
    old.searches.run_all(old)
    assert [each[0].topics[0].partitions[0].offset for each in (searching, newest)] == [0, 0]


def test_a_search_in_a_topic_that_is_deleted_meanwhile(old: Old) -> None:
    answers = old.find(0)
    old.delete_topic()
    old.searches.run_all(old)
    assert answers[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_search_of_a_client_that_has_gone_is_dropped(old: Old) -> None:
    first, second = old.find(0), old.find(0)
    with pytest.raises(AbandonedError):
        old.parked[1]()
    assert old.broker.searches.waiting == 0
    old.searches.run_all(old)
    assert (len(first), second) == (1, [])
