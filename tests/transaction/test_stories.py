"""Stories of transactions: what the log, the markers and the clients see, in order."""

import pytest

from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode, RecordTooLargeError, UnavailableError
from kohort.model.ids import TopicPartition, coordinator_partition
from kohort.transaction.markers import MAX_WAITING
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import encode_batch
from tests.transaction.bench import ID, T0, T1, TIMEOUT_MS, Bench, transaction

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
        bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN], m.AddPartitionsToTxnRequest(transactions=[adding]), 4
    )
    assert (answer.error_code, list(answer.results_by_transaction)) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert bench.end(1000, 0)[0] is ErrorCode.NONE
    assert bench.state() is COMPLETE_COMMIT


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
