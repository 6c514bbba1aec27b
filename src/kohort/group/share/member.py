"""
A member of a share group, as a value: a change makes a new one. The states of share groups.

Source: Kafka ShareGroupMember, ShareGroup.ShareGroupState; KIP-932.
"""

from enum import Enum
from typing import Final

import msgspec

from kohort.group.assignments import assignment_of
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.modern import NO_EPOCH
from kohort.records.values import ShareGroupCurrentMemberAssignment, ShareGroupMemberMetadata


class ShareGroupState(Enum):
    """
    EMPTY: there are no members.
    STABLE: there are members.
    """

    EMPTY = "Empty"
    STABLE = "Stable"


# Member epochs with a meaning of their own, in requests.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

STABLE: Final = 0
"""The only state of a member, as its record has it."""


class ShareMember(msgspec.Struct, frozen=True):
    """
    Implements `kohort.group.subscriptions.Subscriber`.

    Attributes:
        epoch: the group epoch that the member's assignment belongs to; 0 before its first heartbeat is answered.
        previous_epoch: the epoch before that; a member that lost the last answer still sends it.
        topic_names: the topics that it subscribes to.
        assigned: the partitions that it was told to read.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Assignment = NO_ASSIGNMENT

    @property
    def topic_pattern(self) -> str:
        """No pattern: a member of a share group names its topics."""
        return ""

    def with_metadata(self, record: ShareGroupMemberMetadata) -> "ShareMember":
        """The member as its metadata record describes it."""
        return msgspec.structs.replace(
            self,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=frozenset(record.subscribed_topic_names),
        )

    def with_current_assignment(self, record: ShareGroupCurrentMemberAssignment) -> "ShareMember":
        """The member as its record of epochs and partitions describes it."""
        return msgspec.structs.replace(
            self,
            epoch=record.member_epoch,
            previous_epoch=record.previous_member_epoch,
            assigned=assignment_of(record.assigned_partitions),
        )

    def without_assignment(self) -> "ShareMember":
        """The member after the tombstone of its record of epochs and partitions."""
        return msgspec.structs.replace(self, epoch=NO_EPOCH, previous_epoch=NO_EPOCH, assigned=NO_ASSIGNMENT)
