"""
The uniform assignor: each member gets about the same number of partitions, and keeps as many as possible of those that it has.

Racks make no difference, as in Kafka since 4.0.

Source: Kafka UniformAssignor; KIP-848.
"""

from kohort.group.assignors.heterogeneous import HeterogeneousAssignment
from kohort.group.assignors.homogeneous import HomogeneousAssignment
from kohort.group.assignors.interface import AssignmentSteps, TopicDescriber
from kohort.group.assignors.specs import GroupSpec


class UniformAssignor:
    """Assigns all topics together, by the number of partitions of each member."""

    @property
    def name(self) -> str:
        return "uniform"

    def assign_in_steps(self, group: GroupSpec, topics: TopicDescriber, /) -> AssignmentSteps:
        """
        Compute the target assignment in slices; `SteppedAssignor.assign_in_steps`.

        Raises:
            AssignorError: a subscribed topic does not exist.
        """
        if group.is_homogeneous:
            return (yield from HomogeneousAssignment(group, topics).run())
        return (yield from HeterogeneousAssignment(group, topics).run())
