"""
The load: a closed loop over many connections, one request in flight on each. `open_loop` has the other kind.

Everything is prepared before it starts. While it runs, the loop moves bytes between epoll, `recv` and `send`, takes the time
once per answer and compares the answer with the one expected: no decoding, no allocation that lasts, no garbage collection.
What it can do at most is measured against a server that answers constants (`constant_server.py`).
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

from bench.load.client import ask_all

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
        varying: where answers may differ from it, in order, as base offsets do when records are produced.
    """

    connection: socket.socket
    requests: Sequence[bytes]
    answer: bytes
    varying: Sequence[range] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """
    One stretch of load.

    Attributes:
        p50_us, p99_us, p999_us: latency. In an open loop it counts from when the request was due, not from when it was sent.
        load_cpu: the load's own share of one processor. Near 1 it might be what is measured.
        late_us: how late the load itself was with a request that nothing held up, 99th percentile; 0 in a closed loop.
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
    """The rounds of a measure: medians, and the slowest and the fastest round."""

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
    """Without the garbage collector. Gives the load's share of one processor since the beginning."""
    gc.collect()
    gc.disable()
    cpu_before, begun = time.process_time(), time.perf_counter()
    try:
        yield lambda: (time.process_time() - cpu_before) / (time.perf_counter() - begun)
    finally:
        gc.enable()


def run(lanes: Sequence[Lane], seconds: float) -> Round:
    """
    Keep one request in flight on every lane for some seconds, then take the answers that are still due.

    Raises:
        LoadError: an answer differs, is missing, or the connection ended.
    """
    with undisturbed() as cpu_share:
        begun_ns = time.perf_counter_ns()
        latencies_ns = _drive(lanes, begun_ns + int(seconds * 1e9))
        elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
        load_cpu = cpu_share()
    return round_of(latencies_ns, elapsed, load_cpu)


def round_of(latencies_ns: list[int], seconds: float, load_cpu: float, *, requests: int = 0) -> Round:
    """
    Sorts the latencies.

    Args:
        requests: how many there were, if not one a latency.
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
    """The loop. Returns the latency of every request."""
    # Bound methods and plain local containers: whatever is looked up here is looked up 100 000 times a second.
    clock = time.perf_counter_ns
    epoll = select.epoll()
    sent_ns: dict[int, int] = {}
    steps: dict[int, tuple[Callable[[int], bytes], int, Callable[[bytes], int], Callable[[], bytes], bytes]] = {}
    for lane in lanes:
        descriptor = lane.connection.fileno()
        # Room for what is expected and no more: a large buffer costs time even when little arrives.
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
    What is not the answer to the last byte: one that arrives in pieces, or one that may vary; anything else is an error.

    Raises:
        LoadError: it is another answer, or the end of the connection.
    """
    data = _whole(lane.connection, data)
    if len(data) != len(lane.answer) or _fixed(data, lane.varying) != _fixed(lane.answer, lane.varying):
        told = data[:200].hex() or "the end of the connection"
        raise LoadError(f"expected the answer {lane.answer[:200].hex()}, got {told}")


def _fixed(answer: bytes, varying: Sequence[range]) -> list[bytes]:
    """What of an answer has to be as it was."""
    begins = [0, *(part.stop for part in varying)]
    ends = [*(part.start for part in varying), len(answer)]
    return [answer[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _whole(connection: socket.socket, data: bytes) -> bytes:
    """A frame to its end, or to that of the connection."""
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
    Lanes among which the requests are dealt out; each request has been answered once, and on one lane all in the same way.

    Args:
        check: raises when an answer is not the one wanted.

    Raises:
        LoadError: the answers differ among the requests of a lane, so none of them can be expected.
    """
    answers = ask_all(sockets, requests)
    for answer in answers:
        check(answer)
    lanes = []
    for index, connection in enumerate(sockets):
        own = answers[index :: len(sockets)]
        kinds = {b"".join(_fixed(answer, varying)) for answer in own}
        if len(kinds) != 1:
            raise LoadError(f"{len(own)} requests of one kind have {len(kinds)} different answers")
        lanes.append(Lane(connection, tuple(requests[index :: len(sockets)]), own[0], varying))
    return lanes
