"""The part of a service that every API of a coordinator needs: the partition of a key, and whether the node coordinates any."""

from typing import Final, Generic, TypeVar

from kohort.machine.shard import Runner
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition

S = TypeVar("S")

_NONE: Final = ErrorCode.NONE


class Front(Generic[S]):
    """
    Args:
        empty_key: the code that refuses a request without a key.

    Attributes:
        is_active: whether this node is a coordinator. Before the start and after the end every request is refused.
    """

    def __init__(self, runner: Runner[S], empty_key: ErrorCode) -> None:
        self.runner = runner
        self.is_active = True
        self._empty_key = empty_key

    def partition_for(self, key: str) -> int:
        """The partition of the internal topic that holds the key: a group id, a transactional id."""
        return coordinator_partition(key, self.runner.partition_count)

    def refusal(self, key: str) -> ErrorCode:
        """The code with which a request is refused before the shard is asked; NONE if it is not refused."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _NONE if key else self._empty_key
