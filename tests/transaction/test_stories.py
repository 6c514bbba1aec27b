"""Stories of transactions: what the log, the markers and the clients see, in order."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from kohort.machine.gradual import HANDLER_STEP, LongHandler
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode, RecordTooLargeError, UnavailableError
from kohort.model.ids import TopicPartition, coordinator_partition
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.transaction.events import MarkerRefused, TransactionFenced, TransactionTimedOut
from kohort.transaction.markers import MAX_WAITING
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import encode_batch
from tests.transaction.bench import ID, T0, T1, TIMEOUT_MS, Bench, Topic, transaction

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("version", [4, 5])
def test_a_commit(version: int) -> None:
    """Records as Kafka 4.2.1 logs them: version 2 raises the epoch at the decision, and its marker has the new one."""
    bench = Bench()
    assert bench.init() == (0, 1000, 0)
    assert set(bench.add(1000, 0, T0, T1).values()) == {ErrorCode.NONE}
    assert bench.add_offsets(1000, 0, "g") is ErrorCode.NONE
    bumped = int(version == 5)
    code, producer_id, epoch = bench.end(1000, 0, version=version)
    assert (code, producer_id, epoch) == (0, 1000, bumped)
    assert bench.states() == [
        ("Empty", 1000, 0),
        ("Ongoing", 1000, 0),
        ("Ongoing", 1000, 0),
        ("PrepareCommit", 1000, bumped),
        ("CompleteCommit", 1000, bumped),
    ]
    offsets = TopicPartition("__consumer_offsets", coordinator_partition("g", 50))
    marker = EndTransaction(1000, bumped, 0, True, 2 * bumped)
    assert bench.markers.sent == [(each, marker) for each in sorted([T0, T1, offsets])]


def test_nothing_is_answered_before_it_is_committed() -> None:
    bench = Bench(commits=False)
    api = bench.service.init_producer_id
    request = m.InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    answers = bench.begin(api, request, 5)
    assert answers == []
    bench.logs[0].commit()
    bench.settle()
    assert [answer.producer_id for answer in answers] == [1000]


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


def test_a_request_during_the_markers_waits_for_the_completion() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    request = m.AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, group_id="g")
    waiting = bench.begin(bench.service.partitions.add_offsets_to_txn, request, 4)
    assert waiting == []
    bench.markers.answer()
    bench.settle()
    assert [answer.error_code for answer in waiting] == [0]
    assert bench.state() is ONGOING


def test_only_the_producer_of_the_transaction_waits() -> None:
    """Every other request is answered at once, as by Kafka: the outcome would refuse it."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0, version=5)
    for producer_id, epoch in ((1000, 0), (1001, 1)):
        request = m.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        (refused,) = bench.begin(bench.service.partitions.add_offsets_to_txn, request, 4)
        assert refused.error_code == CONCURRENT
    again = m.EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=True)
    (refused,) = bench.begin(bench.service.end_txn, again, 5)
    assert refused.error_code == CONCURRENT


def test_it_does_not_wait_for_long() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    assert bench.added(1000, 0, T0) is CONCURRENT
    assert bench.init()[0] is CONCURRENT
    assert bench.end(1000, 0)[0] is CONCURRENT
    bench.markers.answer()
    bench.settle()
    assert bench.added(1000, 0, T0) is ErrorCode.NONE


def test_it_is_answered_when_the_coordinator_goes() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    request = m.AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, group_id="g")
    waiting = bench.begin(bench.service.partitions.add_offsets_to_txn, request, 4)
    bench.runtime.close()
    bench.settle()
    assert [answer.error_code for answer in waiting] == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(("level", "retried"), [(1, ErrorCode.PRODUCER_FENCED), (2, 0)])
