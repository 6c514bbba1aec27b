"""
The last epochs of a producer id: what follows is written with another id, also if the coordinator itself ends a transaction.
A restart at any time loses nothing.

Source: KIP-890, KAFKA-20310; logs and answers of a node of Apache Kafka 4.4.0.
"""

import pytest

from kohort.model.errors import ErrorCode
from kohort.transaction.states import COMPLETE_ABORT, EMPTY, ONGOING, PREPARE_COMMIT
from kohort.transaction.transaction import Transaction
from tests.transaction.bench import ID, T0, T1, Bench, transaction

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
OLD, NEW = 900, 1000


def bench_at(epoch: int = 32766, *, is_ongoing: bool = True, level: int = 2) -> Bench:
    """A coordinator whose transactional id has used up its epochs."""
    bench = Bench(level=level)
    found = transaction(producer_id=OLD, producer_epoch=epoch, state=EMPTY, previous_producer_id=OLD)
    bench.put(found)
    if is_ongoing:
        bench.put(found.with_partitions(frozenset({T0}), level if level == 2 else 0, bench.node.clock.now_ms()))
    return bench


def written(bench: Bench) -> list[tuple[str, int, int, int, int]]:
    """Of each record: state, producer id and epoch, previous and next producer id."""
    records = bench.records()
    assert all(isinstance(each, Transaction) for each in records)
    return [
        (
            each.state.wire_name,
            each.producer_id,
            each.producer_epoch,
            each.previous_producer_id,
            each.next_producer_id,
        )
        for each in records
        if isinstance(each, Transaction)
    ]


def after_restart(bench: Bench) -> Bench:
    bench.restart()
    return bench


@pytest.mark.parametrize("committed", [True, False])
def test_end_txn(*, committed: bool) -> None:
    """The marker has epoch 32767 of the old producer id, the answer the new id; so has that to a repeated request."""
    bench = bench_at()
    assert bench.end(OLD, 32766, committed=committed, version=5) == (0, NEW, 0)
    decision = "Commit" if committed else "Abort"
    assert written(bench)[-3:] == [
        ("Ongoing", OLD, 32766, OLD, -1),
        (f"Prepare{decision}", OLD, 32767, OLD, NEW),
        (f"Complete{decision}", NEW, 0, OLD, -1),
    ]
    assert [(end.producer_id, end.producer_epoch) for _, end in bench.markers.sent] == [(OLD, 32767)]
    for again in (bench, after_restart(bench)):
        assert again.end(OLD, 32766, committed=committed, version=5) == (0, NEW, 0), "a retry"
        assert again.end(OLD, 32766, committed=not committed, version=5) == (INVALID_STATE, -1, -1)


def test_init_producer_id_after_end_txn_is_a_repeated_request() -> None:
    """By the last epoch, which is in memory alone."""
    bench = bench_at()
    bench.end(OLD, 32766, version=5)
    assert bench.init(ID, OLD, 32766) == (0, NEW, 0)
    assert written(bench)[-1] == ("Empty", NEW, 0, NEW, -1)
    assert bench.init(ID, OLD, 32766) == (FENCED, -1, -1), "the previous producer id is the new one now"


def test_an_abort_of_an_empty_id() -> None:
    bench = bench_at(is_ongoing=False)
    assert bench.end(OLD, 32766, committed=False, version=5) == (0, NEW, 0)
    assert written(bench)[-2:] == [("PrepareAbort", OLD, 32767, OLD, NEW), ("CompleteAbort", NEW, 0, OLD, -1)]
    assert after_restart(bench).end(OLD, 32766, committed=False, version=5) == (0, NEW, 0), "a retry"


ABORTED = [("PrepareAbort", OLD, 32767, OLD, NEW), ("CompleteAbort", NEW, 0, OLD, -1)]


def test_a_fence() -> None:
    bench = bench_at()
    assert bench.init() == (CONCURRENT, -1, -1)
    assert bench.init() == (0, NEW, 1)
    assert written(bench)[-3:] == [*ABORTED, ("Empty", NEW, 1, NEW, -1)]
    for again in (bench, after_restart(bench)):
        assert again.end(OLD, 32766, version=5) == (MAPPING, -1, -1)
        assert again.end(OLD, 32766, committed=False, version=5) == (MAPPING, -1, -1)


def test_a_fence_by_the_holder() -> None:
    bench = bench_at()
    assert bench.init(ID, OLD, 32766) == (CONCURRENT, -1, -1)
    assert bench.init(ID, OLD, 32766) == (0, NEW, 0)
    assert written(bench)[-3:] == [*ABORTED, ("Empty", NEW, 0, NEW, -1)]


def test_a_fence_by_the_holder_before_a_restart() -> None:
    """The last epoch is not in the record."""
    bench = bench_at()
    assert bench.init(ID, OLD, 32766) == (CONCURRENT, -1, -1)
    assert after_restart(bench).init(ID, OLD, 32766) == (FENCED, -1, -1)


def test_a_timeout() -> None:
    bench = bench_at()
    bench.advance(100_000)
    assert written(bench)[-2:] == ABORTED
    for again in (bench, after_restart(bench)):
        assert again.end(OLD, 32766, committed=False, version=5) == (0, NEW, 0), "a retry"
        assert again.end(OLD, 32766, version=5) == (INVALID_STATE, -1, -1)
    assert bench.init(ID, OLD, 32766) == (FENCED, -1, -1)
    assert bench.init() == (0, NEW, 1)


