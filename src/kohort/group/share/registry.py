"""State that the handlers of share groups share in one shard."""

from typing import Final

from kohort.group.configs import MemberTimeouts
from kohort.group.context import GroupContext, HasContext
from kohort.group.groups import SHARE, group_of_kind
from kohort.group.modern import ModernRegistry
from kohort.group.share.group import ShareGroup
from kohort.group.share.states import ShareStates
from kohort.group.subscriptions import TopicIndex


class ShareRegistry(ModernRegistry):
    """
    Attributes:
        with_states: by the hexadecimal id of a topic, the ids of the groups that have states of its partitions.
    """

    __slots__ = ("with_states",)

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self.with_states: Final = TopicIndex(context.snapshots)

    def new_group(self, group_id: str) -> ShareGroup:
        """A group that is not in the map of groups."""
        return ShareGroup(group_id, self.context.snapshots, self.index)

    def find(self, group_id: str) -> ShareGroup | None:
        """The group, if there is one of this id and kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def get(self, group_id: str) -> ShareGroup:
        """
        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        return group_of_kind(self.groups.get(group_id), group_id, SHARE, ShareGroup)

    def timeouts(self, group_id: str) -> MemberTimeouts:
        """The session timeout and the heartbeat interval of the group's members."""
        return self.context.group_configs.share_timeouts(group_id)

    def note_states(self, group: ShareGroup, states: ShareStates | None) -> None:
        """Replay the states of a group, and keep the groups of each topic."""
        before, after = group.known_states.topic_ids, frozenset() if states is None else states.topic_ids
        for topic_id in after - before:
            self.with_states.add(topic_id.hex, group.group_id)
        for topic_id in before - after:
            self.with_states.remove(topic_id.hex, group.group_id)
        group.states.set(states)


def registry_of(shard: HasContext) -> ShareRegistry:
    """The registry of the shard that runs an operation."""
    manager: object = shard.context.managers[SHARE]
    assert isinstance(manager, ShareRegistry)
    return manager
