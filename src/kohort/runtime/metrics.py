"""
Metrics of a runtime: plain numbers that an exporter reads.

Each partition counts under its own exclusivity, so counting needs no lock; `RuntimeMetrics` adds the partitions up when it is
made. Durations are whole milliseconds, as in Kafka. An operation without records that is answered in the same call is neither
timed nor counted.

Source: Kafka CoordinatorRuntimeMetrics, CoordinatorRuntimeMetricsImpl, HdrHistogram.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kohort.runtime.states import State

RANGE_MS: Final = 60_000
"""Longer durations are recorded as this one."""
LOAD_WINDOW_MS: Final = 30_000
"""The window of `load_time_max_ms` and `load_time_avg_ms`."""

IDLE_WINDOW_NS: Final = 1_000_000_000
"""The shortest time over which `IdleRatio` is taken, so that several readers get the same."""

_EXACT_BITS: Final = 11
_EXACT: Final = 1 << _EXACT_BITS
"""Below this value every millisecond has its own bucket; above, three digits are kept."""


def _index(value: int) -> int:
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT_BITS
    return (shift << (_EXACT_BITS - 1)) + (value >> shift)


def _upper(index: int) -> int:
    """The largest value in a bucket."""
    if index < _EXACT:
        return index
    shift = (index >> (_EXACT_BITS - 1)) - 1
    return ((index - (shift << (_EXACT_BITS - 1)) + 1) << shift) - 1


class Histogram:
    """Durations in milliseconds with three digits, at most `RANGE_MS`."""

    __slots__ = ("_longer", "_zeros", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._zeros = 0
        """Durations below a millisecond, which are the most."""
        self._longer: dict[int, int] = {}
        self.sum_ms = 0
        self.max_ms = 0

    @property
    def count(self) -> int:
        return self._zeros + sum(list(self._longer.values()))

    def record(self, duration_ms: int, count: int = 1) -> None:
        """Count a duration `count` times; a negative one counts as 0."""
        if duration_ms <= 0:
            self._zeros += count
            return
        value = min(duration_ms, RANGE_MS)
        index = _index(value)
        self._longer[index] = self._longer.get(index, 0) + count
        self.sum_ms += value * count
        self.max_ms = max(self.max_ms, value)

    def _buckets(self) -> list[tuple[int, int]]:
        """(largest duration, count) of each bucket, by rising duration."""
        return [
            (0, self._zeros),
            *((min(_upper(index), RANGE_MS), count) for index, count in sorted(self._longer.items())),
        ]

    def quantile_ms(self, fraction: float) -> int:
        """The smallest duration that is not below this fraction of all; 0 without any."""
        rank = fraction * self.count
        seen = 0
        for longest_ms, count in self._buckets():
            seen += count
            if seen and seen >= rank:
                return min(longest_ms, self.max_ms)
        return self.max_ms

    def count_up_to(self, bounds_ms: Sequence[int]) -> list[int]:
        """For each bound the number of durations up to it: the buckets of an exporter's histogram."""
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


class EventMetrics(NamedTuple):
    """Measurements of a processor that queues events: every event of one runtime."""

    queue_size: int
    queue_time: Histogram
    processing_time: Histogram


