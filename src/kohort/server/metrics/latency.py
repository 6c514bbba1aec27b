"""
Durations of requests, counted in buckets of powers of two.

The first requests of each version of an API are timed, and then every eighth, which counts for eight: reading the clock for
each would cost a heartbeat some 4 % of its time. Source: Kafka RequestMetrics, TotalTimeMs, which is a sample, too.
"""

from collections.abc import Iterable
from typing import Final

TIMED_AT_FIRST: Final = 64
TIMED_EVERY: Final = 8
TICKS: Final = 1 << 20
"""Ticks in a second: the first bucket has the durations below a microsecond or so."""
BUCKETS: Final = 53
"""One for each number of bits of a duration in ticks; a duration is an exact float up to 2^53 ticks."""
LAST: Final = BUCKETS - 1
FIRST_SHOWN: Final = 6
LAST_SHOWN: Final = 26
"""The buckets that `bounded` lists: 2^-14 s (61 µs) to 64 s; the others are in their neighbours."""


class LatencyHistogram:
    """
    Attributes:
        counts: how many durations need so many bits, in ticks.
        seconds: their sum.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.seconds = 0.0

    def record(self, seconds: float, count: int = 1) -> None:
        """Count a duration, which is not negative, `count` times."""
        bits = int(seconds * TICKS).bit_length()
        self.counts[min(LAST, bits)] += count
        self.seconds += seconds * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, other: "LatencyHistogram") -> None:
        for bits, count in enumerate(other.counts):
            self.counts[bits] += count
        self.seconds += other.seconds

    def bounded(self) -> list[tuple[float, int]]:
        """Upper bounds in seconds, rising, each with the number of durations below it; the last bound is infinite."""
        below = 0
        found = []
        for bits, count in enumerate(self.counts):
            below += count
            if FIRST_SHOWN <= bits <= LAST_SHOWN:
                found.append((_upper(bits), below))
        return [*found, (float("inf"), below)]

    def quantiles(self, fractions: Iterable[float]) -> list[float]:
        """For each fraction the duration in seconds that so many do not exceed, interpolated in its bucket; 0 without any."""
        return [self._quantile(fraction * self.count) for fraction in fractions]

    def _quantile(self, rank: float) -> float:
        below = 0
        for bits, count in enumerate(self.counts):
            if count and below + count >= rank:
                lower = _upper(bits - 1) if bits else 0.0
                return lower + (_upper(bits) - lower) * max(rank - below, 0.0) / count
            below += count
        return 0.0


def _upper(bits: int) -> float:
    return float(2**bits / TICKS)
