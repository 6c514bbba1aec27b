"""
Rates over sliding windows, and a token bucket: how much a client may do, and how long it has to wait.

Source: Kafka SampledStat, Rate, TokenBucket, QuotaUtils.
"""

import msgspec

from kohort.model.numbers import INT32_MAX


def whole_ms(duration_ms: float) -> int:
    """A duration as a number of 32 bits. An infinite or longer one is the largest; a negative one, and NaN, is 0."""
    return int(min(duration_ms, INT32_MAX) + 0.5) if duration_ms > 0 else 0


class Windows(msgspec.Struct, frozen=True):
    """
    Attributes:
        count: how many windows are looked at.
        ms: the length of a window, in milliseconds.
    """

    count: int = 11
    ms: int = 1_000


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class SampledRate:
    """A rate per second, measured over samples that are one window long each."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        """Begin a new sample. One more than the windows is kept, because the oldest one overlaps the time looked at."""
        self._current = (self._current + 1) % (self._windows.count + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def measure(self, now_ms: int) -> tuple[float, int]:
        """
        The rate per second, and the time in milliseconds over which it is measured: at least all windows but one.

        So a client that begins may use at once what it would have been allowed in the windows before.
        """
        windows = self._windows
        age_ms = windows.count * windows.ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= age_ms:
                sample.reset(now_ms)
        oldest_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = windows.count - 1 - elapsed_ms // windows.ms
        if missing > 0:
            elapsed_ms += missing * windows.ms
        elapsed_ms = max(elapsed_ms, 1)
        return sum(sample.value for sample in self._samples) * 1_000 / elapsed_ms, elapsed_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is within the limit, if nothing more is recorded; 0 if it is."""
        rate, elapsed_ms = self.measure(now_ms)
        return whole_ms((rate - limit) / limit * elapsed_ms) if rate > limit else 0


class TokenBucket:
    """Tokens that come at a rate per second, up to what comes in all windows."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._updated_ms = 0

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._windows.count * self._windows.ms / 1_000 * limit
        # An infinite limit times no time is NaN, and `min` returns the first of two if the second is NaN.
        self._tokens = min(burst, self._tokens + limit * max(now_ms - self._updated_ms, 0) / 1_000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._refill(limit, now_ms)
        self._tokens -= count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until no token is owed; 0 if none is."""
        tokens = self._refill(limit, now_ms)
        return whole_ms(-tokens / limit * 1_000) if tokens < 0 else 0
