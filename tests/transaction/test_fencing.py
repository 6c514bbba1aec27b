"""Fenced producers and timeouts: which epochs follow, and who is refused."""

import pytest

from kohort.model.errors import ErrorCode, UnavailableError
from kohort.transaction.events import TransactionFenced, TransactionTimedOut
from kohort.transaction.states import ONGOING
from tests.transaction.bench import ID, T0, T1, Bench

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


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
