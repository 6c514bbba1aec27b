"""AddPartitionsToTxn: its answers, what it writes, and requests that are handled in steps."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from kohort.machine.gradual import HANDLER_STEP, Stepwise
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.transaction.states import EMPTY, ONGOING
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.transaction.bench import ID, T0, T1, Bench, Topic


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
    answer = bench.ask(bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN], request, 3)
    assert [
        (topic.name, [result.partition_index for result in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ] == [("t", [1, 0, 1]), ("__consumer_offsets", [])]


def test_verification_by_partition() -> None:
    bench = Bench()
    bench.init()
    bench.add(1000, 0, T0)
    codes = bench.add(1000, 0, T0, T1, version=4, verify_only=True)
    assert codes == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}


def test_no_transactions_at_all() -> None:
    bench = Bench()
    answer = bench.ask(
        bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN], m.AddPartitionsToTxnRequest(transactions=[]), 5
    )
    assert (answer.error_code, list(answer.results_by_transaction)) == (0, [])


def steps_of(bench: Bench, request: m.AddPartitionsToTxnRequest, version: int) -> Generator[Any, None, Any]:
    """The steps in which a long request is handled."""
    handler = bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN]
    assert isinstance(handler, Stepwise)
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
            answers.append(bench.ask(bench.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN], request, version))
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
