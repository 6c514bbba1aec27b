"""
What an assignor implements. An assignor needs not inherit from these classes.

Source: Kafka PartitionAssignor, SubscribedTopicDescriber (group-coordinator-api), KIP-848.
"""

from collections.abc import Generator
from typing import Protocol, TypeAlias
from uuid import UUID

from kohort.group.assignors.specs import GroupAssignment, GroupSpec
from kohort.model.errors import KohortError

AssignmentSteps: TypeAlias = Generator[None, None, GroupAssignment]
"""An assignment in slices: the generator yields about every millisecond of work, and returns the target assignment."""


class AssignorError(KohortError):
    """
    An assignor cannot compute a target assignment. The group keeps its epochs, and the member gets UNKNOWN_SERVER_ERROR.

    Source: Kafka PartitionAssignorException.
    """


class TopicDescriber(Protocol):
    """The topics of the cluster, as of the metadata of the group."""

    def partition_count(self, topic_id: UUID, /) -> int:
        """The number of partitions; -1 if the topic does not exist."""

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        """The racks with a replica of the partition; empty if it does not exist, or if its brokers have no rack."""


class PartitionAssignor(Protocol):
    """Computes target assignments, without state, in any thread. It may have `assign_in_steps` instead of `assign`."""

    @property
    def name(self) -> str:
        """The name in `group.consumer.assignors`, and the one that members choose (`group.remote.assignor`)."""

    def assign(self, group: GroupSpec, topics: TopicDescriber, /) -> GroupAssignment:
        """
        Compute the target assignment.

        Returns:
            An assignment for each member. The member's `assigned` object itself, if its assignment stays the same.

        Raises:
            AssignorError: there is none.
        """


class SteppedAssignor(Protocol):
    """An assignor whose work is done in slices, because the group may be so large that one call would delay other requests."""

    @property
    def name(self) -> str:
        """As `PartitionAssignor.name`."""

    def assign_in_steps(self, group: GroupSpec, topics: TopicDescriber, /) -> AssignmentSteps:
        """
        Compute the target assignment in slices; the result is that of `PartitionAssignor.assign`.

        Raises:
            AssignorError: while the generator runs.
        """


def assignment_cost(group: GroupSpec, topics: TopicDescriber) -> int:
    """
    Estimate the work of the built-in assignors in units: members, subscriptions and partitions.

    The estimate takes less than a tenth of the work.
    """
    members = group.members
    partitions = sum(max(0, topics.partition_count(topic_id)) for topic_id in group.topic_ids)
    if group.is_homogeneous:
        return len(members) + partitions
    subscriptions = sum(len(member.topic_ids) for member in members.values())
    return len(members) + partitions + subscriptions
