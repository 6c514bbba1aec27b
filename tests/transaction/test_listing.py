"""DescribeTransactions and ListTransactions as Apache Kafka 4.2.1 answers them."""

from typing import Any

import pytest

from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.testing.context import FixedContext, take_all
from kohort.transaction.listing import filter_of, list_transactions
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.transaction.bench import ID, T0, T1, Bench, transaction


def bench_with_four() -> Bench:
    """Ids `a` to `d`: empty, ongoing for 10 s, prepared, completed."""
    bench = Bench(partition_count=3)
    now_ms = bench.node.clock.now_ms()
    both = frozenset({T0, T1})
    bench.put(transaction(transactional_id="a", producer_id=1))
    bench.put(
        transaction(
            transactional_id="b", producer_id=2, state=ONGOING, partitions=both, start_timestamp_ms=now_ms - 10_000
        )
    )
    bench.put(
        transaction(
            transactional_id="cc", producer_id=3, state=PREPARE_ABORT, partitions=both, start_timestamp_ms=now_ms - 5
        )
    )
    bench.put(transaction(transactional_id="d", producer_id=3, state=COMPLETE_COMMIT, start_timestamp_ms=now_ms))
    return bench


# fmt: off
FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "a b cc d"),
    ({"state_filters": ["Ongoing"]}, "b"),
    ({"state_filters": ["Ongoing", "Empty"]}, "a b"),
    ({"state_filters": ["ongoing"]}, ""),                       # upper and lower case differ
    ({"state_filters": ["Dead"]}, ""),
    ({"state_filters": ["nonsense", "PrepareAbort"]}, "cc"),
    ({"producer_id_filters": [3]}, "cc d"),
    ({"producer_id_filters": [3], "state_filters": ["CompleteCommit"]}, "d"),
    ({"duration_filter": 9_999}, "a b"),                        # an id without a transaction began at -1
    ({"duration_filter": 10_000}, "a"),
    ({"duration_filter": 0}, "a b cc"),
    ({"duration_filter": -7}, "a b cc d"),
    ({"transactional_id_pattern": "c"}, ""),                    # the whole id has to match
    ({"transactional_id_pattern": "c+|d"}, "cc d"),
    ({"transactional_id_pattern": ""}, "a b cc d"),
]
# fmt: on


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_filters(filters: dict[str, Any], expected: str) -> None:
    answer = bench_with_four().listed(**filters)
    assert sorted(state.transactional_id for state in answer.transaction_states) == expected.split()


def test_unknown_state_filters_are_returned() -> None:
    answer = bench_with_four().listed(state_filters=["Ongoing", "nonsense", "ONGOING", "Dead", "PrepareEpochFence"])
    assert list(answer.unknown_state_filters) == ["nonsense", "ONGOING"]


def test_old_versions_have_no_later_filters() -> None:
    listed = bench_with_four().listed
    assert len(listed(0, duration_filter=10_000, transactional_id_pattern="a").transaction_states) == 4
    assert len(listed(1, duration_filter=10_000, transactional_id_pattern="b").transaction_states) == 1


@pytest.mark.parametrize(
    "pattern", ["(", "a{2,1}", "(?<x>a)(?=b)", r"\C", "a" * 1_025, r"\pL" * 5, r".{1000}" * 2, "\ud800"]
)
def test_a_pattern_that_is_none(pattern: str) -> None:
    answer = bench_with_four().listed(transactional_id_pattern=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(answer.transaction_states) == []


def test_a_pattern_is_matched_in_steps_by_what_it_may_cost() -> None:
    """A pattern of 7 000 instructions may take 2 ms with an id of 36 bytes: after each second id the others have a turn."""
    found = [(f"{number:036}", transaction(transactional_id=f"{number:036}")) for number in range(20)]

    def steps(pattern: str) -> int:
        request = m.ListTransactionsRequest(transactional_id_pattern=pattern)
        return sum(1 for _ in list_transactions(found, filter_of(request, (), 2), 0))

    assert steps("[01]*0") == 0
    assert steps("(?:0|1)*0(?:.{900})") == 20


def test_a_large_pattern_is_not_matched_with_a_large_id() -> None:
    """One match would hold the broker for 200 ms."""
    bench = bench_with_four()
    bench.put(transaction(transactional_id="0" * 30_000))
    assert len(bench.listed(transactional_id_pattern="0+").transaction_states) == 1
    answer = bench.listed(transactional_id_pattern="(?:0|1)*0(?:.{900})")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_takes_linear_time() -> None:
    """Python's own module would need 2^40 steps."""
    bench = Bench()
    bench.put(transaction(transactional_id="a" * 40 + "!"))
    assert list(bench.listed(transactional_id_pattern="(a+)+").transaction_states) == []


def test_description() -> None:
    bench = bench_with_four()
    found = bench.describe("b")
    assert (found.error_code, found.transaction_state, found.producer_id, found.producer_epoch) == (0, "Ongoing", 2, 0)
    assert found.transaction_start_time_ms == bench.node.clock.now_ms() - 10_000
    assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [("t", [0, 1])]
    assert bench.describe("a").transaction_start_time_ms == -1


@pytest.mark.parametrize(
    ("name", "code"), [("z", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_an_error_has_zeros(name: str, code: ErrorCode) -> None:
    found = bench_with_four().describe(name)
    assert found.error_code == code
    assert (found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_start_time_ms) == (
        "",
        0,
        0,
        0,
    )


def test_uncommitted_changes_are_not_shown() -> None:
    bench = Bench()
    bench.init()
    bench.commits = False
    bench.begin(bench.service.partitions.add_offsets_to_txn, _offsets(), 4)
    assert bench.transaction().state is ONGOING  # type: ignore[union-attr]
    assert bench.describe().transaction_state == "Empty"
    assert [state.transaction_state for state in bench.listed().transaction_states] == ["Empty"]


def _offsets() -> Any:
    return m.AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, group_id="g")


def test_a_coordinator_that_stops() -> None:
    bench = bench_with_four()
    bench.service.is_active = False
    assert bench.listed().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.describe("a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.init()[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_partition_that_is_not_here() -> None:
    """ListTransactions leaves it out; every other API is refused."""
    bench = bench_with_four()
    for partition in range(3):
        bench.runtime.unload(partition, None)
    bench.settle()
    assert list(bench.listed().transaction_states) == []
    assert bench.describe("a").error_code == ErrorCode.NOT_COORDINATOR
    assert bench.init("a")[0] == ErrorCode.NOT_COORDINATOR


def test_an_empty_id_is_known() -> None:
    bench = Bench()
    bench.init()
    assert bench.state() is EMPTY
    assert bench.describe().error_code == 0


def test_many_ids_are_listed_in_steps_as_they_were_at_the_first() -> None:
    bench = Bench()
    names = {f"id-{number:04}" for number in range(3 * HANDLER_STEP)}
    for name in names:
        bench.init(name)
    handler = bench.service.handlers()[ApiKey.LIST_TRANSACTIONS]
    request = m.ListTransactionsRequest(state_filters=["Empty", "x", "x"])
    steps = handler(request, FixedContext(2), lambda _: None)
    next(steps)
    bench.init("later")
    answers: list[m.ListTransactionsResponse] = []
    next(steps)
    next(steps)
    take_all(steps, answers.append)
    assert {state.transactional_id for state in answers[0].transaction_states} == names
    assert answers[0].unknown_state_filters == ["x"]
    assert len(bench.listed().transaction_states) == len(names) + 1
