"""The newest batches of one log, in memory: those that the database does not have yet, and the newest of those that it has."""

from bisect import bisect_left
from typing import Final

_GONE_MAX: Final = 64
"""Forgotten batches at the begin of the lists from which on these are made anew, if they are the half of all."""


class Tail:
    """
    The end of a log.

    Attributes:
        start: the offset from which on every batch is here.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self._last_offsets: list[int] = []
        self._batches: list[bytes] = []
        self._timestamps: list[int] = []
        self._gone = 0
        """The number of batches at the begin of the lists that are forgotten."""
        self._ahead = 0
        """Of these, those that `forget_before` has forgotten, and `forget` has not counted yet."""

    def copy(self) -> "Tail":
        """The same batches, for another thread; later changes of one do not reach the other."""
        copy = Tail(self.start)
        copy._last_offsets = self._last_offsets[self._gone :]
        copy._batches = self._batches[self._gone :]
        copy._timestamps = self._timestamps[self._gone :]
        return copy

    def append(self, batch: bytes, last_offset: int, max_timestamp_ms: int) -> None:
        self._last_offsets.append(last_offset)
        self._batches.append(batch)
        self._timestamps.append(max_timestamp_ms)

    def forget(self, count: int) -> None:
        """Forget the oldest batches, which the database has; those that were forgotten before the others count."""
        counted = min(count, self._ahead)
        self._ahead -= counted
        if count > counted:
            self._forget(count - counted)

    def forget_before(self, offset: int) -> None:
        """Forget the batches that end before an offset: the database has other ones now."""
        count = bisect_left(self._last_offsets, offset, self._gone) - self._gone
        if count:
            self._ahead += count
            self._forget(count)

    def _forget(self, count: int) -> None:
        end = self._gone + count
        self.start = self._last_offsets[end - 1] + 1
        for index in range(self._gone, end):
            self._batches[index] = b""
        self._gone = end
        if end >= _GONE_MAX and end * 2 >= len(self._batches):
            del self._last_offsets[:end], self._batches[:end], self._timestamps[:end]
            self._gone = 0

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes:
        """As `Log.read`, of the batches that are here."""
        first = end = bisect_left(self._last_offsets, offset, self._gone)
        limit = bisect_left(self._last_offsets, up_to, first)
        size = 0
        while end < limit:
            size += len(self._batches[end])
            if size > bytes_max and end > first:
                break
            end += 1
        return self._batches[first] if end == first + 1 else b"".join(self._batches[first:end])

    def next_at_least(self, offset: int, timestamp_ms: int) -> tuple[int, bytes] | None:
        """The first batch that ends at this offset or later and has at least this timestamp, after its last offset."""
        for index in range(bisect_left(self._last_offsets, offset, self._gone), len(self._batches)):
            if self._timestamps[index] >= timestamp_ms:
                return self._last_offsets[index], self._batches[index]
        return None

    def newest(self, offset: int) -> tuple[int, int] | None:
        """The largest timestamp of the batches that end at this offset or later; the last offset of the first that has it."""
        first = bisect_left(self._last_offsets, offset, self._gone)
        if first == len(self._timestamps):
            return None
        newest_ms = max(self._timestamps[first:])
        return newest_ms, self._last_offsets[self._timestamps.index(newest_ms, first)]
