"""
Open-loop load from C: heartbeats of hundreds of connections at a rate, or as many as the server answers.

The loop in Python (`open_loop.py`) takes as much processor time for a request as the server does. Where both share two
processors with a long work, its own turns would be a part of every latency. What is left of that is measured: how late a
request was sent whose lane was free.
"""

import ctypes
import subprocess
import tempfile
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from bench.load.closed_loop import Lane, LoadError

_SOURCE: Final = Path(__file__).with_suffix(".c")
_STEP_NS: Final = 10_000
_COUNTS: Final = 1_000_000
"""Ten seconds; what is longer counts as that."""


class _Lane(ctypes.Structure):
    _fields_ = (
        ("fd", ctypes.c_int),
        ("request_bytes", ctypes.c_int),
        ("answer_bytes", ctypes.c_int),
        ("request", ctypes.c_char_p),
        ("answer", ctypes.c_char_p),
        ("in_flight", ctypes.c_int),
        ("received", ctypes.c_int),
        ("behind", ctypes.c_int64),
        ("due_ns", ctypes.c_int64),
    )


class _Counts(ctypes.Structure):
    _fields_ = (
        ("step_ns", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("latencies", ctypes.c_void_p),
        ("late", ctypes.c_void_p),
    )


class Beats(NamedTuple):
    """
    Attributes:
        latencies: how many answers came after so many steps of `_STEP_NS` from when their request was due.
        late: how many requests were sent so many steps after they were due, although their lane was free.
    """

    answers: int
    latencies: Sequence[int]
    late: Sequence[int]

    def latency_ms(self, percent: float) -> float:
        return _percentile_ms(self.latencies, percent)

    def late_ms(self, percent: float) -> float:
        return _percentile_ms(self.late, percent)


def _percentile_ms(counts: Sequence[int], percent: float) -> float:
    left = sum(counts) * percent / 100
    for step, count in enumerate(counts):
        left -= count
        if left <= 0 and count:
            return (step + 1) * _STEP_NS / 1e6
    return 0.0


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        library = f"{directory}/beat.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, _SOURCE], check=True)
        return ctypes.CDLL(library)


def beat(lanes: Sequence[Lane], rate: int, *, seconds: float = 0.0, stop_fd: int = -1) -> Beats:
    """
    Send the first request of each lane again and again.

    Args:
        rate: requests per second over all lanes; 0 keeps one in flight on each.
        seconds: how long; 0 for no limit.
        stop_fd: ends the load when it has input or its end.

    Raises:
        LoadError: a response differs or is missing, or a connection was closed.
    """
    given = (_Lane * len(lanes))(
        *(
            _Lane(
                one.connection.fileno(), len(one.requests[0]), len(one.answer), one.requests[0], one.answer, 0, 0, 0, 0
            )
            for one in lanes
        )
    )
    latencies, late = (array("I", bytes(4 * _COUNTS)) for _ in range(2))
    counts = _Counts(_STEP_NS, _COUNTS, latencies.buffer_info()[0], late.buffer_info()[0])
    drive = _library().beat
    drive.restype = ctypes.c_int64
    answers = drive(
        given,
        ctypes.c_int64(len(lanes)),
        ctypes.c_double(rate),
        ctypes.c_double(seconds),
        ctypes.c_int(stop_fd),
        ctypes.byref(counts),
    )
    if answers < 0:
        raise LoadError("a response differs or is missing, or a connection was closed")
    return Beats(answers, latencies, late)
