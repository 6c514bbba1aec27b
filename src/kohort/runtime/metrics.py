"""
What a runtime counts and measures, as plain numbers that an exporter reads.

Each partition counts for itself, under its own exclusivity, so that counting needs no lock; `RuntimeMetrics` adds them up
when somebody looks. Durations are whole milliseconds, as Kafka's are. An operation that is answered on the spot is neither
timed nor counted: nothing waited, and it is over within the millisecond.

Source: Kafka CoordinatorRuntimeMetrics, CoordinatorRuntimeMetricsImpl, HdrHistogram.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kohort.runtime.states import State

RANGE_MS: Final = 60_000
"""Longer durations count as this long."""
LOAD_WINDOW_MS: Final = 30_000
"""How long a load is remembered by `load_time_max_ms` and `load_time_avg_ms`."""

_EXACT_BITS: Final = 11
_EXACT: Final = 1 << _EXACT_BITS
"""Up to here every millisecond has a bucket of its own; beyond, three digits are kept."""


def _index(value: int) -> int:
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT_BITS
    return (shift << (_EXACT_BITS - 1)) + (value >> shift)


def _upper(index: int) -> int:
    """The largest value that the bucket counts."""
    if index < _EXACT:
        return index
    shift = (index >> (_EXACT_BITS - 1)) - 1
    return ((index - (shift << (_EXACT_BITS - 1)) + 1) << shift) - 1


class Histogram:
    """Durations in milliseconds, kept to three digits; what is longer than `RANGE_MS` counts as that."""

    __slots__ = ("_longer", "_zeros", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._zeros = 0
        """Most durations are below a millisecond: counting those must cost next to nothing."""
        self._longer: dict[int, int] = {}
        self.sum_ms = 0
        self.max_ms = 0

    @property
    def count(self) -> int:
        return self._zeros + sum(list(self._longer.values()))

    def record(self, duration_ms: int, count: int = 1) -> None:
        """Count a duration; a negative one is none."""
        if duration_ms <= 0:
            self._zeros += count
            return
        value = min(duration_ms, RANGE_MS)
        index = _index(value)
        self._longer[index] = self._longer.get(index, 0) + count
        self.sum_ms += value * count
        self.max_ms = max(self.max_ms, value)

    def _buckets(self) -> list[tuple[int, int]]:
        """The largest duration of each bucket, rising, and how many there are."""
        return [
            (0, self._zeros),
            *((min(_upper(index), RANGE_MS), count) for index, count in sorted(self._longer.items())),
        ]

    def quantile_ms(self, fraction: float) -> int:
        """The smallest duration that this fraction of all did not exceed; 0 when there were none."""
        rank = fraction * self.count
        seen = 0
        for longest_ms, count in self._buckets():
            seen += count
            if seen and seen >= rank:
                return min(longest_ms, self.max_ms)
        return self.max_ms

    def count_up_to(self, bounds_ms: Sequence[int]) -> list[int]:
        """For each bound, how many durations did not exceed it: the buckets of an exporter's histogram."""
        buckets = self._buckets()
        return [sum(count for longest_ms, count in buckets if longest_ms <= bound_ms) for bound_ms in bounds_ms]

    def add(self, other: "Histogram") -> None:
        self._zeros += other._zeros
        for index, count in list(other._longer.items()):
            self._longer[index] = self._longer.get(index, 0) + count
        self.sum_ms += other.sum_ms
        self.max_ms = max(self.max_ms, other.max_ms)


HISTOGRAMS: Final = (
    "event_queue_time",
    "event_processing_time",
    "event_purgatory_time",
    "batch_linger_time",
    "batch_flush_time",
    "background_queue_time",
    "background_processing_time",
)


class ShardMetrics:
    """
    What one partition measures.

    Attributes:
        event_queue_time: from an operation's arrival to its turn, where it had to wait for one.
        event_processing_time: of operations that wrote records.
        event_purgatory_time: from the append to the high watermark or the timeout; failed operations are not in it.
        batch_linger_time: from the first record of a batch to its append.
        batch_flush_time: of the appends themselves.
        background_queue_time, background_processing_time: of tasks beside the shard whose operation has run.
        transitions: how often the partition went from one state to another.
        loads: when a load ended, and how long it took, both in ms, oldest first.
    """

    __slots__ = (*HISTOGRAMS, "events_queued", "loads", "transitions")

    def __init__(self) -> None:
        self.event_queue_time = Histogram()
        self.event_processing_time = Histogram()
        self.event_purgatory_time = Histogram()
        self.batch_linger_time = Histogram()
        self.batch_flush_time = Histogram()
        self.background_queue_time = Histogram()
        self.background_processing_time = Histogram()
        self.events_queued = 0
        self.transitions: dict[tuple[State, State], int] = {}
        self.loads: list[tuple[int, int]] = []

    def moved(self, old: State, new: State) -> None:
        self.transitions[old, new] = self.transitions.get((old, new), 0) + 1

    def loaded(self, *, started_ms: int, ended_ms: int) -> None:
        self.loads.append((ended_ms, ended_ms - started_ms))
        while self.loads[0][0] < ended_ms - LOAD_WINDOW_MS:
            del self.loads[0]


class RuntimeMetrics:
    """
    The sum over all partitions of a runtime, now and since it was made.

    Attributes:
        partitions: how many are loading, active or failed; other states are not counted.
        event_queue_size: operations that wait for their turn.
    """

    def __init__(self, shards: Iterable[ShardMetrics], states: Iterable[State], now_ms: int) -> None:
        shards = list(shards)
        self.partitions = dict.fromkeys((State.LOADING, State.ACTIVE, State.FAILED), 0)
        for state in states:
            if state in self.partitions:
                self.partitions[state] += 1
        self.event_queue_size = sum(shard.events_queued for shard in shards)
        self.transitions: dict[tuple[State, State], int] = {}
        for shard in shards:
            for arrow, count in list(shard.transitions.items()):
                self.transitions[arrow] = self.transitions.get(arrow, 0) + count
        self._loads_ms = [
            took_ms
            for shard in shards
            for ended_ms, took_ms in list(shard.loads)
            if ended_ms >= now_ms - LOAD_WINDOW_MS
        ]
        self._histograms = {name: _sum(getattr(shard, name) for shard in shards) for name in HISTOGRAMS}

    def __getitem__(self, name: str) -> Histogram:
        """One of `HISTOGRAMS`."""
        return self._histograms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._histograms)

    @property
    def load_time_max_ms(self) -> int:
        return max(self._loads_ms, default=0)

    @property
    def load_time_avg_ms(self) -> float:
        return sum(self._loads_ms) / len(self._loads_ms) if self._loads_ms else 0.0


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for histogram in histograms:
        total.add(histogram)
    return total
