"""
A fetch of a large session visits the partitions with news alone, in the order of all. Its answers are those of a session whose
partitions are all visited.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from kohort.broker.records import fetch, fetch_read, fetch_sessions, fetch_waiting
from kohort.broker.records.fetch_sessions import FetchSession
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.calls import calls
from tests.broker.harness import Asker, Harness, batch
from tests.broker.records.test_sessions import delete, request
from tests.broker.transactions.test_producers import end
from tests.conftest import watches_calls

PARTITIONS = 6
AT_ONCE = 2


def visiting(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    for module in (fetch, fetch_read, fetch_sessions, fetch_waiting):
        monkeypatch.setattr(module, "AT_ONCE", at_once)


class Reader:
    """A client of one session, with `harness` as its broker."""

    def __init__(self, topic: str = "t", partitions: int = PARTITIONS, **what: Any) -> None:
        self.harness = Harness()
        self.harness.create(topic, partitions)
        self.what = what
        self.epoch = 0
        self.session = 0

    def begin(self, offsets: dict[int, int] | None = None, forget: tuple[int, ...] = (), **what: Any) -> list[Any]:
        asked = request((self.session, self.epoch), offsets, forget=forget, **self.what | what)
        self.epoch += 1
        answers = self.harness.begin(ApiKey.FETCH, asked, version=12)
        self.harness.node.settle()
        return answers

    def fetch(self, offsets: dict[int, int] | None = None, forget: tuple[int, ...] = (), **what: Any) -> Any:
        answers = self.begin(offsets, forget, **what)
        while not answers:
            self.harness.node.advance(1)
        (answer,) = answers
        self.session = answer.session_id
        return told(answer)

    @property
    def kept(self) -> FetchSession:
        return self.harness.broker.apis[1].fetch.sessions._sessions[self.session]

    def watched(self) -> int:
        """How many partitions would wake a session."""
        return sum(len(partition.quiet) for partition in self.harness.broker.partitions.all_open())


def told(answer: m.FetchResponse) -> tuple[int, list[Any]]:
    return answer.error_code, [
        (
            data.partition_index,
            data.error_code,
            data.high_watermark,
            data.log_start_offset,
            data.last_stable_offset,
            len(data.records or b""),
        )
        for topic in answer.responses
        for data in topic.partitions
    ]


def story(seed: int) -> list[Any]:
    """What a client of a session hears while topics, records and its own wishes change at random."""
    chance = Random(seed)
    reader = Reader(isolation_level=chance.randrange(2), max_wait_ms=chance.choice([0, 20]), max_bytes=300)
    harness = reader.harness
    heard = [reader.fetch(dict.fromkeys(range(PARTITIONS), 0))]
    sequences: dict[int, int] = {}
    for _ in range(60):
        partition = chance.randrange(PARTITIONS)
        match chance.randrange(9):
            case 0 | 1:
                harness.write("t", bytes(chance.randrange(100)), partition=partition, timestamp_ms=5)
            case 2:
                heard.append(reader.fetch({partition: chance.randrange(6)}))
            case 3:
                heard.append(reader.fetch(forget=(partition,)))
            case 4:
                log = harness.broker.partitions.find("t", partition)
                assert log is not None
                wanted = m.DeleteRecordsPartition(
                    partition_index=partition, offset=chance.randint(0, log.log.end_offset)
                )
                topics = [m.DeleteRecordsTopic(name="t", partitions=[wanted])]
                harness.ask(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=topics, timeout_ms=1000))
            case 5 if chance.random() < 0.2:
                delete(harness)
                sequences.clear()
                heard.append(reader.fetch())
                harness.create("t", PARTITIONS)
            case 6:
                epoch = sequences[partition] = sequences.get(partition, -1) + 1
                end(harness, committed=True, epoch=epoch, topics={"t": [partition]}, producer_id=100 + partition)
            case _:
                heard.append(reader.fetch())
    return heard


@pytest.mark.parametrize("seed", range(12))
def test_a_client_hears_the_same_whatever_is_visited(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, 1_000)
    expected = story(seed)
    for at_once in (1, 4):
        visiting(monkeypatch, at_once)
        assert story(seed) == expected


@watches_calls
def test_an_empty_fetch_costs_the_same_however_large_the_session_is(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    counts = []
    for partitions in (10, 200):
        reader = Reader(partitions=partitions)
        reader.fetch(dict.fromkeys(range(partitions), 0))
        reader.fetch()
        counts.append(calls(reader.fetch))
        waiting = reader.begin(max_wait_ms=500)
        reader.harness.write("t", b"x", partition=partitions - 1)
        reader.harness.node.settle()
        assert [each[0] for each in told(waiting[0])[1]] == [partitions - 1]
    assert counts[0] == counts[1]


WAKES: dict[str, Callable[[Harness], object]] = {
    "records": lambda harness: harness.write("t", b"x", partition=1),
    "the deletion of the topic": delete,
}


@pytest.mark.parametrize("what", WAKES)
def test_what_ends_a_wait_of_a_quiet_session(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    assert reader.kept.news == {}
    waiting = reader.begin(max_wait_ms=500)
    assert not waiting
    WAKES[what](reader.harness)
    reader.harness.node.settle()
    (answer,) = waiting
    codes = {data[0]: data[1] for data in told(answer)[1]}
    gone = dict.fromkeys(range(PARTITIONS), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert codes == ({1: 0} if what == "records" else gone)


def test_bytes_of_several_partitions_end_a_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    waiting = reader.begin(max_wait_ms=500, min_bytes=200)
    for partition in (4, 2, 5):
        assert not waiting
        reader.harness.write("t", b"x", partition=partition)
        reader.harness.node.settle()
    assert [data[0] for data in told(waiting[0])[1]] == [2, 4, 5], "in the order of the session"
    assert not reader.harness.broker.fetches.delayed


def test_records_of_one_partition_add_up_to_the_end_of_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    waiting = reader.begin(max_wait_ms=500, min_bytes=200)
    for _ in range(3):
        assert not waiting
        reader.harness.write("t", b"x", partition=4)
        reader.harness.node.settle()
    assert [data[0] for data in told(waiting[0])[1]] == [4]


def test_a_fetch_that_has_lost_its_session_leaves_the_next_one_its_news(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    lost, waiting = reader.begin(max_wait_ms=100), reader.begin(max_wait_ms=500)
    reader.harness.node.advance(200)
    assert told(lost[0])[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    reader.harness.write("t", b"x", partition=4)
    reader.harness.node.settle()
    assert [data[0] for data in told(waiting[0])[1]] == [4]


class Steps:
    """Takes the steps of one request by hand, so that anything may happen between two of them."""

    def __init__(self, harness: Harness, asked: m.FetchRequest) -> None:
        self.answers: list[Any] = []
        self._works: list[Any] = []
        self._reply: Any = None
        harness.broker.handlers[ApiKey.FETCH](asked, Asker(12, later=self._later), self.answers.append)

    def _later(self, work: Any) -> None:
        steps, self._reply = work.args
        self._works.append(steps)

    def take(self, count: int = 1_000) -> None:
        for _ in range(count):
            if not self._works:
                return
            try:
                assert next(self._works[0]) is None, "nothing is on the disk"
            except StopIteration as end_of_work:
                del self._works[0]
                if end_of_work.value is not None:
                    self._reply(end_of_work.value)


@pytest.mark.parametrize("taken", range(1, 24))
@pytest.mark.parametrize("is_quiet", [False, True])
def test_what_changes_between_two_steps_is_not_missed(
    taken: int, is_quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that arrive while a fetch reads, waits for its watch lists, or is answered, end its wait or the next one."""
    visiting(monkeypatch, 1)
    reader = Reader()
    if is_quiet:
        reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    offsets = None if is_quiet else dict.fromkeys(range(PARTITIONS), 0)
    asked = request((reader.session, reader.epoch), offsets, max_wait_ms=500)
    steps = Steps(reader.harness, asked)
    if is_quiet:
        reader.harness.write("t", b"x", partition=4)
    steps.take(taken)
    reader.harness.write("t", b"x", partition=1)
    steps.take()
    if not steps.answers:
        reader.harness.node.settle()
        steps.take()
    (answer,) = steps.answers
    heard = {data[0] for data in told(answer)[1] if data[5]}
    reader.session, reader.epoch = answer.session_id, reader.epoch + 1
    heard |= {data[0] for data in reader.fetch(max_wait_ms=500)[1] if data[5]}
    assert heard == ({1, 4} if is_quiet else {1})


