"""
What groups have in common whose members are assigned by the coordinator: epochs, targets, subscriptions, topics that change.

Source: Kafka ModernGroup, GroupMetadataManager.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from kohort.group.assignors.specs import Assignment
from kohort.group.context import GroupContext
from kohort.group.groups import session_key
from kohort.group.metadata_hash import TopicHashes
from kohort.group.subscriptions import Subscriptions, TopicIndex
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineValue
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.model.image import ImageDelta

M = TypeVar("M")
"""The members of a group, as values."""
G = TypeVar("G")

NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 1
"""Group epoch and assignment epoch of a new group."""
REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
"""Topics tell their groups when they change; nothing else refreshes the metadata of a group."""


class ModernGroup(Generic[M]):
    """
    Hard state in timelines, changed by replay alone, except for the fields that say so.

    Args:
        index: of the shard; the group keeps its own topics in it.

    Attributes:
        members: by member id.
        epoch: the group epoch; it rises when the target assignment has to be computed anew.
        assignment_epoch: the group epoch of the target assignment; -1 after its tombstone.
        assigned_at_ms: the time when the target assignment was computed; 0 if the next one need not wait.
        metadata_hash: of the subscribed topics when the group epoch was written.
        targets: the target assignment, by member id.
        refresh_at_ms, refresh_epoch: soft state. From this time on, or while the group epoch is below that epoch, a heartbeat
            computes the metadata hash anew.
    """

    __slots__ = (
        "assigned_at_ms",
        "assignment_epoch",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "refresh_at_ms",
        "refresh_epoch",
        "subscriptions",
        "targets",
    )

    def __init__(self, group_id: str, registry: SnapshotRegistry, index: TopicIndex) -> None:
        self.group_id = group_id
        self.members: TimelineDict[str, M] = TimelineDict(registry)
        self.epoch: TimelineValue[int] = TimelineValue(registry, FIRST_EPOCH)
        self.assignment_epoch: TimelineValue[int] = TimelineValue(registry, FIRST_EPOCH)
        self.assigned_at_ms: TimelineValue[int] = TimelineValue(registry, 0)
        self.metadata_hash: TimelineValue[int] = TimelineValue(registry, 0)
        self.targets: TimelineDict[str, Assignment] = TimelineDict(registry)
        self.subscriptions = Subscriptions(
            registry, lambda topic: index.add(topic, group_id), lambda topic: index.remove(topic, group_id)
        )
        self.refresh_at_ms = 0
        self.refresh_epoch = 0

    # As `kohort.group.groups.Group` describes it

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_simple(self) -> bool:
        return False

    @property
    def member_count(self) -> int:
        return len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def validate_delete(self) -> None:
        if self.members:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def subscribed_topics(self) -> frozenset[str]:
        """Every topic that a member is subscribed to, by name or by a resolved pattern."""
        return frozenset((*self.subscriptions.names, *self.subscriptions.matches))

    def known(self, member_id: str, committed_offset: int | None = None) -> M:
        """
        The member of this id, as of an offset of the log or the newest.

        Raises:
            CoordinatorError: UNKNOWN_MEMBER_ID.
        """
        members = self.members
        member = members.get(member_id) if committed_offset is None else members.get_at(member_id, committed_offset)
        if member is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    # Soft state

    def request_refresh(self) -> None:
        """Have the next heartbeat look at the metadata of the subscribed topics."""
        self.refresh_at_ms = 0
        self.refresh_epoch = 0

    def needs_refresh(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_at_ms or self.epoch.get() < self.refresh_epoch

    # Replay

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch.set(epoch)
        self.metadata_hash.set(metadata_hash)

    def set_assignment(self, epoch: int, computed_at_ms: int) -> None:
        self.assignment_epoch.set(epoch)
        self.assigned_at_ms.set(computed_at_ms)


class ModernRegistry:
    """
    State that the handlers of one kind of groups share in one shard.

    Attributes:
        index: groups of this kind by topic.
    """

    __slots__ = ("config", "context", "groups", "index", "topic_hashes")

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.groups = context.groups
        self.config = context.config
        self.topic_hashes = TopicHashes()
        self.index = TopicIndex(context.snapshots)

    def renew_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Give a member that has a session a whole timeout."""
        self.context.deadlines.extend(session_key(group_id, member_id), timeout_ms)

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

    def next_assignment_ms(self, kind: str, group: ModernGroup[Any]) -> int:
        """The time from which on a target may be computed."""
        assigned_at_ms = group.assigned_at_ms.get()
        if not assigned_at_ms:
            return 0
        interval_ms = self.context.group_configs.assignment_interval_ms(kind, group.group_id)
        return assigned_at_ms + interval_ms if interval_ms else 0

    def may_assign(self, kind: str, group: ModernGroup[Any], now_ms: int) -> bool:
        """Whether a target may be computed now."""
        return now_ms >= self.next_assignment_ms(kind, group) and not self.context.is_held(group.group_id)

    def request_refreshes(self, delta: ImageDelta) -> None:
        """Have the groups of topics that changed look at their metadata."""
        self.topic_hashes.forget(delta.deleted)
        for topic in (*delta.created, *delta.changed, *delta.deleted):
            for group_id in self.index.groups(topic.name):
                group: Any = self.groups.get(group_id)
                if isinstance(group, ModernGroup):
                    group.request_refresh()

    def ensure(self, group_id: str, group_class: type[G], new_group: Callable[[str], G]) -> G:
        """
        The group; a new one if there is none, or one that only keeps offsets.

        Raises:
            InvariantError: a group of another kind that has records of its own has this id.
        """
        found: Any = self.groups.get(group_id)
        if isinstance(found, group_class):
            return found
        if found is not None and not found.is_simple:
            raise InvariantError(f"the log has records of a second kind for the {found.kind} group {group_id}")
        group: Any = new_group(group_id)
        self.groups.put(group_id, group)
        return group  # type: ignore[no-any-return]


Change: TypeAlias = Callable[[Any, Any], object]
"""`change(group, record)`: the effect of a record on its group."""


def replayers(
    changes: Mapping[type, Change],
    removals: Mapping[type, Change],
    ensure: Callable[[str], Any],
    find: Callable[[str], Any],
) -> dict[type, Callable[[Any], None]]:
    """
    The methods that apply records and tombstones.

    Compaction may leave any of a group's records, in another order than they were written: each creates the group, and the
    member that it belongs to. A tombstone of something that is not there has no effect.

    Args:
        ensure: gives the group of an id, and makes it if it is not there; `find` gives None.
    """
    return {
        **{record: partial(_replay, ensure, change) for record, change in changes.items()},
        **{tombstone: partial(_replay_tombstone, find, change) for tombstone, change in removals.items()},
    }


def _replay(ensure: Callable[[str], Any], change: Change, record: Any) -> None:
    change(ensure(record.group_id), record)


def _replay_tombstone(find: Callable[[str], Any], change: Change, tombstone: Any) -> None:
    group = find(tombstone.group_id)
    if group is not None:
        change(group, tombstone)
