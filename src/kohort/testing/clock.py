"""A clock that is set by hand."""


class ManualClock:
    """A `kohort.runtime.ports.Clock` in milliseconds since the Unix epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """
        Raises:
            ValueError: `now_ms` is before the current time.
        """
        if now_ms < self._now_ms:
            raise ValueError(f"time does not go back: {now_ms} is before {self._now_ms}")
        self._now_ms = now_ms
