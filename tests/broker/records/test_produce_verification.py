"""Verification of transactions at Produce (KIP-890), as probed on Apache Kafka 4.2.1."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import NoResponse
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch, produce_request
from tests.broker.transactions.test_producers import end, sent

TX = "tx"
STATE, MAPPING, EPOCH = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
ABORTABLE, GAP = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
CONCURRENT, UNAVAILABLE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS


class Coordinator:
    """A transaction coordinator that answers when the test says so, or at once with the next of `answers`."""

    def __init__(self, *answers: ErrorCode) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Producer]] = []
        self.waiting: list[Callable[[CoordinatorError | None], None]] = []

    def verify(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        verified: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        self.asked.append((str(topic_partition), producer))
        if self.answers:
            code = self.answers.pop(0)
            verified(None if code is ErrorCode.NONE else CoordinatorError(code))
        else:
            self.waiting.append(verified)


class Bench:
    """A broker with a topic of two partitions."""

    def __init__(self, *answers: ErrorCode, **settings: Any) -> None:
        self.coordinator = Coordinator(*answers)
        self.harness = Harness(verification=self.coordinator, **settings)
        self.harness.create("t", 2)

    def begin(
        self,
        *batches: bytes | None,
        version: int = 12,
        transactional_id: str | None = TX,
        acks: int = -1,
        topic: str = "t",
        client_id: str = "test",
    ) -> list[Any]:
        """Send batches, one for each partition from 0 on."""
        records: dict[int, bytes | None] = {index: sent for index, sent in enumerate(batches) if sent is not None}
        request = produce_request(topic, records, acks=acks, transactional_id=transactional_id)
        answers = self.harness.begin(ApiKey.PRODUCE, request, version=version, client_id=client_id)
        self.harness.node.settle()
        return answers

    def codes(self, *batches: bytes | None, **how: Any) -> list[int]:
        return codes(self.begin(*batches, **how))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The coordinator answers the oldest question."""
        self.coordinator.waiting.pop(0)(None if code is ErrorCode.NONE else CoordinatorError(code))
        self.harness.node.settle()

    def partition(self, index: int = 0) -> Partition:
        found = self.harness.broker.partitions.find("t", index)
        assert found is not None
        return found

    @property
    def ends(self) -> list[int]:
        return [self.partition(index).log.end_offset for index in range(2)]


def codes(answers: list[Any]) -> list[int]:
    (answer,) = answers
    return [partition.error_code for partition in answer.responses[0].partition_responses]


def data(sequence: int = 0, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ABORTABLE])
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_transactional_batches_are_appended_when_their_transaction_is_verified(acks: int, error: ErrorCode) -> None:
    bench = Bench()
    answers = bench.begin(data(), sent(0, epoch=0), acks=acks, version=11)
    assert (answers, bench.ends) == ([], [0, 0]), "nothing is appended before the answer"
    assert bench.coordinator.asked == [("t-0", Producer(TX, 7, 0))], "plain batches are not verified"
    bench.answer(error)
    if acks:
        assert codes(answers) == [error, 0]
    else:
        assert answers == [NoResponse.CLOSE_CONNECTION if error else NoResponse.NO_OP]
    assert bench.ends == [0 if error else 1, 1], "the failure of one partition does not affect the others"


# What is verified


def test_an_open_transaction_is_not_verified_again() -> None:
    """Whatever transactional id the request names."""
    bench = Bench(ErrorCode.NONE)
    assert bench.codes(data()) == [0]
    assert bench.codes(data(1), transactional_id="unknown") == [0]
    assert bench.codes(data(1), transactional_id="unknown") == [0], "a duplicate"
    assert len(bench.coordinator.asked) == 1