@pytest.mark.parametrize("taken", range(8))
def test_news_between_two_steps_of_a_fetch_that_waits(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, 1)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    asked = request((reader.session, reader.epoch), max_wait_ms=500, min_bytes=200)
    steps = Steps(reader.harness, asked)
    for partition in (4, 2):
        reader.harness.write("t", b"x", partition=partition)
        steps.take(taken)
    reader.harness.write("t", b"x", partition=1)
    steps.take()
    assert [data[0] for data in told(steps.answers[0])[1]] == [1, 2, 4]


def delete_first(harness: Harness) -> None:
    wanted = m.DeleteRecordsPartition(partition_index=1, offset=1)
    topics = [m.DeleteRecordsTopic(name="t", partitions=[wanted])]
    harness.ask(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=topics, timeout_ms=1000))


def begin_transaction(harness: Harness) -> None:
    partition = harness.broker.partitions.find("t", 1)
    assert partition is not None
    partition.append(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    harness.node.settle()


QUIET_NEWS: dict[
    str, tuple[Callable[[Harness], None], tuple[int, int]]
] = {  # high watermark and log start of the partition
    "deleted records": (delete_first, (1, 1)),
    "an open transaction": (begin_transaction, (2, 0)),
}


@pytest.mark.parametrize("taken", range(20))
@pytest.mark.parametrize("what", QUIET_NEWS)
def test_news_without_records_between_two_steps_is_told(what: str, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, 1)
    change, expected = QUIET_NEWS[what]
    reader = Reader()
    reader.harness.write("t", b"x", partition=1)
    asked = request((0, 0), {partition: int(partition == 1) for partition in range(PARTITIONS)}, isolation_level=1)
    steps = Steps(reader.harness, asked)
    steps.take(taken)
    change(reader.harness)
    steps.take()
    (answer,) = steps.answers
    heard = {data[0]: data[2:4] for data in told(answer)[1]}
    reader.session, reader.epoch = answer.session_id, 1
    heard |= {data[0]: data[2:4] for data in reader.fetch(isolation_level=1)[1]}
    assert heard[1] == expected


def test_a_log_start_that_rises_is_told_and_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.harness.write("t", b"x", partition=3)
    reader.fetch({partition: 1 if partition == 3 else 0 for partition in range(PARTITIONS)})
    waiting = reader.begin(max_wait_ms=500)
    wanted = m.DeleteRecordsPartition(partition_index=3, offset=1)
    topics = [m.DeleteRecordsTopic(name="t", partitions=[wanted])]
    reader.harness.ask(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    reader.harness.node.advance(499)
    assert not waiting
    reader.harness.node.advance(1)
    assert told(waiting[0])[1] == [(3, 0, 1, 1, 1, 0)]


def test_what_a_session_leaves_wakes_it_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    assert reader.watched() == PARTITIONS
    reader.fetch(forget=(0, 1))
    assert reader.watched() == PARTITIONS - 2
    first = reader.session
    reader.epoch = -1
    reader.fetch({0: 0})
    assert first not in reader.harness.broker.apis[1].fetch.sessions._sessions
    for _ in range(PARTITIONS):
        reader.session, reader.epoch = 0, -1
        reader.fetch({0: 0})
    assert not reader.watched()


def test_a_partition_with_another_state_is_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader epoch that rises fences the client, without a record."""
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
    broker = reader.harness.broker
    partition, topic = broker.partitions.find("t", 0), broker.catalog.topic("t")
    assert partition is not None
    assert topic is not None
    for change in (
        partial(partition.on_state, broker.catalog.state(topic, 0)),
        partial(partition.begin_epoch, 5),
    ):
        assert reader.watched() == PARTITIONS
        change()
        assert reader.watched() == PARTITIONS - 1
        reader.fetch()


def test_sessions_that_are_begun_again_and_again_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    visiting(monkeypatch, AT_ONCE)
    reader = Reader()
    for _ in range(30):
        reader.epoch = 0
        reader.fetch(dict.fromkeys(range(PARTITIONS), 0))
        assert reader.watched() <= 3 * PARTITIONS
