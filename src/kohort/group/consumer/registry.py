"""State that the handlers of consumer groups share in one shard: groups, topics, assignors."""

from uuid import UUID

from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.configs import MemberTimeouts
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.context import GroupContext, HasContext
from kohort.group.groups import CONSUMER, session_key
from kohort.group.modern import ModernRegistry
from kohort.machine.steps import Key
from kohort.model.image import ClusterImage


class TopicNames:
    """
    Attributes:
        created_version: the version of the last cluster image with new topics, or of the image with which the shard was loaded;
            -1 if neither is known. Deleted topics do not count, as in Kafka
            (GroupMetadataManager.lastMetadataImageWithNewTopics).
    """

    __slots__ = ("_names", "_version", "created_version")

    def __init__(self) -> None:
        self.created_version = -1
        self._version = -1
        self._names: tuple[str, ...] = ()

    def of(self, image: ClusterImage) -> tuple[int, tuple[str, ...]]:
        """The version of an image and its names. They are kept: after a change, all groups of a shard ask for them."""
        version = image.version
        if version != self._version:
            self._version = version
            self._names = tuple(topic.name for topic in image.topics())
        return version, self._names


class ConsumerRegistry(ModernRegistry):
    """
    Attributes:
        assigning: soft state. The groups whose target assignment is being computed or written in the background.
        topic_names: of the cluster, for regular expressions.
    """

    __slots__ = ("assigning", "assignors", "topic_names")

    def __init__(self, context: GroupContext) -> None:
        super().__init__(context)
        self.assignors: list[SteppedAssignor] = list(context.assignors)
        self.assigning: set[str] = set()
        self.topic_names = TopicNames()

    def new_group(self, group_id: str) -> ConsumerGroup:
        """A group that is not in the map of groups."""
        return ConsumerGroup(group_id, self.context.snapshots, self.index)

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The group, if there is one of this id and kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def timeouts(self, group_id: str) -> MemberTimeouts:
        """The session timeout and the heartbeat interval of the group's members."""
        return self.context.group_configs.consumer_timeouts(group_id)

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        """See `kohort.group.assignors.interface.TopicDescriber`."""
        topic = self.context.image.topic_by_id(topic_id)
        return frozenset() if topic is None else frozenset(self.context.image.racks(topic_id, partition))


def registry_of(shard: HasContext) -> ConsumerRegistry:
    """The registry of the shard that runs an operation."""
    manager: object = shard.context.managers[CONSUMER]
    assert isinstance(manager, ConsumerRegistry)
    return manager


# Keys of deadlines


def rebalance_key(group_id: str, member_id: str) -> Key:
    return ("rebalance", group_id, member_id)


def join_key(group_id: str, member_id: str) -> Key:
    return ("join", group_id, member_id)


def sync_key(group_id: str, member_id: str) -> Key:
    return ("sync", group_id, member_id)


def member_keys(group_id: str, member_id: str) -> tuple[Key, ...]:
    """All deadlines of a member."""
    return (
        session_key(group_id, member_id),
        rebalance_key(group_id, member_id),
        join_key(group_id, member_id),
        sync_key(group_id, member_id),
    )
