"""Counters and gauges of transactions."""

from kohort.model.errors import ErrorCode
from kohort.transaction.metrics import TransactionCounters
from tests.transaction.bench import T0, T1, Bench


def counted(bench: Bench) -> dict[str, int]:
    counters = bench.runtime.query(0, lambda shard, _: shard.context.counters)
    return {name: value for name in TransactionCounters.__slots__ if (value := getattr(counters, name))}


def test_counters() -> None:
    bench = Bench(transactional_id_expiration_ms=1)
    bench.init(timeout_ms=10_000)
    bench.add(1000, 0, T0)
    bench.end(1000, 0)
    assert counted(bench) == {"committed": 1}
    bench.add(1000, 0, T0)
    bench.end(1000, 0, committed=False)
    assert counted(bench) == {"committed": 1, "aborted": 1}
    bench.add(1000, 0, T0)
    bench.init()
    assert counted(bench) == {"committed": 1, "aborted": 2, "fenced": 1}
    bench.init(timeout_ms=10_000)
    bench.add(1000, 2, T0)
    bench.advance(20_001)
    assert counted(bench) == {"committed": 1, "aborted": 3, "fenced": 1, "timed_out": 1}
    bench.advance(3_600_000)
    assert counted(bench)["expired"] == 1


def test_a_refused_end_counts_nothing() -> None:
    bench = Bench()
    bench.init()
    assert bench.end(1000, 0)[0] is ErrorCode.INVALID_TXN_STATE
    assert counted(bench) == {}


def test_gauges() -> None:
    bench = Bench()
    bench.init("a")
    for producer_id, name in enumerate(("b", "c"), start=1001):
        bench.init(name)
        bench.add(producer_id, 0, T0, T1, transactional_id=name)
    bench.markers.code = None
    bench.end(1002, 0, transactional_id="c")
    gauges = bench.service.gauges()
    assert (gauges.ids, gauges.ongoing, gauges.ending) == (3, 1, 1)
    assert (bench.senders[0].waiting, bench.senders[0].retrying) == (2, 0)
    bench.markers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, T0)
    bench.markers.answer(ErrorCode.NONE, T1)
    assert (bench.senders[0].waiting, bench.senders[0].retrying) == (1, 1)
    bench.markers.code = ErrorCode.NONE
    bench.advance(50)
    gauges = bench.service.gauges()
    assert (gauges.ids, gauges.ongoing, gauges.ending) == (3, 1, 0), "a completed transaction is not unfinished"
