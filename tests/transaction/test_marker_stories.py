"""Stories of markers: when they are sent, which answers send them again, and what a restart does."""

import pytest

from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode, RecordTooLargeError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.testing import FixedContext
from kohort.transaction.effects import Decided
from kohort.transaction.events import MarkerRefused
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from kohort.wire import messages as m
from tests.transaction.bench import ID, T0, T1, Bench, Topic

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def test_markers_follow_the_commit_of_the_decision() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.commits = False
    request = m.EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=True)
    answers = bench.begin(bench.service.end_txn, request, 4)
    assert (answers, bench.markers.sent) == ([], [])
    bench.logs[0].commit()
    bench.settle()
    assert [answer.error_code for answer in answers] == [0]
    assert len(bench.markers.sent) == 1


def test_many_markers_are_written_in_several_turns() -> None:
    """Others are served between them: 20,000 markers in one turn held the event loop for 370 ms."""
    bench = Bench()
    bench.image["t"] = Topic("t", 600)
    bench.init()
    every = [TopicPartition("t", index) for index in range(600)]
    bench.add(1000, 0, *every)
    bench.markers.code = None
    bench.end(1000, 0)
    counts = [len(bench.markers.sent)]
    for _ in range(2):
        bench.node.advance(1)
        counts.append(len(bench.markers.sent))
    assert counts == [250, 500, 600]
    bench.markers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.advance(50)
    assert len(bench.markers.sent) == 850, "the same for markers that are written again"
    bench.advance(1)
    bench.advance(1)
    assert [topic_partition for topic_partition, _ in bench.markers.sent] == every * 2
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT


def test_a_coordinator_that_moves_sends_no_more_of_many_markers() -> None:
    bench = Bench()
    bench.image["t"] = Topic("t", 600)
    bench.init()
    bench.add(1000, 0, *[TopicPartition("t", index) for index in range(600)])
    bench.markers.code = None
    bench.end(1000, 0)
    bench.senders[0].drop()
    bench.node.advance(10)
    assert len(bench.markers.sent) == 250


def test_partitions_that_cannot_take_a_marker_get_it_again() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0, T1)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.markers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, T0)
    bench.markers.answer(ErrorCode.NONE, T1)
    bench.settle()
    assert bench.describe().transaction_state == "PrepareCommit"
    assert [(topic.topic, list(topic.partitions)) for topic in bench.describe().topics] == [("t", [0])]
    assert len(bench.markers.sent) == 2
    bench.advance(49)
    assert len(bench.markers.sent) == 2
    bench.advance(1)
    assert [topic_partition for topic_partition, _ in bench.markers.sent[2:]] == [T0]
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT
    assert bench.events == [], "an unavailable partition is not worth a line"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE])
def test_unexpected_errors_of_a_marker_are_logged_and_it_is_sent_again(code: ErrorCode) -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.markers.answer(code)
    assert bench.events == [MarkerRefused(ID, "t-0", code, False)]
    bench.advance(50)
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_that_a_later_epoch_refuses_leaves_the_transaction_prepared(code: ErrorCode) -> None:
    """An administrator wrote a marker with a higher epoch. Kafka's transactional id is unusable from then on, too."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.markers.answer(code)
    assert bench.events == [MarkerRefused(ID, "t-0", code, True)]
    bench.advance(60_000)
    assert len(bench.markers.sent) == 1
    assert bench.init()[0] is CONCURRENT
    bench.restart()
    assert len(bench.markers.sent) == 2, "the next load tries again"


def test_a_deleted_topic_does_not_hinder_the_commit() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    del bench.image["t"]
    bench.markers.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT


def test_a_completion_is_written_later_if_the_log_was_away() -> None:
    """The error of the append is answered to clients as NOT_COORDINATOR, but the shard is still here."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.logs[0].fail_next_append = UnavailableError("offline")
    bench.markers.answer()
    bench.advance(50)
    assert bench.state() is COMPLETE_COMMIT


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_without_markers_is_done(code: ErrorCode) -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = code
    bench.end(1000, 0)
    assert bench.state() is COMPLETE_COMMIT


