"""The last written and last committed offsets of a shard, with a snapshot of its state at each."""

from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import InvariantError


class Position:
    """
    Two offsets of a shard's log: `last_committed_offset` <= `last_written_offset`.

    There is a snapshot at the base offset of each batch that is not committed, the open one included, taken at the beginning of
    the first operation of the batch. So queries at the last committed offset see no uncommitted change, and a batch that fails
    takes back its own operations, and none that ran before it. When everything is committed there are no snapshots, and queries
    see the newest state.

    Source: Kafka SnapshottableCoordinator.
    """

    __slots__ = ("last_committed_offset", "last_written_offset", "registry")

    def __init__(self, last_committed_offset: int = 0, last_written_offset: int = 0) -> None:
        self.registry = SnapshotRegistry()
        self.last_written_offset = last_written_offset
        """The offset after the last record that was replayed and appended."""
        self.last_committed_offset = last_committed_offset
        """The newest high watermark; queries read the state at this offset."""

    def open_batch(self) -> None:
        """Let the operation in progress begin a batch at the last written offset."""
        self.registry.create(self.last_written_offset)

    def update_last_written_offset(self, offset: int) -> None:
        """
        Take over `offset`, the new end of the log.

        Raises:
            InvariantError: `offset` is not above the last written offset.
        """
        if offset <= self.last_written_offset:
            raise InvariantError(f"new last written offset {offset} is not above {self.last_written_offset}")
        self.last_written_offset = offset

    def revert_last_written_offset(self, offset: int) -> None:
        """
        Restore the state before the batch at `offset`, and drop its snapshot.

        Raises:
            InvariantError: `offset` is above the last written offset, or there is no snapshot at it.
        """
        if offset > self.last_written_offset:
            raise InvariantError(f"cannot revert to {offset}: the last written offset is {self.last_written_offset}")
        try:
            self.registry.revert_to(offset)
            self.registry.delete(offset)
        except KeyError as error:
            raise InvariantError(f"cannot revert to {offset}: {error.args[0]}") from error
        self.last_written_offset = offset

    def update_last_committed_offset(self, offset: int) -> None:
        """
        Drop the snapshots below `offset`, the new high watermark.

        Raises:
            InvariantError: `offset` is below the last committed offset or above the last written one.
        """
        if not self.last_committed_offset <= offset <= self.last_written_offset:
            raise InvariantError(
                f"new last committed offset {offset} is not within "
                f"{self.last_committed_offset} and {self.last_written_offset}"
            )
        self.last_committed_offset = offset
        self.registry.delete_up_to(offset)

    def snapshot_at_most(self, offset: int) -> int:
        """Return the highest epoch of a snapshot that is not above `offset`."""
        if offset >= self.last_written_offset:
            return self.last_written_offset
        return max((epoch for epoch in self.registry.epochs if epoch <= offset), default=self.last_committed_offset)
