"""
The load: a closed loop over many connections, one request in flight on each.

Everything is prepared before it starts. While it runs, the loop moves bytes between epoll, `recv` and `send`, takes the time
once per answer and compares the answer with the one expected: no decoding, no allocation that lasts, no garbage collection.
What it can do at most is measured against a server that answers constants (`constant_server.py`).
"""

import gc
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Final

from bench.client import read_frame

STALLED_SECONDS: Final = 30.0
"""When nothing is answered for so long, the measure is broken off."""


class LoadError(Exception):
    """The server gave another answer than the one expected, or none."""


@dataclass(frozen=True, slots=True)
class Lane:
    """
    One connection and what is sent over it in turn.

    Attributes:
        answer: the whole frame that answers each of the requests.
    """

    connection: socket.socket
    requests: Sequence[bytes]
    answer: bytes


@dataclass(frozen=True, slots=True)
class Round:
    """
    One stretch of load.

    Attributes:
        load_cpu: the load's own share of one processor. Near 1 it might be what is measured.
    """

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    load_cpu: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """The rounds of a measure: medians, and the slowest and the fastest round."""

    per_second: float
    per_second_min: float
    per_second_max: float
    p50_us: float
    p99_us: float
    load_cpu: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> "Summary":
        rates = [one.per_second for one in rounds]
        return cls(
            per_second=median(rates),
            per_second_min=min(rates),
            per_second_max=max(rates),
            p50_us=median(one.p50_us for one in rounds),
            p99_us=median(one.p99_us for one in rounds),
            load_cpu=median(one.load_cpu for one in rounds),
        )


def run(lanes: Sequence[Lane], seconds: float) -> Round:
    """
    Keep one request in flight on every lane for some seconds, then take the answers that are still due.

    Raises:
        LoadError: an answer differs, is missing, or the connection ended.
    """
    gc.collect()
    gc.disable()
    try:
        cpu_before = time.process_time()
        begun_ns = time.perf_counter_ns()
        latencies_ns = _drive(lanes, begun_ns + int(seconds * 1e9))
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        cpu = time.process_time() - cpu_before
    finally:
        gc.enable()
    latencies_ns.sort()
    return Round(
        requests=len(latencies_ns),
        seconds=elapsed,
        p50_us=_quantile_us(latencies_ns, 0.50),
        p99_us=_quantile_us(latencies_ns, 0.99),
        load_cpu=cpu / elapsed,
    )


def _quantile_us(ordered_ns: list[int], share: float) -> float:
    return ordered_ns[min(int(len(ordered_ns) * share), len(ordered_ns) - 1)] / 1000


def _drive(lanes: Sequence[Lane], deadline_ns: int) -> list[int]:
    """The loop. Returns the latency of every request."""
    # Bound methods and plain local containers: whatever is looked up here is looked up 100 000 times a second.
    clock = time.perf_counter_ns
    epoll = select.epoll()
    sent_ns: dict[int, int] = {}
    steps: dict[int, tuple[Callable[[int], bytes], Callable[[bytes], int], Callable[[], bytes], bytes]] = {}
    for lane in lanes:
        descriptor = lane.connection.fileno()
        steps[descriptor] = (lane.connection.recv, lane.connection.send, cycle(lane.requests).__next__, lane.answer)
        epoll.register(descriptor, select.EPOLLIN)
    by_descriptor = {lane.connection.fileno(): lane for lane in lanes}
    latencies_ns: list[int] = []
    note = latencies_ns.append
    poll = epoll.poll
    in_flight = len(lanes)
    with epoll:
        for descriptor, (_, send, next_request, _) in steps.items():
            sent_ns[descriptor] = clock()
            send(next_request())
        while in_flight:
            events = poll(STALLED_SECONDS)
            if not events:
                raise LoadError(f"no answer for {STALLED_SECONDS:g} seconds, {in_flight} requests are open")
            for descriptor, _ in events:
                receive, send, next_request, answer = steps[descriptor]
                data = receive(4096)
                now_ns = clock()
                if data != answer:
                    _expect(by_descriptor[descriptor], data)
                note(now_ns - sent_ns[descriptor])
                if now_ns < deadline_ns:
                    sent_ns[descriptor] = now_ns
                    send(next_request())
                else:
                    in_flight -= 1
    return latencies_ns


def _expect(lane: Lane, data: bytes) -> None:
    """The rare case that an answer arrives in pieces; anything else is an error."""
    while data and len(data) < len(lane.answer):
        more = lane.connection.recv(4096)
        if not more:
            break
        data += more
    if data != lane.answer:
        raise LoadError(f"expected the answer {lane.answer.hex()}, got {data.hex() or 'the end of the connection'}")


def lane(connection: socket.socket, requests: Sequence[bytes], check: Callable[[bytes], None]) -> Lane:
    """
    A lane whose requests have each been answered once, with the same answer.

    Args:
        check: raises when an answer is not the one wanted.

    Raises:
        LoadError: the answers differ among the requests, so none of them can be expected.
    """
    answers: set[bytes] = set()
    for request in requests:
        connection.sendall(request)
        answer = read_frame(connection)
        check(answer)
        answers.add(answer)
    if len(answers) != 1:
        raise LoadError(f"{len(requests)} requests of one kind have {len(answers)} different answers")
    return Lane(connection, tuple(requests), answers.pop())
