"""
Leader epochs and their start offsets, from which replicas and clients find the offset where two logs diverge.

Source: Kafka LeaderEpochFileCache, LeaderEpochCheckpointFile.
"""

from bisect import bisect_left, bisect_right

from kohort.model.errors import CorruptError
from kohort.storage.log import NO_EPOCH, NO_OFFSET, OFFSET_MAX

CHECKPOINT_NAME = "leader-epoch-checkpoint"
_VERSION = "0"
EPOCH_MAX = (1 << 31) - 1


class EpochCache:
    """Leader epochs and their start offsets, both rising."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.is_dirty = False
        """Whether the entries changed since they were last written to disk; the writer clears it."""

    def copy(self) -> "EpochCache":
        copy = EpochCache()
        copy._epochs, copy._starts = self._epochs.copy(), self._starts.copy()
        return copy

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Begin `leader_epoch` at `start_offset`; an epoch that is not newer than the latest is ignored."""
        if leader_epoch <= self.latest:
            return
        self.truncate_from_end(start_offset)
        self._epochs.append(leader_epoch)
        self._starts.append(start_offset)
        self.is_dirty = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that began at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before `start_offset`; the earliest one left begins there or later."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone < 0 or (gone == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:gone], self._starts[:gone]
        self._starts[0] = start_offset
        self.is_dirty = True

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `leader_epoch`, and its end offset; (-1, -1) if that is not known."""
        if leader_epoch == NO_EPOCH or leader_epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if leader_epoch == self.latest:
            return leader_epoch, log_end_offset
        higher = bisect_right(self._epochs, leader_epoch)
        if higher == 0:
            return leader_epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of `offset`; -1 if it lies before all epochs."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_EPOCH

    def epoch_and_end(self, offset: int) -> tuple[int, int]:
        """The epoch of `offset`, and the start of the next epoch (`OFFSET_MAX` for none); -1 if the offset lies before all."""
        index = bisect_right(self._starts, offset)
        end = self._starts[index] if index < len(self._starts) else OFFSET_MAX
        return (self._epochs[index - 1] if index else NO_EPOCH), end

    def lower_start(self, leader_epoch: int, start_offset: int) -> None:
        """Let a known epoch begin at an earlier offset, but behind the start of the epoch before it."""
        index = bisect_left(self._epochs, leader_epoch)
        if index < len(self._epochs) and self._epochs[index] == leader_epoch and start_offset < self._starts[index]:
            start_offset = max(start_offset, self._starts[index - 1] + 1) if index else start_offset
            self._starts[index] = min(start_offset, self._starts[index])
            self.is_dirty = True

    def to_text(self) -> str:
        """The content of `leader-epoch-checkpoint`, as Kafka writes it."""
        lines = [_VERSION, str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "EpochCache":
        """
        Raises:
            CorruptError: the text is not a leader epoch checkpoint.
        """
        cache = cls()
        lines = text.splitlines()
        try:
            version, count, entries = lines[0], int(lines[1]), [line.split() for line in lines[2:] if line]
            if version != _VERSION or count != len(entries):
                raise CorruptError(
                    f"a leader epoch checkpoint of version {version} with {len(entries)} of {count} entries"
                )
            for epoch, start in entries:
                if not 0 <= int(epoch) <= EPOCH_MAX or not 0 <= int(start) <= OFFSET_MAX:
                    raise CorruptError(f"a leader epoch checkpoint with epoch {epoch} from offset {start} on")
                cache.assign(int(epoch), int(start))
        except (ValueError, IndexError) as exc:
            raise CorruptError("a leader epoch checkpoint that cannot be read") from exc
        cache.is_dirty = False
        return cache
