"""
The input of an assignor: the members of a group, their subscriptions, and their target assignment so far.

Source: Kafka GroupSpec, MemberSubscription, MemberAssignment (group-coordinator-api).
"""

from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""
The partitions of one member, ascending, by topic id. No tuple is empty. Never changed after it was made, so one object may be
the assignment of several epochs.
"""

GroupAssignment: TypeAlias = Mapping[str, Assignment]
"""The target assignment: an `Assignment` for each member id."""

NO_ASSIGNMENT: Final[Assignment] = {}


class MemberSpec:
    """
    One member. Immutable.

    Attributes:
        instance_id: of a static member; None for a dynamic one.
        rack_id: None if the member named no rack.
        topic_ids: the subscribed topics that exist. Members with equal subscriptions should share one object.
        assigned: the target assignment so far. It may name topics that are no longer subscribed, or no longer exist.
    """

    def __init__(
        self,
        topic_ids: frozenset[UUID],
        assigned: Assignment = NO_ASSIGNMENT,
        instance_id: str | None = None,
        rack_id: str | None = None,
    ) -> None:
        self.topic_ids: Final = topic_ids
        self.assigned: Final = assigned
        self.instance_id: Final = instance_id
        self.rack_id: Final = rack_id


class GroupSpec:
    """
    A group. Immutable.

    Attributes:
        members: by member id. A partition is assigned to at most one of them.
        is_homogeneous: every member is subscribed to the same topics. Kafka SubscriptionType.HOMOGENEOUS.
    """

    def __init__(self, members: Mapping[str, MemberSpec], is_homogeneous: bool) -> None:
        self.members: Final = members
        self.is_homogeneous: Final = is_homogeneous
        self._assigned: dict[UUID, set[int]] | None = None

    @property
    def topic_ids(self) -> frozenset[UUID]:
        """The topics that at least one member is subscribed to."""
        members = self.members.values()
        if self.is_homogeneous:
            return next(iter(members)).topic_ids if members else frozenset()
        # Subscriptions that differ as objects: linear in the number of members, and no id is hashed.
        distinct = {id(member.topic_ids): member.topic_ids for member in members}
        return frozenset().union(*distinct.values())

    def is_partition_assigned(self, topic_id: UUID, partition: int) -> bool:
        """Tell whether the partition is in the target assignment of a member so far. The first call costs a pass."""
        assigned = self._assigned
        if assigned is None:
            assigned = self._assigned = {}
            for member in self.members.values():
                for assigned_topic_id, partitions in member.assigned.items():
                    assigned.setdefault(assigned_topic_id, set()).update(partitions)
        return partition in assigned.get(topic_id, ())