def test_a_second_producer_fences_the_first(level: int, retried: int) -> None:
    """
    Ongoing(e), PrepareAbort(e+1), CompleteAbort(e+1), Empty(e+2). The first producer, which retries with its epoch, is fenced
    in version 1, and gets e+1 in version 2 if no other producer came between.
    """
    bench = Bench(level=level)
    bench.init()
    bench.add(1000, 0, T0)
    assert bench.init() == (CONCURRENT, -1, -1)
    assert bench.events == [TransactionFenced(ID, 1000, 1)]
    assert bench.init(ID, 1000, 0)[0] == retried
    assert bench.init() == (0, 1000, 2)
    states = [state for state in bench.states() if state != ("Empty", 1000, 1)]
    assert states == [
        ("Empty", 1000, 0),
        ("Ongoing", 1000, 0),
        ("PrepareAbort", 1000, 1),
        ("CompleteAbort", 1000, 1),
        ("Empty", 1000, 2),
    ]
    assert [end.producer_epoch for _, end in bench.markers.sent] == [1]
    assert bench.added(1000, 0, T0) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_a_fenced_producer_does_not_get_the_epoch_of_the_next_one(committed: bool) -> None:
    """Kafka 4.2.1 answers NONE with the present epoch: it takes the request of version 2 for a retry of the end before it."""
    bench = Bench()
    assert bench.init() == (0, 1000, 0)
    assert bench.init() == (0, 1000, 1)
    bench.add(1000, 1, T0)
    assert bench.end(1000, 1, committed=committed, version=4)[0] == 0
    assert bench.end(1000, 0, committed=committed, version=5) == (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert bench.end(1000, 1, committed=False, version=5) == (0, 1000, 2)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_lasts_too_long_is_aborted(level: int) -> None:
    """The timeout counts from the first partition, and is looked at every ten seconds. EndTxn 5 takes it for its own end."""
    bench = Bench(level=level)
    bench.init(timeout_ms=15_000)
    bench.add(1000, 0, T0)
    bench.advance(15_000)
    assert bench.state() is ONGOING
    bench.add(1000, 0, T1)
    bench.advance(5_000)
    assert bench.states()[-2:] == [("PrepareAbort", 1000, 1), ("CompleteAbort", 1000, 1)]
    assert bench.events == [TransactionTimedOut(ID, 1000, 1, 15_000)]
    assert bench.end(1000, 0, version=5)[0] is ErrorCode.INVALID_TXN_STATE
    assert bench.end(1000, 0, committed=False, version=5) == (0, 1000, 1)
    assert bench.end(1000, 0)[0] is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_cannot_be_fenced() -> None:
    bench = Bench()
    bench.put(transaction(state=ONGOING, producer_epoch=32767, partitions=frozenset({T0}), start_timestamp_ms=0))
    bench.advance(60_000)
    assert bench.state() is ONGOING


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


def test_a_fence_that_cannot_be_written_costs_no_epoch() -> None:
    """KAFKA-9666: Kafka keeps the raised epoch in memory; here the state reverts, and the next attempt raises it once."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    for _ in range(3):
        bench.logs[0].fail_next_append = UnavailableError("offline")
        assert bench.init()[0] is ErrorCode.NOT_COORDINATOR
    assert bench.init()[0] is CONCURRENT
    assert bench.states()[-1] == ("CompleteAbort", 1000, 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [(RecordTooLargeError("x"), ErrorCode.UNKNOWN_SERVER_ERROR), (UnavailableError("x"), ErrorCode.NOT_COORDINATOR)],
)
def test_errors_of_the_log(error: RecordTooLargeError | UnavailableError, code: ErrorCode) -> None:
    bench = Bench()
    bench.logs[0].fail_next_append = error
    assert bench.init() == (code, -1, -1)
    assert bench.transaction() is None
    assert bench.init() == (0, 1001, 0), "the producer id is lost, the transactional id is not wedged"


def test_a_write_that_is_not_committed_in_time() -> None:
    bench = Bench(commits=False)
    request = m.InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    answers = bench.begin(bench.service.init_producer_id, request, 5)
    bench.advance(60_000)
    assert [answer.error_code for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_request_of_version_2_under_level_0_does_not_wedge_the_id() -> None:
    """Kafka answers CONCURRENT_TRANSACTIONS from then on."""
    bench = Bench(level=0)
    bench.init()
    bench.add(1000, 0, T0)
    assert bench.end(1000, 0, version=5)[0] is ErrorCode.UNSUPPORTED_VERSION
    assert bench.verify(1000, 0, T1, adds=True) is ErrorCode.UNSUPPORTED_VERSION
    adding = m.AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=1000,
        producer_epoch=0,
        verify_only=False,
        topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[1])],
    )
    answer = bench.ask(
        bench.service.partitions.add_partitions_to_txn, m.AddPartitionsToTxnRequest(transactions=[adding]), 4
    )
    assert (answer.error_code, list(answer.results_by_transaction)) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert bench.end(1000, 0)[0] is ErrorCode.NONE
    assert bench.state() is COMPLETE_COMMIT


def test_a_transaction_without_partitions_needs_no_markers() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0)
    assert bench.state() is ONGOING
    assert bench.end(1000, 0)[0] is ErrorCode.NONE
    assert bench.states()[-2:] == [("PrepareCommit", 1000, 0), ("CompleteCommit", 1000, 0)]
    assert bench.markers.sent == []


def test_the_same_partitions_again_write_nothing() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    written = bench.logs[0].end_offset
    assert bench.added(1000, 0, T0) is ErrorCode.NONE
    assert bench.add(1000, 0) == {}
    assert bench.verify(1000, 0, T0, adds=True) is ErrorCode.NONE
    assert bench.logs[0].end_offset == written
    assert bench.verify(1000, 0, T1, adds=True) is ErrorCode.NONE
    assert bench.logs[0].end_offset == written + 1


def test_the_version_of_a_client_is_that_of_its_last_write() -> None:
    bench = Bench()
    bench.init()
    for version, topic_partition in ((3, T0), (4, T1), (3, TopicPartition("t", 2))):
        bench.add(1000, 0, topic_partition, version=version)
    versions = [record.client_version for record in bench.records() if hasattr(record, "client_version")]
    assert versions == [0, 0, 2, 0]


def test_unusable_partitions() -> None:
    bench = Bench()
    bench.init()
    missing = TopicPartition("t", 4)
    assert bench.add(1000, 0, T0, missing) == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert bench.state() is EMPTY


def test_no_client_is_authorized_for_internal_topics() -> None:
    bench = Bench()
    bench.init()
    internal, missing = TopicPartition("__consumer_offsets", 0), TopicPartition("__transaction_state", 400)
    assert bench.add(1000, 0, T0, internal, missing) == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        internal: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        missing: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert bench.state() is EMPTY
    assert bench.added(1000, 0, internal, version=4) is ErrorCode.NONE, "a broker adds the partition of a group"


def test_the_answer_has_the_form_of_the_request() -> None:
    bench = Bench()
    bench.init()
    topics = [
        m.AddPartitionsToTxnTopic(name="t", partitions=[1, 0, 1]),
        m.AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[]),
    ]
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=1000,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    answer = bench.ask(bench.service.partitions.add_partitions_to_txn, request, 3)
    assert [
        (topic.name, [result.partition_index for result in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ] == [("t", [1, 0, 1]), ("__consumer_offsets", [])]


def test_a_marker_in_the_log_of_the_coordinator_is_ignored() -> None:
    bench = Bench()
    bench.init()
    log = bench.logs[0]
    bench.runtime.close()
    log.append_marker(EndTransaction(1000, 0, 0, True), leader_epoch=0, timestamp_ms=0)
    bench.start(1)
    assert bench.state() is EMPTY
    assert bench.init() == (0, 1000, 1)


def test_verification_by_partition() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    codes = bench.add(1000, 0, T0, T1, version=4, verify_only=True)
    assert codes == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}


def test_no_producer_id_is_at_hand() -> None:
    """The request waits for the next block. Only if others have taken it whole, the client has to ask again."""
    bench = Bench()
    bench.ids.is_empty = True
    request = m.InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    first = bench.begin(bench.service.init_producer_id, request, 5)
    second = bench.begin(bench.service.init_producer_id, request, 5)
    assert (first, second) == ([], [])
    ready, refused = bench.ids.waiting
    bench.ids.is_empty = False
    ready(ErrorCode.NONE)
    refused(ErrorCode.KAFKA_STORAGE_ERROR)
    bench.settle()
    assert [answer.producer_id for answer in first] == [1000]
    assert [answer.error_code for answer in second] == [ErrorCode.KAFKA_STORAGE_ERROR]


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


def test_a_timeout_at_the_last_epoch() -> None:
    """The marker and the completion have epoch 32767; the next InitProducerId gets a new producer id."""
    bench = Bench()
    bench.put(transaction(state=ONGOING, producer_epoch=32766, partitions=frozenset({T0}), start_timestamp_ms=0))
    bench.advance(10_000)
    assert bench.states()[-2:] == [("PrepareAbort", 1000, 32767), ("CompleteAbort", 1000, 32767)]
    assert bench.init(ID, 1000, 32766) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
    assert bench.init()[2] == 0


def test_no_transactions_at_all() -> None:
    bench = Bench()
    answer = bench.ask(bench.service.partitions.add_partitions_to_txn, m.AddPartitionsToTxnRequest(transactions=[]), 5)
    assert (answer.error_code, list(answer.results_by_transaction)) == (0, [])


def test_a_damaged_record_hides_no_other_id() -> None:
    bench = Bench()
    bench.init("before")
    bench.init("after")
    log = bench.logs[0]
    bench.runtime.close()
    unknown_state = transaction(transactional_id="damaged")
    key, value = TransactionRecordSerde().encode(unknown_state)
    assert value is not None
    log.append(encode_batch([(key, value[:16] + b"\x09" + value[17:])], 0), leader_epoch=0)
    bench.start(1)
    assert bench.state("before") is bench.state("after") is EMPTY
    assert bench.state("damaged") is None


def test_a_bounded_number_of_requests_waits() -> None:
    """A connection has one request in progress, and the wait is short; the memory of a wait ends with it."""
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    bench.markers.code = None
    bench.end(1000, 0)
    request = m.AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, group_id="g")
    answers = [bench.begin(bench.service.partitions.add_offsets_to_txn, request, 4) for _ in range(MAX_WAITING + 5)]
    assert [len(each) for each in answers] == [0] * MAX_WAITING + [1] * 5
    bench.advance(100)
    assert [each[0].error_code for each in answers] == [CONCURRENT] * (MAX_WAITING + 5)
    bench.markers.answer()
    bench.settle()
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


def steps_of(bench: Bench, request: m.AddPartitionsToTxnRequest, version: int) -> Generator[Any, None, Any]:
    """The steps in which a long request is handled."""
    handler = bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN]
    assert isinstance(handler, LongHandler)
    return handler.in_steps(request, FixedContext(version), lambda _: None)


def adding_of(
    *topics: tuple[str, Sequence[int]], transactional_id: str = ID, epoch: int = 0, verify_only: bool = False
) -> m.AddPartitionsToTxnTransaction:
    return m.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=1000,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=[m.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics],
    )


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "transactions",
    [
        [adding_of(("t", (0, 1, 0)), ("t", (1,)))],
        [adding_of(("t", (0, 4, 1)), ("none", (0,)))],
        [adding_of(("__consumer_offsets", (0,)))],
        [adding_of(("t", (0,)), epoch=7)],
        [adding_of(("t", (0,)), transactional_id="")],
        [adding_of()],
        [
            adding_of(("t", (0,))),
            adding_of(("t", (0, 1)), verify_only=True),
            adding_of(("t", (0,)), transactional_id="x"),
        ],
    ],
)
def test_a_long_addition_is_answered_as_a_short_one(
    transactions: list[m.AddPartitionsToTxnTransaction], level: int, version: int
) -> None:
    request = m.AddPartitionsToTxnRequest(
        transactions=transactions,
        v3_and_below_transactional_id=transactions[0].transactional_id,
        v3_and_below_producer_id=transactions[0].producer_id,
        v3_and_below_producer_epoch=transactions[0].producer_epoch,
        v3_and_below_topics=transactions[0].topics,
    )
    found = []
    for is_long in (False, True):
        bench = Bench(level=level)
        bench.init()
        answers: list[m.AddPartitionsToTxnResponse] = []
        if is_long:
            take_all(steps_of(bench, request, version), answers.append)
            bench.settle()
        else:
            answers.append(bench.ask(bench.service.partitions.add_partitions_to_txn, request, version))
        found.append((answers, bench.state(), bench.transaction().partitions))  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_a_long_addition_takes_effect_as_a_whole() -> None:
    bench = Bench()
    bench.image["t"] = Topic("t", 3 * HANDLER_STEP)
    bench.init()
    steps = steps_of(bench, m.AddPartitionsToTxnRequest(transactions=[adding_of(("t", range(3 * HANDLER_STEP)))]), 5)
    for _ in range(3):
        next(steps)
        assert bench.state() is EMPTY
    answers: list[m.AddPartitionsToTxnResponse] = []
    next(steps)
    assert len(bench.transaction().partitions) == 3 * HANDLER_STEP  # type: ignore[union-attr]
    bench.settle()
    for _ in range(3):
        next(steps)
    take_all(steps, answers.append)
    (result,) = answers[0].results_by_transaction[0].topic_results
    assert [each.partition_index for each in result.results_by_partition] == list(range(3 * HANDLER_STEP))
    assert {each.partition_error_code for each in result.results_by_partition} == {0}
