"""What a runtime measures; the numbers in brackets are the rows of Kafka's own test scenarios."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import UnavailableError
from kohort.runtime.metrics import RANGE_MS, Histogram, IdleRatio, ShardMetrics
from tests.runtime.harness import Bench, batch_of


@given(st.lists(st.integers(-5, 70_000), min_size=1), st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_quantiles_are_right_to_three_digits(durations: list[int], fraction: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.record(duration)
    values = sorted(min(max(duration, 0), RANGE_MS) for duration in durations)
    true = next(value for rank, value in enumerate(values, 1) if rank >= fraction * len(values))
    assert true <= histogram.quantile_ms(fraction) <= true * 1.001
    assert (histogram.count, histogram.sum_ms, histogram.max_ms) == (len(values), sum(values), values[-1])
    bounds = [1, 10, 100, 1000, 10_000, RANGE_MS]
    counts = histogram.count_up_to(bounds)
    assert counts[-1] == len(values)
    assert all(lower <= higher for lower, higher in pairwise(counts))
    assert counts[:4] == [sum(value <= bound for value in values) for bound in bounds[:4]]


@given(st.lists(st.integers(0, 70_000)), st.lists(st.integers(0, 70_000)))
def test_a_sum_is_what_one_would_have_counted(left: list[int], right: list[int]) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for histogram, durations in ((one, left), (other, right), (both, left + right)):
        for duration in durations:
            histogram.record(duration)
    one.add(other)
    assert one._buckets() == both._buckets()
    assert (one.count, one.sum_ms, one.max_ms) == (both.count, both.sum_ms, both.max_ms)


def test_an_empty_histogram_has_no_duration() -> None:
    assert (Histogram().quantile_ms(0.99), Histogram().max_ms) == (0, 0)


@pytest.mark.parametrize(("later_ms", "loads"), [(30_000, 2), (30_001, 1)])
def test_loads_are_forgotten_after_a_while(later_ms: int, loads: int) -> None:
    metrics = ShardMetrics()
    metrics.loaded(started_ms=0, ended_ms=100)
    metrics.loaded(started_ms=later_ms, ended_ms=100 + later_ms)
    assert len(metrics.loads) == loads


def test_a_load_is_timed() -> None:  # [36]
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 0)
    # The first step starts the watch; the second ends it.
    bench.node.call_soon(lambda: bench.node.clock.set(bench.node.clock.now_ms() + 1000))
    bench.node.settle()
    metrics = bench.runtime.metrics()
    assert 0 <= metrics.load_time_avg_ms <= metrics.load_time_max_ms <= 1000
    assert bench.runtime._metrics[0].loads[0][0] == bench.node.clock.now_ms()


def test_appends_are_timed_one_by_one() -> None:  # [52]
    bench = Bench().load()
    append = bench.log.append
    slow_ms = iter([0, 10, 0])

    def slow(batch: bytes | bytearray, *, leader_epoch: int) -> int:
        bench.node.clock.set(bench.node.clock.now_ms() + next(slow_ms))
        return append(batch, leader_epoch=leader_epoch)

    bench.log.append = slow  # type: ignore[method-assign]
    for number in range(3):
        bench.put(f"w{number}", ("x", number))
        bench.node.run_turn()
    flush_time = bench.runtime.metrics()["batch_flush_time"]
    assert (flush_time.count, flush_time.sum_ms, flush_time.max_ms) == (3, 10, 10)


def test_waiting_for_the_high_watermark_is_timed_unless_it_fails() -> None:  # [53, L1]
    bench = Bench().load()
    bench.put("committed", ("a", 1))
    bench.node.run_turn()
    bench.node.advance(7)
    bench.log.commit()
    bench.put("timed out", ("b", 1))
    bench.node.run_turn()
    bench.node.advance(5_000)
    bench.log.commit()
    purgatory = bench.runtime.metrics()["event_purgatory_time"]
    assert (purgatory.count, purgatory.sum_ms) == (2, 5_007), "the late commit is not counted again"
    bench.put("failed", ("c", 1))
    bench.log.fail_next_append = UnavailableError("gone")
    bench.node.run_turn()
    bench.put("unloaded", ("c", 1))
    bench.node.run_turn()
    bench.runtime.unload(0, None)
    assert bench.runtime.metrics()["event_purgatory_time"].count == 2


def test_a_batch_that_lingers_is_timed() -> None:  # [L6]
    bench = Bench(linger_ms=10).load()
    bench.put("a", ("a", 1))
    bench.node.advance(10)
    linger = bench.runtime.metrics()["batch_linger_time"]
    assert (linger.count, linger.sum_ms) == (1, 10)


def test_a_load_waits_in_the_event_queue_between_its_steps() -> None:
    bench = Bench()
    for log in bench.logs:
        log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
        log.commit()
    bench.runtime.load(0, bench.logs[0], 0)
    bench.runtime.load(1, bench.logs[1], 0)
    assert bench.runtime.metrics().event_queue_size == 2
    bench.node.clock.set(bench.node.clock.now_ms() + 30)
    bench.node.settle()
    metrics = bench.runtime.metrics()
    assert metrics.event_queue_size == 0
    assert (metrics["event_queue_time"].max_ms, metrics["event_processing_time"].count) == (30, 0)


def test_threads_are_idle_while_they_are_not_busy() -> None:
    busy_ns, now_ns = [0], [5_000_000_000]
    ratio = IdleRatio(4, lambda: busy_ns[0], lambda: now_ns[0])
    busy_ns[0], now_ns[0] = 3_000_000_000, 5_999_999_999
    assert ratio.read() == 1.0, "less than a second has passed"
    now_ns[0] = 6_000_000_000
    assert ratio.read() == 0.25
    busy_ns[0], now_ns[0] = 3_500_000_000, 6_400_000_000
    assert ratio.read() == 0.25, "the second reader gets the same"
    now_ns[0] = 8_000_000_000
    assert ratio.read() == 0.9375
    busy_ns[0], now_ns[0] = 99_000_000_000, 9_000_000_000
    assert ratio.read() == 0.0


def test_operations_that_wait_for_their_turn_are_counted() -> None:
    bench = Bench().load()
    sizes = []

    def operation(shard, now_ms):  # type: ignore[no-untyped-def]
        bench.put("queued", ("q", 1))
        sizes.append(bench.runtime.metrics().event_queue_size)
        return shard.put("ok", ("a", 1))

    bench.write("a", operation)
    assert sizes == [1]
    metrics = bench.runtime.metrics()
    assert metrics.event_queue_size == 0
    assert metrics["event_queue_time"].count == 2, "the first waited for 0 ms"
    assert metrics["event_processing_time"].count == 2
    assert set(metrics) == {
        "event_queue_time",
        "event_processing_time",
        "event_purgatory_time",
        "batch_linger_time",
        "batch_flush_time",
        "background_queue_time",
        "background_processing_time",
    }
