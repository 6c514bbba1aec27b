"""The part of a service that every group API needs."""

from typing import Any, Final

import msgspec

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.events import GroupEvents, no_events
from kohort.machine.front import Front
from kohort.machine.ports import LatestOffsets, Persister
from kohort.machine.shard import Runner
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage

_GROUP_OPERATIONS: Final = 3_400
"""All operations on a group (read, delete, describe, describe and alter configs), as a bit field by AclOperation code."""


class GroupFront(Front[HasContext]):
    """
    Args:
        image: the topics of the cluster; a live view.
        emit: receives the events of requests that are refused before the shard is asked.
        persister: the share coordinators; None on a host that has none, which serves no share groups.
        latest_offsets: the leaders of partitions, for the lag of share groups; without them it is unknown.
    """

    def __init__(
        self,
        runner: Runner[HasContext],
        config: GroupConfig,
        image: ClusterImage,
        emit: GroupEvents = no_events,
        persister: Persister | None = None,
        latest_offsets: LatestOffsets | None = None,
    ) -> None:
        super().__init__(runner, ErrorCode.INVALID_GROUP_ID)
        self.config = config
        self.image = image
        self.emit = emit
        self.persister = persister
        self.latest_offsets = latest_offsets


def with_operations(described: Any) -> Any:
    """A described group with the operations that the caller may do; one that could not be described has none."""
    if described.error_code:
        return described
    return msgspec.structs.replace(described, authorized_operations=_GROUP_OPERATIONS)
