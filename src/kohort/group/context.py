"""The parts of one shard that the groups of every kind share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.configs import GroupConfig, GroupConfigs
from kohort.group.groups import ClassicMembers, Group, GroupManager
from kohort.group.metrics import GroupCounters
from kohort.group.offsets.offsets import DeletedTopic, Offsets
from kohort.machine.shard import Deadlines, Executor
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineValue
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.image import ClusterImage
from kohort.security.authorization import Authorizer


def never_held(_group_id: str, /) -> bool:
    """No test holds a rebalance."""
    return False


@dataclass(slots=True, eq=False, kw_only=True)
class GroupContext:
    """
    Attributes:
        snapshots: of the shard; groups make their timelines with it.
        groups: by group id, as timeline: their past states can be read, down to the high watermark.
        prepared: groups with soft state that the operation in progress has made; the replay of its records puts them in place.
        deadlines: of results, for extensions.
        group_configs: of single groups.
        assignors: that members may choose; the first is the default.
        new_uuid: gives the text of a fresh random UUID, for ids of classic members.
        new_member_id: gives a fresh id of a member of another kind of group, in Kafka's form of random ids.
        image: the topics of the cluster; a live view.
        deleted_topics: whose offsets are to be deleted when the present deletion has ended; as `TopicDeletion.topics`.
        is_deleting_topics: whether offsets of deleted topics are being deleted.
        make_group: makes a group that only keeps offsets.
        counters: of the partition; they outlive the shard.
        managers: by kind.
        is_held: whether the rebalance of a group may not be completed yet, because a test of clients holds it.
        authorizer: decides which topics a regular expression finds for a member; None if it finds all.
    """

    snapshots: SnapshotRegistry
    groups: TimelineDict[str, Group]
    prepared: TimelineDict[str, Group]
    offsets: Offsets
    deadlines: Deadlines
    config: GroupConfig
    group_configs: GroupConfigs
    assignors: Sequence[SteppedAssignor]
    new_uuid: Callable[[], str]
    new_member_id: Callable[[], str]
    make_group: Callable[[str, SnapshotRegistry], Group]
    counters: GroupCounters
    image: ClusterImage
    deleted_topics: TimelineDict[str, DeletedTopic]
    is_deleting_topics: TimelineValue[bool]
    is_held: Callable[[str], bool]
    managers: dict[str, GroupManager] = field(default_factory=dict)
    executor: Executor | None = None
    authorizer: Authorizer | None = None

    def get(self, group_id: str) -> Group:
        """
        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def ensure_group(self, group_id: str) -> None:
        """Create a group that only keeps offsets, unless there is a group of that id."""
        groups = self.groups
        if group_id not in groups:
            groups.put(group_id, self.make_group(group_id, self.snapshots))

    def host_of(self, group: Group | None) -> ClassicMembers | None:
        """The handlers of members of the classic protocol in a group of another kind; None if there are none."""
        return None if group is None else self.managers[group.kind].classic_members


class HasContext:
    """A shard of groups, as handlers and services see it. A class: compiled code reads an attribute of a protocol by name."""

    __slots__ = ("context",)

    def __init__(self, context: GroupContext) -> None:
        self.context: Final = context