def test_a_batch_of_an_ended_transaction_is_verified_and_no_duplicate() -> None:
    bench = Bench(ErrorCode.NONE, ABORTABLE)
    assert bench.codes(data(), version=11) == [0]
    assert end(bench.harness, committed=True) == {("t", 0): 0}
    assert bench.codes(data(), version=11) == [ABORTABLE]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_fenced_producer_learns_of_its_epoch_before_the_coordinator_is_asked(is_open: bool) -> None:
    """KAFKA-19690."""
    bench = Bench(ErrorCode.NONE)
    assert bench.codes(data(epoch=1)) == [0]
    if not is_open:
        end(bench.harness, committed=True, epoch=2)
    assert bench.codes(data(1, epoch=0)) == [EPOCH]
    assert len(bench.coordinator.asked) == 1


def test_version_12_has_the_coordinator_add_the_partition() -> None:
    bench = Bench(ErrorCode.NONE, ErrorCode.NONE)
    bench.codes(None, data(), version=12)
    bench.codes(data(), version=11)
    assert [(place, producer.adds_partition) for place, producer in bench.coordinator.asked] == [
        ("t-1", True),
        ("t-0", False),
    ]


def test_version_12_adds_the_partition_before_the_sequence_is_refused() -> None:
    bench = Bench(ErrorCode.NONE, ErrorCode.NONE)
    assert bench.codes(data(3)) == [GAP]
    assert bench.codes(data(0)) == [0]
    assert len(bench.coordinator.asked) == 2


def test_a_transactional_batch_without_a_producer_id_is_appended_unverified() -> None:
    bench = Bench()
    assert bench.codes(data(-1, epoch=-1, producer_id=-1)) == [0]
    assert bench.partition().log.producers.states == {}


def test_switched_off_only_version_12_asks() -> None:
    """Kafka's documentation has it that nothing is asked; version 12 has the coordinator add the partition all the same."""
    bench = Bench(ErrorCode.NONE, transaction_partition_verification_enable="false")
    assert bench.codes(data(4), version=11, transactional_id="") == [0]
    assert bench.coordinator.asked == []
    assert bench.codes(None, data(0)) == [0]
    assert bench.coordinator.asked == [("t-1", Producer(TX, 7, 0, adds_partition=True))]


def test_switched_off_while_the_broker_runs() -> None:
    bench = Bench()
    bench.harness.broker.config.set_dynamic({}, {"transaction.partition.verification.enable": "false"})
    assert bench.codes(data(4), version=11, transactional_id="") == [0]
    bench.harness.broker.config.set_dynamic({}, {})
    assert bench.begin(None, data(4), version=11) == []
    assert [asked for asked, _ in bench.coordinator.asked] == ["t-1"]