def test_a_restart_in_a_prepare_state_sends_all_markers_again() -> None:
    """They carry the new coordinator epoch. The answers to the old ones complete nothing."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0, T1)
    bench.markers.code = None
    bench.end(1000, 0, version=5)
    late = dict(bench.markers.held)
    bench.markers.answer(ErrorCode.NONE, T0)
    bench.restart()
    assert [end.coordinator_epoch for _, end in bench.markers.sent] == [0, 0, 1, 1]
    late[T1](ErrorCode.NONE)
    bench.settle()
    assert bench.state() is PREPARE_COMMIT
    bench.markers.answer()
    bench.settle()
    assert bench.states()[-1] == ("CompleteCommit", 1000, 1)
    assert bench.init(ID, 1000, 0)[0] is ErrorCode.PRODUCER_FENCED, "the last epoch is not in the log"
    assert bench.end(1000, 0, version=5) == (0, 1000, 1), "a retry of EndTxn is recognised"


@pytest.mark.parametrize("is_appended", [False, True])
def test_the_markers_of_a_decision_wait_for_its_commit_in_a_new_leader_epoch(is_appended: bool) -> None:
    """Found by the simulation: a crash may take the decision back, and its markers would contradict the next one."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.commits = False
    request = m.EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=True)
    assert bench.service.end_txn(request, FixedContext(5), lambda _: None) is None
    if is_appended:
        bench.settle()
    bench.runtime.load(0, bench.logs[0], 1)
    bench.settle()
    check_markers_after_commit(bench)


def test_the_markers_of_a_decision_wait_for_its_commit_after_a_load() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.commits = False
    request = m.EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=True)
    assert bench.begin(bench.service.end_txn, request, 5) == []
    bench.restart()
    check_markers_after_commit(bench)


def check_markers_after_commit(bench: Bench) -> None:
    assert bench.states()[-1] == ("PrepareCommit", 1000, 1)
    assert bench.markers.sent == []
    bench.commits = True
    bench.settle()
    ((place, end),) = bench.markers.sent
    assert (place, end.committed, end.coordinator_epoch) == (T0, True, 1)
    assert bench.states()[-1] == ("CompleteCommit", 1000, 1)


def test_a_new_leader_epoch_sends_them_again() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    late = dict(bench.markers.held)
    bench.runtime.load(0, bench.logs[0], 7)
    bench.settle()
    assert [end.coordinator_epoch for _, end in bench.markers.sent] == [0, 7]
    late[T0](ErrorCode.NONE)
    assert bench.state() is PREPARE_COMMIT
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT


def test_a_completion_that_cannot_be_written_is_written_later() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.logs[0].fail_next_append = RecordTooLargeError("no")
    bench.markers.answer()
    bench.settle()
    assert bench.state() is PREPARE_COMMIT
    bench.advance(50)
    assert bench.state() is COMPLETE_COMMIT
    assert [state for state, _, _ in bench.states()].count("CompleteCommit") == 1


def test_a_completion_that_is_written_later_is_not_written_in_another_leader_epoch() -> None:
    """The new epoch sends the markers again, and completes the transaction when these are written."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    bench.logs[0].fail_next_append = RecordTooLargeError("no")
    bench.markers.answer()
    bench.settle()
    bench.runtime.load(0, bench.logs[0], 7)
    bench.settle()
    bench.advance(50)
    assert bench.state() is PREPARE_COMMIT
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT


def test_a_marker_in_the_log_of_the_coordinator_is_ignored() -> None:
    bench = Bench()
    bench.init()
    log = bench.logs[0]
    bench.runtime.close()
    log.append_marker(EndTransaction(1000, 0, 0, True), leader_epoch=0, timestamp_ms=0)
    bench.start(1)
    assert bench.state() is EMPTY
    assert bench.init() == (0, 1000, 1)


def test_answers_that_come_twice_complete_once() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0, T1)
    bench.markers.code = None
    bench.end(1000, 0)
    held = list(bench.markers.held)
    for _ in range(2):
        for _, done in held:
            done(ErrorCode.NONE)
    bench.settle()
    assert [state for state, _, _ in bench.states()].count("CompleteCommit") == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_errors_of_markers_that_pass(code: ErrorCode) -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = code
    bench.end(1000, 0)
    bench.advance(60_000)
    assert bench.state() is PREPARE_COMMIT
    assert bench.events == []
    bench.markers.code = ErrorCode.NONE
    bench.advance(50)
    assert bench.state() is COMPLETE_COMMIT


def test_a_decision_that_cannot_be_written_sends_no_markers() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.logs[0].fail_next_append = UnavailableError("offline")
    assert bench.end(1000, 0)[0] is ErrorCode.NOT_COORDINATOR
    assert bench.markers.sent == []
    assert bench.state() is ONGOING
    assert bench.service.gauges().ongoing == 1
    assert bench.end(1000, 0)[0] is ErrorCode.NONE
    assert len(bench.markers.sent) == 1


def test_a_decision_that_is_completed_gets_no_markers() -> None:
    """Under a new leader epoch the markers may be written before the effect of a decision arrives."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0, version=5)
    prepared = bench.transaction()
    assert prepared is not None
    bench.markers.answer()
    bench.settle()
    assert bench.state() is COMPLETE_COMMIT
    bench.effects(0, [Decided(prepared)])
    assert len(bench.markers.sent) == 1
    assert bench.senders[0].remaining(ID) is None
