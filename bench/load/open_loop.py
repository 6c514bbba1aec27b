"""
Open-loop load: requests are due at fixed times, whether or not earlier requests have been answered.

A closed loop sends fewer requests while the server is slow ("coordinated omission"). Here, latency starts when a request is
due, so waiting for a free connection is included. Latencies are recorded in an HdrHistogram with three significant digits.
"""

import select
import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from typing import Final

from hdrh.histogram import HdrHistogram

from bench.load.closed_loop import STALLED_SECONDS, Lane, LoadError, Round, expect, undisturbed

LONGEST_US: Final = 120_000_000
NOTHING_DUE_NS: Final = 1 << 62


def run_at_rate(lanes: Sequence[Lane], seconds: float, rate: int) -> Round:
    """
    Send requests at equal intervals, round-robin over the lanes, one in flight on each.

    Args:
        rate: requests per second over all lanes.

    Raises:
        LoadError: a response differs or is missing, or a connection was closed.
    """
    with undisturbed() as cpu_share:
        begun_ns = time.perf_counter_ns()
        latencies_ns, late_ns = _Schedule(lanes, begun_ns, rate, max(int(seconds * rate), 1)).drive()
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        load_cpu = cpu_share()
    histogram = _histogram(latencies_ns)
    return Round(
        requests=len(latencies_ns),
        seconds=elapsed,
        p50_us=histogram.get_value_at_percentile(50),
        p99_us=histogram.get_value_at_percentile(99),
        p999_us=histogram.get_value_at_percentile(99.9),
        load_cpu=load_cpu,
        late_us=_histogram(late_ns).get_value_at_percentile(99) if late_ns else 0.0,
    )


def _histogram(values_ns: Sequence[int]) -> HdrHistogram:
    histogram = HdrHistogram(1, LONGEST_US, 3)
    for value_ns in values_ns:
        histogram.record_value(min(max(value_ns // 1000, 1), LONGEST_US))
    return histogram


class _Schedule:
    """State of one round: due times, requests waiting for their lane, requests in flight."""

    def __init__(self, lanes: Sequence[Lane], begun_ns: int, rate: int, count: int) -> None:
        self._lanes = lanes
        self._count = count
        self._begun_ns = begun_ns
        self._step_ns = 1e9 / rate
        self._next_requests = [cycle(one.requests).__next__ for one in lanes]
        self._waiting_ns: list[deque[int]] = [deque() for _ in lanes]
        self._in_flight_ns = [0] * len(lanes)
        self._latencies_ns: list[int] = []
        self._late_ns: list[int] = []

    def drive(self) -> tuple[list[int], list[int]]:
        """Return the latency of every request, and the delays of requests whose lane was free when they were due."""
        epoll = select.epoll()
        by_descriptor = {one.connection.fileno(): index for index, one in enumerate(self._lanes)}
        for descriptor in by_descriptor:
            epoll.register(descriptor, select.EPOLLIN)
        issued = 0
        heard_ns = time.perf_counter_ns()
        with epoll:
            while len(self._latencies_ns) < self._count:
                issued = self._issue(issued)
                due_ns = self._due_ns(issued) if issued < self._count else NOTHING_DUE_NS
                events = _wait(epoll, due_ns)
                for descriptor, _ in events:
                    self._answered(by_descriptor[descriptor])
                now_ns = time.perf_counter_ns()
                if events:
                    heard_ns = now_ns
                elif now_ns - heard_ns > STALLED_SECONDS * 1e9:
                    raise LoadError(f"no answer for {STALLED_SECONDS:g} seconds")
        return self._latencies_ns, self._late_ns

    def _due_ns(self, number: int) -> int:
        return self._begun_ns + int(number * self._step_ns)

    def _issue(self, issued: int) -> int:
        """Send the requests that are due, or queue them for their lane. Returns the number due so far."""
        now_ns = time.perf_counter_ns()
        while issued < self._count and (due_ns := self._due_ns(issued)) <= now_ns:
            index = issued % len(self._lanes)
            if self._in_flight_ns[index]:
                self._waiting_ns[index].append(due_ns)
            else:
                self._late_ns.append(now_ns - due_ns)
                self._send(index, due_ns)
            issued += 1
        return issued

    def _send(self, index: int, due_ns: int) -> None:
        self._in_flight_ns[index] = due_ns
        self._lanes[index].connection.send(self._next_requests[index]())

    def _answered(self, index: int) -> None:
        lane = self._lanes[index]
        data = lane.connection.recv(max(len(lane.answer), 4096))
        now_ns = time.perf_counter_ns()
        if data != lane.answer:
            expect(lane, data)
        self._latencies_ns.append(now_ns - self._in_flight_ns[index])
        self._in_flight_ns[index] = 0
        if self._waiting_ns[index]:
            self._send(index, self._waiting_ns[index].popleft())


def _wait(epoll: select.epoll, due_ns: int) -> list[tuple[int, int]]:
    """Wait for events until the next request is due. epoll waits in whole milliseconds, select in microseconds."""
    left_s = min((due_ns - time.perf_counter_ns()) / 1e9, 1.0)
    if left_s > 0:
        select.select([epoll], (), (), left_s)
    return epoll.poll(0)
