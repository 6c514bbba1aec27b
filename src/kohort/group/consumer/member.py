"""
A member of a consumer group, as a value: a change makes a new one. The states of groups and of members.

Source: Kafka ConsumerGroupMember, ConsumerGroup.ConsumerGroupState, MemberState; KIP-848.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final
from uuid import UUID

import msgspec

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.assignment_epochs import Epochs, carried, epoch_of, read_held
from kohort.group.modern import NO_EPOCH
from kohort.model.ids import java_bucket
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataClassicMemberMetadata,
    ConsumerGroupMemberMetadataClassicProtocol,
)


class ConsumerGroupState(Enum):
    """
    EMPTY: there are no members.
    ASSIGNING: the group epoch is above the epoch of the target assignment.
    RECONCILING: a member is not at its target assignment.
    STABLE: every member is at its target assignment.
    DEAD: shown for a group that does not exist.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


# The state of a member, as its record has it.
STABLE: Final = 0
"""The member is at the epoch of its assignment."""
UNREVOKED_PARTITIONS: Final = 1
"""The member has to revoke partitions before it goes on to its target."""
UNRELEASED_PARTITIONS: Final = 2
"""The member waits for partitions that other members have not released."""
UNKNOWN: Final = 127
"""The log has a state of a newer version: the member has to give up its partitions first."""

KNOWN_STATES: Final = frozenset((STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS))

# Member epochs with a meaning of their own, in requests.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member is away for a while; its partitions stay its own until its session ends."""


NO_TIMEOUT_MS: Final = -1


class ConsumerMember(msgspec.Struct, frozen=True, gc=False):
    """
    Attributes:
        epoch: the group epoch that the member's assignment belongs to; 0 before its first heartbeat is answered, -2 while a
            static member is away.
        previous_epoch: the epoch before that; a member that lost the last answer still sends it.
        topic_names: the topics that it subscribes to by name.
        topic_pattern: the regular expression of its other topics; "" for none.
        server_assignor: the assignor that it prefers; None without preference.
        state: one of `kohort.group.consumer.member`.
        assigned: the partitions that it owns or was told to own.
        pending_revocation: the partitions that it was told to revoke.
        assigned_epochs: the assignment epochs of `assigned`.
        pending_epochs: those of `pending_revocation`.
        classic: the session timeout and the protocols of a member that uses the classic protocol; None for all others.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT_MS
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_pattern: str = ""
    server_assignor: str | None = None
    state: int = STABLE
    assigned: Assignment = NO_ASSIGNMENT
    pending_revocation: Assignment = NO_ASSIGNMENT
    assigned_epochs: Epochs = 0
    pending_epochs: Epochs = 0
    classic: ConsumerGroupMemberMetadataClassicMemberMetadata | None = None

    @property
    def is_away(self) -> bool:
        """Whether this static member has left for a while."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member owns the target assignment of this epoch, and nothing else."""
        return self.state == STABLE and self.epoch == epoch

    def with_metadata(self, record: ConsumerGroupMemberMetadata) -> "ConsumerMember":
        """The member as its metadata record describes it."""
        return msgspec.structs.replace(
            self,
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            client_id=record.client_id,
            client_host=record.client_host,
            topic_names=frozenset(record.subscribed_topic_names),
            topic_pattern=record.subscribed_topic_regex or "",
            server_assignor=record.server_assignor,
            classic=record.classic_member_metadata,
        )

    def with_current_assignment(self, record: ConsumerGroupCurrentMemberAssignment) -> "ConsumerMember":
        """The member as its record of epochs and partitions describes it."""
        assigned, assigned_epochs = read_held(record.assigned_partitions, record.member_epoch)
        pending, pending_epochs = read_held(record.partitions_pending_revocation, record.member_epoch)
        return msgspec.structs.replace(
            self,
            epoch=record.member_epoch,
            previous_epoch=record.previous_member_epoch,
            state=record.state if record.state in KNOWN_STATES else UNKNOWN,
            assigned=assigned,
            pending_revocation=pending,
            assigned_epochs=assigned_epochs,
            pending_epochs=pending_epochs,
        )

    def without_assignment(self) -> "ConsumerMember":
        """The member after the tombstone of its record of epochs and partitions."""
        return msgspec.structs.replace(
            self,
            epoch=NO_EPOCH,
            previous_epoch=NO_EPOCH,
            assigned=NO_ASSIGNMENT,
            pending_revocation=NO_ASSIGNMENT,
            assigned_epochs=0,
            pending_epochs=0,
        )

    def away(self) -> "ConsumerMember":
        """This static member after it left for a while. Its successor takes over the partitions with their epochs: 0."""
        return msgspec.structs.replace(
            self, epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_ASSIGNMENT, assigned_epochs=0, pending_epochs=0
        )

    def holds_since(self, topic_id: UUID, partition: int) -> int | None:
        """The assignment epoch of a partition that it owns or has to revoke; None for any other partition."""
        since = epoch_of((self.assigned, self.assigned_epochs), topic_id, partition)
        if since is None:
            since = epoch_of((self.pending_revocation, self.pending_epochs), topic_id, partition)
        return since

    def under_new_id(self, member_id: str) -> "ConsumerMember":
        """This static member, taken over by a client with another member id: it starts at epoch 0."""
        return msgspec.structs.replace(self, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def at_epoch(
        self,
        epoch: int,
        state: int,
        assigned: Assignment,
        pending_revocation: Assignment = NO_ASSIGNMENT,
        *,
        target_epoch: int = 0,
    ) -> "ConsumerMember":
        """
        The next step of the reconciliation.

        Args:
            target_epoch: the epoch of the target that gives it the partitions that it did not own.
        """
        own = self.assigned, self.assigned_epochs
        pending = self.pending_revocation, self.pending_epochs
        return msgspec.structs.replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
            assigned_epochs=self.assigned_epochs
            if assigned is self.assigned
            else carried(assigned, (own,), target_epoch),
            pending_epochs=carried(pending_revocation, (pending, own), 0),
        )


def preferred_assignor(members: Iterable[ConsumerMember]) -> str | None:
    """The assignor that most members prefer; None if no member prefers one. A tie goes by the order of a Java HashMap."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
    return min(votes, key=lambda name: (-votes[name], java_bucket(name))) if votes else None


def classic_metadata(
    session_timeout_ms: int, protocols: Iterable[tuple[str, bytes]]
) -> ConsumerGroupMemberMetadataClassicMemberMetadata:
    """The part of a member's record that only members of the classic protocol have."""
    return ConsumerGroupMemberMetadataClassicMemberMetadata(
        session_timeout_ms,
        tuple(ConsumerGroupMemberMetadataClassicProtocol(name, bytes(metadata)) for name, metadata in protocols),
    )
