"""State that the handlers of consumer groups share in one shard: groups, timers, topics, assignors."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.configs import ConsumerTimeouts
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.patterns.topic_names import TopicNames
from kohort.group.consumer.states import UNREVOKED_PARTITIONS
from kohort.group.consumer.topic_index import TopicIndex
from kohort.group.context import GroupContext
from kohort.group.conversion import ClassicGroups
from kohort.group.groups import CLASSIC
from kohort.group.metadata_hash import TopicHashes
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result

REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
"""Topics tell their groups when they change; nothing else refreshes the metadata of a group."""

_TIMERS: Final = ("session", "rebalance", "join", "sync")

ExpireMember: TypeAlias = Callable[["ConsumerRegistry", str, str, str, int | None, int], Result[GroupRecord, None]]
"""`expire(registry, group id, member id, kind of timeout, epoch, now in ms)`"""


class ConsumerRegistry:
    """
    Args:
        expire_member: the operation of a member's timers; handed in because it arms timers itself.

    Attributes:
        index: groups by topic.
        assigning: soft state. The groups whose target assignment is being computed or written in the background.
        topic_names: of the cluster, for regular expressions.
    """

    __slots__ = (
        "assigning",
        "assignors",
        "config",
        "context",
        "counters",
        "emit",
        "expire_member",
        "groups",
        "index",
        "new_member_id",
        "timers",
        "topic_hashes",
        "topic_names",
    )

    def __init__(self, context: GroupContext, expire_member: ExpireMember) -> None:
        self.context = context
        self.groups = context.groups
        self.timers = context.timers
        self.config = context.config
        self.new_member_id = context.new_member_id
        self.counters = context.counters
        self.emit = context.events
        self.assignors: list[SteppedAssignor] = list(context.assignors)
        self.expire_member = expire_member
        self.assigning: set[str] = set()
        self.topic_hashes = TopicHashes()
        self.index = TopicIndex(context.snapshots)
        self.topic_names = TopicNames()

    def new_group(self, group_id: str) -> ConsumerGroup:
        """A group that is not in the map of groups."""
        return ConsumerGroup(group_id, self.context.snapshots, self.index)

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The group, if there is one of this id and kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    @property
    def classic_groups(self) -> ClassicGroups:
        """The classic groups of the shard, for conversions."""
        groups: ClassicGroups = self.context.managers[CLASSIC]
        return groups

    def timeouts(self, group_id: str) -> ConsumerTimeouts:
        """The session timeout and the heartbeat interval of the group's members."""
        return self.context.group_configs.consumer_timeouts(group_id)

    # Topics

    def metadata_hash(self, topics: frozenset[str]) -> int:
        """See `kohort.group.metadata_hash`."""
        return self.topic_hashes.group_hash(topics, self.context.image)

    def topic_ids(self, topics: frozenset[str]) -> frozenset[UUID]:
        """The ids of these topics, as far as they exist."""
        image = self.context.image
        found = (image.topic(name) for name in topics)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    def partition_count(self, topic_id: UUID, /) -> int:
        """See `kohort.group.assignors.interface.TopicDescriber`."""
        topic = self.context.image.topic_by_id(topic_id)
        return -1 if topic is None else topic.partition_count

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        """See `kohort.group.assignors.interface.TopicDescriber`."""
        topic = self.context.image.topic_by_id(topic_id)
        return frozenset() if topic is None else frozenset(self.context.image.racks(topic_id, partition))

    # Timers. A key begins with the kind of timer; the length of the group id separates it from the member id.

    def arm_session(self, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        """Expire the member in `timeout_ms`; replaces an earlier deadline."""
        timer = group.timers.get(member_id)
        if timer is None:
            timer = group.timers[member_id] = (
                _key("session", group.group_id, member_id),
                _Expiry(self, group.group_id, member_id, "session", None),
            )
        self.timers.schedule(timer[0], timeout_ms, timer[1], retry=True)

    def arm_rebalance(self, group_id: str, member_id: str, epoch: int, timeout_ms: int) -> None:
        """Expire the member in `timeout_ms` unless it has left its present epoch until then."""
        key = _key("rebalance", group_id, member_id)
        self.timers.schedule(key, timeout_ms, _Expiry(self, group_id, member_id, "rebalance", epoch), retry=True)

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        self.timers.cancel(_key("rebalance", group_id, member_id))

    def arm_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Expire a member of the classic protocol unless it joins again in `timeout_ms`; an earlier deadline stays."""
        key = _key("join", group_id, member_id)
        self.timers.schedule_if_absent(key, timeout_ms, _Expiry(self, group_id, member_id, "join", None), retry=True)

    def cancel_join(self, group_id: str, member_id: str) -> None:
        self.timers.cancel(_key("join", group_id, member_id))

    def arm_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Expire a member of the classic protocol unless it asks for its assignment in `timeout_ms`."""
        key = _key("sync", group_id, member_id)
        self.timers.schedule(key, timeout_ms, _Expiry(self, group_id, member_id, "sync", None), retry=True)

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        self.timers.cancel(_key("sync", group_id, member_id))

    def arm_timers(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """
        Give a member a whole session timeout, and a whole rebalance timeout if it has to revoke partitions.

        After a load, the session timeout of the group holds for members of the classic protocol as well.
        """
        self.arm_session(group, member.member_id, self.timeouts(group.group_id).session_timeout_ms)
        if member.state == UNREVOKED_PARTITIONS:
            self.arm_rebalance(group.group_id, member.member_id, member.epoch, member.rebalance_timeout_ms)

    def cancel_timers(self, group: ConsumerGroup, member_id: str) -> bool:
        """Cancel every timer of a member that has gone, and return whether its session was running."""
        group.timers.pop(member_id, None)
        was_armed = self.timers.is_scheduled(_key("session", group.group_id, member_id))
        for kind in _TIMERS:
            self.timers.cancel(_key(kind, group.group_id, member_id))
        return was_armed


class _Expiry:
    """The operation of a member's timer. It looks the group up: the object may have been replaced meanwhile."""

    __slots__ = ("_epoch", "_group_id", "_kind", "_member_id", "_registry")

    def __init__(self, registry: ConsumerRegistry, group_id: str, member_id: str, kind: str, epoch: int | None) -> None:
        self._registry = registry
        self._group_id = group_id
        self._member_id = member_id
        self._kind = kind
        self._epoch = epoch

    def __call__(self, now_ms: int) -> Result[Any, None]:
        registry = self._registry
        return registry.expire_member(registry, self._group_id, self._member_id, self._kind, self._epoch, now_ms)


def _key(kind: str, group_id: str, member_id: str) -> str:
    return f"consumer {kind} {len(group_id)} {group_id} {member_id}"
