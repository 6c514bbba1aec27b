"""
What an assignor implements. An assignor needs not inherit from these classes.

Source: Kafka PartitionAssignor, SubscribedTopicDescriber (group-coordinator-api), KIP-848.
"""

from collections.abc import Generator
from typing import Protocol, TypeAlias
from uuid import UUID

from kohort.group.assignors.specs import GroupAssignment, GroupSpec

AssignmentSteps: TypeAlias = Generator[None, None, GroupAssignment]
"""An assignment in slices: the generator yields about every millisecond of work, and returns the target assignment."""


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


def run_to_end(steps: AssignmentSteps) -> GroupAssignment:
    """
    Run all steps at once.

    Raises:
        AssignorError: there is no assignment.
    """
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assignment: GroupAssignment = stop.value
            return assignment
