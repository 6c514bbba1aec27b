"""How far one shard has got: what is written, what is committed, and the snapshots at those offsets."""

from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import InvariantError


class Position:
    """
    Two offsets of a shard's log, `committed` <= `written`, each with a snapshot of the state at it.

    Snapshots lie at the ends of batches: at `committed`, at `written`, and between. What is reverted to is always the offset
    at which a batch was opened, so its snapshot is there as long as the batch is.

    Source: Kafka SnapshottableCoordinator.
    """

    __slots__ = ("committed", "registry", "written")

    def __init__(self, committed: int = 0, written: int = 0) -> None:
        self.registry = SnapshotRegistry()
        self.written = written
        """The offset after the last record that was replayed and appended."""
        self.committed = committed
        """The newest high watermark; what queries see."""

    def write_to(self, offset: int) -> None:
        """
        The log took what was replayed, and ends at `offset` now.

        Raises:
            InvariantError: `offset` is not beyond what is written.
        """
        if offset <= self.written:
            raise InvariantError(f"cannot have written up to {offset}: {self.written} is written already")
        self.written = offset
        self.registry.create(offset)

    def revert_to(self, offset: int) -> None:
        """
        Forget what was replayed since `offset` was written.

        Raises:
            InvariantError: nothing is written beyond `offset`, or it is no end of a batch.
        """
        if offset > self.written:
            raise InvariantError(f"cannot revert to {offset}: only {self.written} is written")
        try:
            self.registry.revert_to(offset)
        except KeyError as error:
            raise InvariantError(f"cannot revert to {offset}: {error.args[0]}") from error
        self.written = offset

    def commit_to(self, offset: int) -> None:
        """
        The high watermark is `offset` now; snapshots below are dropped.

        Raises:
            InvariantError: it would go back, or beyond what is written.
        """
        if not self.committed <= offset <= self.written:
            raise InvariantError(f"cannot commit {offset}: it is not within {self.committed} and {self.written}")
        self.committed = offset
        self.registry.delete_up_to(offset)

    def snapshot_at_most(self, offset: int) -> int:
        """The highest offset up to `offset` at which the state can be read."""
        if offset >= self.written:
            return self.written
        return max((epoch for epoch in self.registry.epochs if epoch <= offset), default=self.committed)