def test_what_a_client_may_not_write_to_is_not_added_to_its_transaction() -> None:
    bench = Bench()
    bench.harness.create(CONSUMER_OFFSETS)
    assert bench.codes(data(), topic=CONSUMER_OFFSETS) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert bench.codes(data(), topic="none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert bench.coordinator.asked == []


# Requests that are refused as a whole


TWO = data() + data(1)
# fmt: off
WHOLE = {  # batches of partition 0 and 1; transactional id; codes and message
    "a transactional batch, no id":           (data(), sent(0),              None, [53, 53], None),
    "in a pair, no id":                       (TWO, sent(0),                 None, [53, 53], None),
    "second in a pair, no id":                (sent(0) + data(), sent(0),    None, [87, 0],  None),
    "two producers":                          (data(), data(producer_id=8),  TX,   [49, 49],
                                               "Transactional records contained more than one producer ID"),
    "two epochs":                             (data(), data(epoch=1),        TX,   [49, 49],
                                               "Transactional records contained more than one producer ID"),
    "two producers, one in an invalid pair":  (data(producer_id=8), TWO,     TX,   [0, 87],  None),
    "two producers, one of them plain":       (data(producer_id=8), sent(0), TX,   [0, 0],   None),
}
# fmt: on


@pytest.mark.parametrize("case", WHOLE)
def test_refused_as_a_whole(case: str) -> None:
    """Seen on 4.2.1."""
    first, second, transactional_id, expected, message = WHOLE[case]
    bench = Bench(ErrorCode.NONE)
    (answer,) = bench.begin(first, second, transactional_id=transactional_id, version=11)
    partitions = answer.responses[0].partition_responses
    assert [partition.error_code for partition in partitions] == expected
    if expected[0] == expected[1] != 0:
        assert {(p.base_offset, p.log_start_offset, p.error_message) for p in partitions} == {(-1, -1, message)}
        assert bench.ends == [0, 0]
        assert bench.begin(first, second, transactional_id=transactional_id, version=11, acks=0) == [
            NoResponse.CLOSE_CONNECTION
        ]


# Codes of the coordinator


NOT_ADDED = "Partition was not added to the transaction"
UNABLE = "Unable to verify the partition has been added to the transaction. Underlying error: "
# fmt: off
CODES = [  # the coordinator's code, the version of Produce, the answer and its message
    (ABORTABLE,                              10, STATE,       NOT_ADDED),
    (ABORTABLE,                              11, ABORTABLE,   None),
    (ABORTABLE,                              12, ABORTABLE,   None),
    (STATE,                                  11, STATE,       NOT_ADDED),
    (MAPPING,                                10, MAPPING,     None),
    (MAPPING,                                12, MAPPING,     None),
    (EPOCH,                                  11, EPOCH,       None),
    (ErrorCode.INVALID_REQUEST,              12, ErrorCode.INVALID_REQUEST, None),
    (CONCURRENT,                             10, UNAVAILABLE, UNABLE + "CONCURRENT_TRANSACTIONS"),
    (CONCURRENT,                             11, UNAVAILABLE, UNABLE + "CONCURRENT_TRANSACTIONS"),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 11, UNAVAILABLE, UNABLE + "COORDINATOR_LOAD_IN_PROGRESS"),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE,    11, UNAVAILABLE, UNABLE + "COORDINATOR_NOT_AVAILABLE"),
    (ErrorCode.NOT_COORDINATOR,              12, UNAVAILABLE, UNABLE + "NOT_COORDINATOR"),
    (ErrorCode.NETWORK_EXCEPTION,            12, UNAVAILABLE, UNABLE + "NETWORK_EXCEPTION"),
]
# fmt: on


@pytest.mark.parametrize(("code", "version", "expected", "message"), CODES)
def test_codes_of_the_coordinator(code: ErrorCode, version: int, expected: ErrorCode, message: str | None) -> None:
    bench = Bench(code)
    (answer,) = bench.begin(data(), version=version)
    (refused,) = answer.responses[0].partition_responses
    assert (refused.error_code, refused.error_message) == (expected, message)
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)


# Repeated questions


@pytest.mark.parametrize(("waited_ms", "asked", "answers"), [(19, 1, 0), (20, 2, 0), (99, 5, 0), (100, 6, 1)])
def test_a_partition_is_added_again_while_the_transaction_before_it_ends(
    waited_ms: int, asked: int, answers: int
) -> None:
    """Source: add.partitions.to.txn.retry.backoff.ms, add.partitions.to.txn.retry.backoff.max.ms."""
    bench = Bench(*[CONCURRENT] * 10)
    answered = bench.begin(data(), sent(0))
    bench.harness.node.advance(waited_ms)
    assert (len(bench.coordinator.asked), len(answered)) == (asked, answers)
    if answers:
        assert codes(answered) == [CONCURRENT, 0]


def test_a_repeated_question_that_succeeds() -> None:
    bench = Bench(CONCURRENT, CONCURRENT, ErrorCode.NONE)
    answered = bench.begin(data())
    bench.harness.node.advance(40)
    assert codes(answered) == [0]


def test_repetition_can_be_switched_off() -> None:
    bench = Bench(CONCURRENT, add_partitions_to_txn_retry_backoff_max_ms="0")
    assert bench.codes(data()) == [CONCURRENT]


def test_a_repeated_question_has_a_new_guard() -> None:
    """The marker that ends the transaction before makes the first one invalid."""
    bench = Bench(CONCURRENT, ErrorCode.NONE)
    answered = bench.begin(data(epoch=1))
    assert end(bench.harness, committed=True, epoch=1) == {("t", 0): 0}
    bench.harness.node.advance(20)
    assert codes(answered) == [0]


