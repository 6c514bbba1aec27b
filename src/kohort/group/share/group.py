"""
A share group: members, target assignment, and the share partitions whose state is kept for it.

Source: Kafka ShareGroup, ModernGroup.
"""

from typing import Final, NoReturn

from kohort.group.groups import SHARE, BaseTimestamp, PartitionCheck
from kohort.group.modern import NO_EPOCH, ModernGroup
from kohort.group.records import GroupRecord
from kohort.group.share.member import ShareGroupState, ShareMember
from kohort.group.share.states import NO_STATES, ShareStates
from kohort.group.subscriptions import SubscriptionView, TopicIndex
from kohort.machine.timeline import SnapshotRegistry, TimelineValue
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.values import (
    ShareGroupCurrentMemberAssignmentTombstone,
    ShareGroupMemberMetadataTombstone,
    ShareGroupMetadataTombstone,
    ShareGroupStatePartitionMetadataTombstone,
    ShareGroupTargetAssignmentMemberTombstone,
    ShareGroupTargetAssignmentMetadataTombstone,
)

ASSIGNOR: Final = "simple"


def _state_name(*, has_members: bool) -> str:
    return ShareGroupState.STABLE.value if has_members else ShareGroupState.EMPTY.value


class ShareGroup(ModernGroup[ShareMember]):
    """
    Attributes:
        states: of the group's share partitions. None if the log has no record of them.
        initializing_since_ms: soft state. When the record of the states was written that has the initializing ones.
        settled: soft state. The states, epoch and version of the image at which a heartbeat found nothing to initialize and
            nothing to assign; the first are compared as objects.
    """

    __slots__ = ("initializing_since_ms", "settled", "states")

    def __init__(self, group_id: str, registry: SnapshotRegistry, index: TopicIndex) -> None:
        super().__init__(group_id, registry, index)
        self.states: TimelineValue[ShareStates | None] = TimelineValue(registry, None)
        self.initializing_since_ms = 0
        self.settled: tuple[ShareStates | None, int, int] | None = None

    # As `kohort.group.groups.Group` describes it

    @property
    def kind(self) -> str:
        return SHARE

    @property
    def state_name(self) -> str:
        return _state_name(has_members=bool(self.members))

    def state_name_at(self, committed_offset: int) -> str:
        return _state_name(has_members=bool(self.members.keys_at(committed_offset)))

    @property
    def listed_protocol_type(self) -> str:
        return SHARE

    def view_after(self, updated: ShareMember) -> SubscriptionView:
        """The subscriptions with `updated` in place of itself."""
        old = self.members.get(updated.member_id)
        return SubscriptionView(self.subscriptions, () if old is None else (old,), updated)

    # Offsets are not committed, but acknowledged. Source: ShareGroup.validateOffsetCommit and its like.

    def validate_offset_commit(
        self,
        _member_id: str,
        _group_instance_id: str | None,
        _generation_or_epoch: int,
        _api_version: int,
        /,
        *,
        is_transactional: bool,  # noqa: ARG002
    ) -> PartitionCheck | None:
        self._refuse()

    def validate_offset_fetch(self, _member_id: str | None, _epoch: int, _committed_offset: int | None, /) -> None:
        self._refuse()

    def validate_offset_delete(self) -> None:
        self._refuse()

    def validate_delete(self) -> None:
        """
        Refuse while there are members, or states that are not deleted yet: a request began to make some after the deletion of
        the others. Clients try again.
        """
        super().validate_delete()
        states = self.known_states
        if states.initializing or states.initialized:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def offset_expiration_base(self) -> BaseTimestamp | None:
        """None: a share group has no offsets of this kind, and does not expire."""
        return None

    def _refuse(self) -> NoReturn:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def tombstones(self) -> list[GroupRecord]:
        group_id = self.group_id
        return [
            *(ShareGroupCurrentMemberAssignmentTombstone(group_id, member_id) for member_id in self.members),
            *(ShareGroupTargetAssignmentMemberTombstone(group_id, member_id) for member_id in self.members),
            ShareGroupTargetAssignmentMetadataTombstone(group_id),
            *(ShareGroupMemberMetadataTombstone(group_id, member_id) for member_id in self.members),
            ShareGroupStatePartitionMetadataTombstone(group_id),
            ShareGroupMetadataTombstone(group_id),
        ]

    @property
    def known_states(self) -> ShareStates:
        return self.states.get() or NO_STATES

    # Replay

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace the one of this id."""
        self.subscriptions.replace(self.members.get(member.member_id), member)
        self.members.put(member.member_id, member)

    def remove(self, member_id: str) -> None:
        member = self.members.remove(member_id)
        if member is not None:
            self.subscriptions.replace(member, None)

    def clear_assignment(self) -> None:
        self.set_assignment(NO_EPOCH, 0)