class IdleRatio:
    """
    The fraction of time that threads were idle, between two readings at least a second apart.

    Args:
        threads: the number of threads.
        busy_ns: returns the time that all threads together have been busy so far.
    """

    __slots__ = ("_busy_ns", "_busy_so_far_ns", "_now_ns", "_ratio", "_read_at_ns", "_threads")

    def __init__(self, threads: int, busy_ns: Callable[[], int], now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._threads = threads
        self._busy_ns = busy_ns
        self._now_ns = now_ns
        self._busy_so_far_ns = busy_ns()
        self._read_at_ns = now_ns()
        self._ratio = 1.0

    def read(self) -> float:
        """Return the ratio since the last reading, 0 to 1; the last ratio again if that was less than a second ago."""
        now_ns = self._now_ns()
        elapsed_ns = now_ns - self._read_at_ns
        if elapsed_ns >= IDLE_WINDOW_NS:
            busy_ns = self._busy_ns()
            ratio = 1.0 - (busy_ns - self._busy_so_far_ns) / (elapsed_ns * self._threads)
            self._ratio = min(max(ratio, 0.0), 1.0)
            self._read_at_ns, self._busy_so_far_ns = now_ns, busy_ns
        return self._ratio


class ShardMetrics:
    """
    Measurements of one partition.

    Attributes:
        event_queue_time: from the arrival of an event to its start, of events that had to wait.
        event_processing_time: of operations that returned records.
        event_purgatory_time: from the append to the high watermark or the timeout, of operations that did not fail.
        batch_linger_time: from the first record of a batch to its append.
        batch_flush_time: of the appends themselves.
        background_queue_time, background_processing_time: of background tasks whose operation has run.
        events_queued: the number of events that wait.
        events_processed_late: operations in `event_processing_time` that had to wait; the others waited for 0 ms.
        records_set_aside: records that loads could not decode, and skipped.
        transitions: how often the partition went from one state to another.
        loads: (end, duration) of loads in ms, oldest first.
    """

    __slots__ = (
        *HISTOGRAMS,
        "events_processed_late",
        "events_queued",
        "loads",
        "records_set_aside",
        "transitions",
    )

    def __init__(self) -> None:
        self.event_queue_time = Histogram()
        self.event_processing_time = Histogram()
        self.event_purgatory_time = Histogram()
        self.batch_linger_time = Histogram()
        self.batch_flush_time = Histogram()
        self.background_queue_time = Histogram()
        self.background_processing_time = Histogram()
        self.events_queued = 0
        self.events_processed_late = 0
        self.records_set_aside = 0
        self.transitions: dict[tuple[State, State], int] = {}
        self.loads: list[tuple[int, int]] = []

    def moved(self, old: State, new: State) -> None:
        self.transitions[old, new] = self.transitions.get((old, new), 0) + 1

    def loaded(self, *, started_ms: int, ended_ms: int, records_set_aside: int = 0) -> None:
        self.records_set_aside += records_set_aside
        self.loads.append((ended_ms, ended_ms - started_ms))
        while self.loads[0][0] < ended_ms - LOAD_WINDOW_MS:
            del self.loads[0]

    def all_event_queue_times(self) -> Histogram:
        """`event_queue_time` with the operations that did not wait, which nothing counts while they run."""
        total = _sum([self.event_queue_time])
        total.record(0, max(self.event_processing_time.count - self.events_processed_late, 0))
        return total


class RuntimeMetrics:
    """
    The sum over all partitions of a runtime, since the runtime was made.

    Attributes:
        partitions: the number of partitions that are loading, active or failed.
        event_queue_size: events that wait. Kafka: event-queue-size.
        thread_idle_ratio: the fraction of time that the processor's threads waited for events. Kafka: thread-idle-ratio-avg.
        records_set_aside: records that loads could not decode, and skipped.
        transitions: how often partitions went from one state to another.

    Args:
        events: measurements of the processor, if events are queued there; otherwise those of the shards count.
    """

    def __init__(
        self,
        shards: Iterable[ShardMetrics],
        states: Iterable[State],
        now_ms: int,
        *,
        events: EventMetrics | None = None,
        thread_idle_ratio: float = 1.0,
    ) -> None:
        shards = list(shards)
        self.thread_idle_ratio = thread_idle_ratio
        self.partitions = dict.fromkeys((State.LOADING, State.ACTIVE, State.FAILED), 0)
        for state in states:
            if state in self.partitions:
                self.partitions[state] += 1
        self.records_set_aside = sum(shard.records_set_aside for shard in shards)
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
        if events is None:
            self.event_queue_size = sum(shard.events_queued for shard in shards)
            self._histograms["event_queue_time"] = _sum(shard.all_event_queue_times() for shard in shards)
        else:
            self.event_queue_size = events.queue_size
            self._histograms["event_queue_time"] = _sum([events.queue_time])
            self._histograms["event_processing_time"] = _sum([events.processing_time])

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