def test_a_topic_that_is_deleted_before_a_repeated_question() -> None:
    bench = Bench(CONCURRENT)
    answered = bench.begin(data())
    bench.harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version=3)
    bench.harness.node.advance(20)
    assert codes(answered) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(bench.coordinator.asked) == 1


# Markers that come during a verification


def test_an_end_that_overtakes_the_verification_keeps_the_batch_out() -> None:
    """Else the batch would belong to no transaction, and block readers of committed data for ever (KAFKA-14884)."""
    bench = Bench()
    answers = bench.begin(data(), version=11)
    assert end(bench.harness, committed=False) == {("t", 0): 0}
    bench.answer()
    assert codes(answers) == [STATE]
    assert bench.ends == [1, 0], "the marker"


def test_an_end_that_overtakes_the_addition_of_the_partition() -> None:
    """The coordinator may wait for that end before it adds the partition to the next transaction; it is asked anew."""
    bench = Bench()
    answers = bench.begin(data(epoch=1))
    assert end(bench.harness, committed=False, epoch=1) == {("t", 0): 0}
    bench.answer()
    assert (answers, len(bench.coordinator.asked)) == ([], 2)
    bench.answer()
    assert codes(answers) == [0]


def test_a_fenced_producer_appends_nothing_to_the_transaction_of_its_successor() -> None:
    """Verified before its successor wrote. Source: Kafka UnifiedLog.analyzeAndValidateProducerState."""
    bench = Bench()
    fenced = bench.begin(data(), version=11)
    following = bench.begin(data(epoch=1), version=11, transactional_id="other")
    bench.coordinator.waiting.reverse()
    bench.answer()
    bench.answer()
    assert (codes(fenced), codes(following)) == ([EPOCH], [0])
    assert bench.ends == [1, 0]


# The order of requests


def test_requests_of_one_transactional_id_are_appended_in_order() -> None:
    """A connection may have several Produce requests in flight."""
    bench = Bench()
    first = bench.begin(data(0))
    second = bench.begin(data(1))
    other = bench.begin(None, data(0, producer_id=8), transactional_id="other")
    assert len(bench.coordinator.waiting) == 2, "the second request waits for the first one"
    bench.coordinator.waiting.reverse()
    bench.answer()
    assert (codes(other), first, second) == ([0], [], [])
    bench.answer()
    assert (codes(first), codes(second)) == ([0], [0])
    assert len(bench.coordinator.asked) == 2, "the transaction is open now"


def test_the_second_batch_does_not_take_the_place_of_the_first() -> None:
    """KAFKA-14920: the first one is refused and will be sent again."""
    bench = Bench(ErrorCode.NOT_COORDINATOR, ErrorCode.NONE, ErrorCode.NONE)
    assert bench.codes(data(0), version=11) == [UNAVAILABLE]
    assert bench.codes(data(1), version=11) == [GAP]
    assert bench.codes(data(0), version=11) == [0]
    assert bench.codes(data(1), version=11) == [0]


def test_requests_behind_a_refused_one_go_on() -> None:
    bench = Bench()
    first, second, third = (bench.begin(data(sequence)) for sequence in range(3))
    bench.answer(ErrorCode.NOT_COORDINATOR)
    bench.answer()
    bench.answer()
    assert [codes(answers) for answers in (first, second, third)] == [[UNAVAILABLE], [GAP], [GAP]]
    assert bench.harness.broker.verifier.is_idle


# Metrics


def test_metrics() -> None:
    bench = Bench(ErrorCode.NONE, CONCURRENT, ABORTABLE)
    bench.codes(data(0))
    bench.codes(data(1))
    bench.begin(None, data(0))
    bench.harness.node.advance(20)
    metrics = bench.harness.broker.verifier.metrics
    assert (metrics.time.count, metrics.time.max_ms, metrics.failures) == (2, 20, 1)
