"""The part of a service that every group API needs: the partition of a group, and whether this node coordinates groups."""

from typing import Final

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.events import GroupEvents, no_events
from kohort.machine.shard import Runner
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage

NO_OPERATIONS: Final = -2_147_483_648
GROUP_OPERATIONS: Final = 3_400
"""All operations on a group (read, delete, describe, describe and alter configs), as a bit field by AclOperation code."""


class GroupFront:
    """
    Args:
        image: the topics of the cluster; a live view.
        emit: receives the events of requests that are refused before the shard is asked.

    Attributes:
        is_active: whether this node coordinates groups. Before the start and after the end every request is refused.
    """

    def __init__(
        self, runner: Runner[HasContext], config: GroupConfig, image: ClusterImage, emit: GroupEvents = no_events
    ) -> None:
        self.runner = runner
        self.config = config
        self.image = image
        self.emit = emit
        self.is_active = True

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        return coordinator_partition(group_id, self.runner.partition_count)

    def refusal(self, group_id: str) -> ErrorCode:
        """The code with which a request is refused before the shard is asked; NONE if it is not refused."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID
