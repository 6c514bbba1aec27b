"""A clock that stands still until it is moved."""


class ManualClock:
    """`kohort.runtime.ports.Clock`; milliseconds since the epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """
        Raises:
            ValueError: time would go back.
        """
        if now_ms < self._now_ms:
            raise ValueError(f"time does not go back: {now_ms} is before {self._now_ms}")
        self._now_ms = now_ms
