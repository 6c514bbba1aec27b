"""
The newest bytes of segments, in memory.

An append puts its bytes here; the disk thread writes them later. They are read from here until then, and for a while
afterwards: readers at the end of a log wait for no disk. `Tails` bounds what is kept of written bytes.
"""

from bisect import bisect_right
from typing import Final, TypeAlias

from kohort.model.limits import UNWRITTEN_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview

PIECE_COST: Final = 100
"""The memory that a piece takes beside its bytes."""


class Tail:
    """
    The end of one segment.

    Only the owner's thread changes it. Any thread may take a copy by `frozen` and read it meanwhile: the lists only grow, or
    are replaced together.

    Attributes:
        start: the position in the segment from which on the bytes are here.
        end: the position behind the last byte.
        written_end: the position up to which the bytes are in the file.
        is_forgotten: whether the segment was closed.
    """

    def __init__(self, position: int) -> None:
        self.start = self.end = self.written_end = position
        self.is_forgotten = False
        self._lists: tuple[list[int], list[Buffer]] = ([], [])
        """The positions of the pieces, and the pieces."""

    def append(self, data: Buffer, rest: Buffer) -> int:
        """Add bytes, which must not change any more; returns their cost in memory."""
        positions, pieces = self._lists
        size, end = len(data), self.end
        pieces.append(data)
        positions.append(end)
        self.end = end + size
        if not rest:
            return size + PIECE_COST
        pieces.append(rest)
        positions.append(self.end)
        self.end += len(rest)
        return self.end - end + 2 * PIECE_COST

    def read(self, size: int, position: int) -> bytes:
        """Read bytes at a position from `start` on; fewer if they end before."""
        positions, pieces = self._lists
        if position >= self.end or size <= 0:
            return b""
        size = min(size, self.end - position)
        at = bisect_right(positions, position) - 1
        found = memoryview(pieces[at])[position - positions[at] :][:size]
        if len(found) == size:
            return bytes(found)
        parts = [found]
        size -= len(found)
        while size > 0:
            at += 1
            part = memoryview(pieces[at])[:size]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def forget_written(self, wanted: int) -> int:
        """Forget the oldest written pieces, of so much memory if there are as many; returns the memory that they took."""
        positions, _ = self._lists
        count, freed = 0, 0
        while count < len(positions) and freed < wanted:
            end = positions[count + 1] if count + 1 < len(positions) else self.end
            if end > self.written_end:
                break
            freed += end - positions[count] + PIECE_COST
            count += 1
        self._keep_from(count)
        return freed

    def forget(self) -> None:
        """Forget all pieces."""
        self.is_forgotten = True
        self._keep_from(len(self._lists[0]))

    def _keep_from(self, count: int) -> None:
        positions, pieces = self._lists
        self._lists = positions[count:], pieces[count:]
        self.start = positions[count] if count < len(positions) else self.end

    def frozen(self) -> "Tail":
        """A copy that does not change."""
        copy, lists = Tail(self.end), self._lists
        if lists[0]:
            copy.start = lists[0][0]
        copy._lists = lists
        return copy


class Tails:
    """
    The memory that all tails of a store take.

    Args:
        written_max: the bound on the memory of written bytes; above it the tails that were written to longest ago shrink first.

    Attributes:
        unwritten_max: the bound on the memory of bytes that are not written yet; appends are refused above it.
        unwritten: the memory of bytes that are not written yet.
        written: the memory of the others.
    """

    def __init__(self, written_max: int) -> None:
        self.unwritten_max = UNWRITTEN_BYTES_MAX
        self.unwritten = 0
        self.written = 0
        self._written_max = written_max
        self._by_age: dict[Tail, int] = {}
        """The memory of the written bytes of each tail."""

    def on_end(self, tail: Tail, end: int, cost: int, *, is_written: bool) -> None:
        """
        Note that a write has ended.

        Args:
            end: the position behind its bytes.
            cost: what the appends of the write cost.
            is_written: False if the write failed, or was left out after another one failed; the log is offline then.
        """
        self.unwritten -= cost
        if not is_written or tail.is_forgotten:
            return
        tail.written_end = end
        self._by_age[tail] = self._by_age.pop(tail, 0) + cost
        self.written += cost
        if self.written > self._written_max:
            self._shrink()

    def _shrink(self) -> None:
        """Forget an eighth more than necessary, so that this is not done at each append."""
        wanted = self.written - self._written_max + self._written_max // 8
        for tail in list(self._by_age):
            freed = tail.forget_written(wanted)
            self.written -= freed
            wanted -= freed
            if freed < self._by_age[tail]:
                self._by_age[tail] -= freed
            else:
                del self._by_age[tail]
            if wanted <= 0:
                return

    def forget(self, tail: Tail) -> None:
        """Forget the bytes of a segment that was closed; unwritten ones are held by their write alone."""
        self.written -= self._by_age.pop(tail, 0)
        tail.forget()
