"""The part of a service that every API of transactions needs: the partition of an id, and whether the node coordinates any."""

from typing import Final

from kohort.machine.shard import Runner
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.transaction.context import HasContext

_NONE: Final = ErrorCode.NONE


class TransactionFront:
    """
    Attributes:
        is_active: whether this node coordinates transactions. Before the start and after the end every request is refused.
    """

    def __init__(self, runner: Runner[HasContext]) -> None:
        self.runner = runner
        self.is_active = True

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds the id."""
        return coordinator_partition(transactional_id, self.runner.partition_count)

    def refusal(self, transactional_id: str) -> ErrorCode:
        """The code with which a request is refused before the shard is asked; NONE if it is not refused."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _NONE if transactional_id else ErrorCode.INVALID_REQUEST
