"""The part of a service that every group API needs."""

from typing import Final

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.events import GroupEvents, no_events
from kohort.machine.front import Front
from kohort.machine.shard import Runner
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage

NO_OPERATIONS: Final = -2_147_483_648
GROUP_OPERATIONS: Final = 3_400
"""All operations on a group (read, delete, describe, describe and alter configs), as a bit field by AclOperation code."""


class GroupFront(Front[HasContext]):
    """
    Args:
        image: the topics of the cluster; a live view.
        emit: receives the events of requests that are refused before the shard is asked.
    """

    def __init__(
        self, runner: Runner[HasContext], config: GroupConfig, image: ClusterImage, emit: GroupEvents = no_events
    ) -> None:
        super().__init__(runner, ErrorCode.INVALID_GROUP_ID)
        self.config = config
        self.image = image
        self.emit = emit
