"""
Closed-loop load: many connections with one request in flight on each.

Requests are encoded in advance. The loop moves bytes between epoll, `recv` and `send`, reads the clock once a response, and
compares the response with the expected bytes. It decodes nothing, and garbage collection is off. Its own limit is measured
against a server that returns a constant (`constant_server.py`).
"""

import gc
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Final

from bench.load.client import send_all

STALLED_SECONDS: Final = 30.0
"""Time without a response after which a measure fails."""


class LoadError(Exception):
    """The server returned an unexpected response, or none."""


@dataclass(frozen=True, slots=True)
class Lane:
    """
    One connection and its requests, which are sent in a cycle.

    Attributes:
        answer: the expected response frame of every request.
        varying: byte ranges in which responses may differ, in order; base offsets of produced records, for example.
    """

    connection: socket.socket
    requests: Sequence[bytes]
    answer: bytes
    varying: Sequence[range] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """
    One round of load.

    Attributes:
        p50_us, p99_us, p999_us: latency. In an open loop it is measured from the time at which the request was due.
        load_cpu: processor share of the load generator. Near 1, the generator may be the limit.
        late_us: 99th percentile of the delay that the generator itself caused; 0 in a closed loop.
    """

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    load_cpu: float
    late_us: float = 0.0

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians of the rounds of a measure, with the slowest and the fastest round."""

    per_second: float
    per_second_min: float
    per_second_max: float
    p50_us: float
    p99_us: float
    p999_us: float
    load_cpu: float
    late_us: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> "Summary":
        rates = [one.per_second for one in rounds]
        return cls(
            per_second=median(rates),
            per_second_min=min(rates),
            per_second_max=max(rates),
            p50_us=median(one.p50_us for one in rounds),
            p99_us=median(one.p99_us for one in rounds),
            p999_us=median(one.p999_us for one in rounds),
            load_cpu=median(one.load_cpu for one in rounds),
            late_us=median(one.late_us for one in rounds),
        )


@contextmanager
def undisturbed() -> Iterator[Callable[[], float]]:
    """Disable garbage collection. Yields a function that returns the processor share of this process so far."""
    gc.collect()
    gc.disable()
    cpu_before, begun = time.process_time(), time.perf_counter()
    try:
        yield lambda: (time.process_time() - cpu_before) / (time.perf_counter() - begun)
    finally:
        gc.enable()


def run(lanes: Sequence[Lane], seconds: float) -> Round:
    """
    Keep one request in flight on every lane for `seconds`, then wait for the outstanding responses.

    Raises:
        LoadError: a response differs or is missing, or a connection was closed.
    """
    with undisturbed() as cpu_share:
        begun_ns = time.perf_counter_ns()
        latencies_ns = _drive(lanes, begun_ns + int(seconds * 1e9))
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        load_cpu = cpu_share()
    return round_of(latencies_ns, elapsed, load_cpu)


def round_of(latencies_ns: list[int], seconds: float, load_cpu: float, *, requests: int = 0) -> Round:
    """
    Make a round from latencies, which are sorted in place.

    Args:
        requests: the number of requests, if it differs from the number of latencies.
    """
    latencies_ns.sort()
    return Round(
        requests=requests or len(latencies_ns),
        seconds=seconds,
        p50_us=_quantile_us(latencies_ns, 0.50),
        p99_us=_quantile_us(latencies_ns, 0.99),
        p999_us=_quantile_us(latencies_ns, 0.999),
        load_cpu=load_cpu,
    )


def _quantile_us(ordered_ns: list[int], share: float) -> float:
    return ordered_ns[min(int(len(ordered_ns) * share), len(ordered_ns) - 1)] / 1000


def _drive(lanes: Sequence[Lane], deadline_ns: int) -> list[int]:
    """Run the loop and return the latency of every request."""
    # Bound methods and local containers: each lookup here happens 100,000 times a second.
    clock = time.perf_counter_ns
    epoll = select.epoll()
    sent_ns: dict[int, int] = {}
    steps: dict[int, tuple[Callable[[int], bytes], int, Callable[[bytes], int], Callable[[], bytes], bytes]] = {}
    for lane in lanes:
        descriptor = lane.connection.fileno()
        # A buffer of the expected size: a larger one costs time even if little arrives.
        room = min(max(len(lane.answer), 4096), 1 << 20)
        next_request = cycle(lane.requests).__next__
        steps[descriptor] = (lane.connection.recv, room, lane.connection.send, next_request, lane.answer)
        epoll.register(descriptor, select.EPOLLIN)
    by_descriptor = {lane.connection.fileno(): lane for lane in lanes}
    latencies_ns: list[int] = []
    note = latencies_ns.append
    poll = epoll.poll
    in_flight = len(lanes)
    with epoll:
        for descriptor, (_, _, send, next_request, _) in steps.items():
            sent_ns[descriptor] = clock()
            send(next_request())
        while in_flight:
            events = poll(STALLED_SECONDS)
            if not events:
                raise LoadError(f"no answer for {STALLED_SECONDS:g} seconds, {in_flight} requests are open")
            for descriptor, _ in events:
                receive, room, send, next_request, answer = steps[descriptor]
                data = receive(room)
                now_ns = clock()
                if data != answer:
                    expect(by_descriptor[descriptor], data)
                note(now_ns - sent_ns[descriptor])
                if now_ns < deadline_ns:
                    sent_ns[descriptor] = now_ns
                    send(next_request())
                else:
                    in_flight -= 1
    return latencies_ns


def expect(lane: Lane, data: bytes) -> None:
    """
    Check a response that does not equal the expected bytes. It may be incomplete, or differ in the varying ranges.

    Raises:
        LoadError: the response is different, or the connection was closed.
    """
    data = _whole(lane.connection, data)
    if len(data) != len(lane.answer) or _fixed(data, lane.varying) != _fixed(lane.answer, lane.varying):
        found = data[:200].hex() or "the end of the connection"
        raise LoadError(f"expected the response {lane.answer[:200].hex()}, got {found}")


def _fixed(answer: bytes, varying: Sequence[range]) -> list[bytes]:
    """Return the parts of a response outside the varying ranges."""
    begins = [0, *(part.stop for part in varying)]
    ends = [*(part.start for part in varying), len(answer)]
    return [answer[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _whole(connection: socket.socket, data: bytes) -> bytes:
    """Read the rest of a frame, or until the connection is closed."""
    pieces, have = [data], len(data)
    while data and (have < 4 or have < 4 + int.from_bytes(pieces[0][:4], "big")):
        data = connection.recv(1 << 20)
        have += len(data)
        pieces = [pieces[0] + data, *pieces[1:]] if len(pieces[0]) < 4 else [*pieces, data]
    return b"".join(pieces)


def lanes_of(
    sockets: Sequence[socket.socket],
    requests: Sequence[bytes],
    check: Callable[[bytes], None],
    varying: Sequence[range] = (),
) -> list[Lane]:
    """
    Distribute requests over lanes. Each request is sent once, to learn the expected response of the lane.

    Args:
        check: raises an error if a response is not as wanted.

    Raises:
        LoadError: the requests of one lane have different responses.
    """
    answers = send_all(sockets, requests)
    for answer in answers:
        check(answer)
    lanes = []
    for index, connection in enumerate(sockets):
        own = answers[index :: len(sockets)]
        kinds = {b"".join(_fixed(answer, varying)) for answer in own}
        if len(kinds) != 1:
            raise LoadError(f"{len(own)} requests of one kind have {len(kinds)} different responses")
        lanes.append(Lane(connection, tuple(requests[index :: len(sockets)]), own[0], varying))
    return lanes