def test_a_restart_before_the_markers() -> None:
    """KAFKA-20310: Kafka 4.2.1 forgot the next producer id, and left the transactional id at epoch 32767."""
    bench = bench_at()
    bench.markers.code = None
    assert bench.init() == (CONCURRENT, -1, -1)
    bench.restart()
    assert bench.init() == (CONCURRENT, -1, -1)
    bench.markers.answer()
    bench.settle()
    assert written(bench)[-1] == ABORTED[1]
    assert bench.init() == (0, NEW, 1)


def test_the_epoch_before_the_last_is_usual() -> None:
    bench = bench_at(32765)
    assert bench.init() == (CONCURRENT, -1, -1)
    assert bench.init() == (0, NEW, 0)
    assert written(bench)[-3:] == [
        ("PrepareAbort", OLD, 32766, OLD, -1),
        ("CompleteAbort", OLD, 32766, OLD, -1),
        ("Empty", NEW, 0, OLD, -1),
    ]


@pytest.mark.parametrize("by_timeout", [True, False])
def test_a_transaction_that_stands_at_epoch_32767_keeps_it(*, by_timeout: bool) -> None:
    """A log of Kafka 4.2.1 may have one: a client could get the epoch after a timeout at 32766."""
    bench = bench_at(32767)
    assert bench.end(OLD, 32767, version=5) == (UNKNOWN, -1, -1)
    if by_timeout:
        bench.advance(100_000)
    else:
        assert bench.init() == (CONCURRENT, -1, -1)
    (new,) = {each[4] for each in written(bench)[-2:-1]}
    assert written(bench)[-2:] == [("PrepareAbort", OLD, 32767, OLD, new), ("CompleteAbort", new, 0, OLD, -1)]
    assert [(end.producer_epoch, end.transaction_version) for _, end in bench.markers.sent] == [(32767, 2)]


@pytest.mark.parametrize("epoch", [32766, 32767])
@pytest.mark.parametrize("level", [0, 1])
def test_version_1_rotates_with_the_next_init_producer_id(level: int, epoch: int) -> None:
    bench = bench_at(epoch, level=level)
    bench.advance(100_000)
    previous = -1 if level == 0 else OLD
    assert written(bench)[-2:] == [
        ("PrepareAbort", OLD, 32767, previous, -1),
        ("CompleteAbort", OLD, 32767, previous, -1),
    ]
    assert bench.init(ID, OLD, 32766) == (UNKNOWN, -1, -1)
    assert bench.init() == (0, NEW, 0)
    assert written(bench)[-1] == ("Empty", NEW, 0, previous, -1)


def test_a_timeout_waits_for_a_producer_id_and_holds_up_no_other() -> None:
    bench = bench_at()
    other = transaction(transactional_id="other", producer_epoch=3)
    bench.put(other.with_partitions(frozenset({T1}), 2, bench.node.clock.now_ms()))
    bench.ids.is_empty = True
    bench.advance(100_000)
    assert bench.state() is ONGOING
    assert bench.state("other") is COMPLETE_ABORT
    bench.ids.is_empty = False
    bench.advance(10_000)
    assert written(bench)[-2:] == ABORTED


def test_a_fence_without_a_producer_id_is_refused() -> None:
    """The next block may be used up between the look for one and the operation."""
    bench = bench_at()
    ids = bench.ids
    bench.service._producer_ids = Bench().ids
    ids.is_empty = True
    assert bench.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert bench.state() is ONGOING


def test_each_record_has_the_producer_id_before_it() -> None:
    """A node of 4.4.0 wrote these for a producer that commits twice after its epochs are used up."""
    bench = bench_at(is_ongoing=False)
    bench.add(OLD, 32766, T0)
    bench.end(OLD, 32766, version=5)
    bench.add(NEW, 0, T0)
    bench.add(NEW, 0, T1)
    bench.end(NEW, 0, version=5)
    assert written(bench) == [
        ("Empty", OLD, 32766, OLD, -1),
        ("Ongoing", OLD, 32766, OLD, -1),
        ("PrepareCommit", OLD, 32767, OLD, NEW),
        ("CompleteCommit", NEW, 0, OLD, -1),
        ("Ongoing", NEW, 0, NEW, -1),
        ("Ongoing", NEW, 0, NEW, -1),
        ("PrepareCommit", NEW, 1, NEW, -1),
        ("CompleteCommit", NEW, 1, NEW, -1),
    ]
    assert bench.end(OLD, 32766, version=5) == (MAPPING, -1, -1)


def test_the_first_record_of_an_id_has_its_own_producer_id() -> None:
    bench = Bench()
    assert bench.init() == (0, 1000, 0)
    assert bench.init() == (0, 1000, 1)
    assert written(bench) == [("Empty", 1000, 0, 1000, -1), ("Empty", 1000, 1, 1000, -1)]


def test_records_of_4_2_1_have_no_previous_producer_id() -> None:
    """The next record has it."""
    bench = Bench()
    bench.put(transaction(producer_id=OLD, producer_epoch=3))
    bench.restart()
    assert bench.init(ID, OLD, 3) == (0, OLD, 4)
    assert written(bench) == [("Empty", OLD, 3, -1, -1), ("Empty", OLD, 4, OLD, -1)]


def test_a_decision_of_4_2_1_has_none_either() -> None:
    """A restart finds it, and writes the markers and the completion."""
    bench = Bench()
    bench.put(transaction(producer_id=OLD, producer_epoch=3, state=PREPARE_COMMIT, partitions=frozenset({T0})))
    bench.restart()
    bench.settle()
    assert written(bench) == [("PrepareCommit", OLD, 3, -1, -1), ("CompleteCommit", OLD, 3, OLD, -1)]
