"""
The assignors of Kafka, by name.

Kafka's setting `group.consumer.assignors` also takes class names; the names of Kafka's own classes mean the assignors here.
"""

from collections.abc import Mapping
from typing import Final

from kohort.group.assignors.heterogeneous import HeterogeneousAssignment
from kohort.group.assignors.homogeneous import HomogeneousAssignment
from kohort.group.assignors.interface import AssignmentSteps, SteppedAssignor, TopicDescriber
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.specs import GroupSpec


class UniformAssignor:
    """
    Each member gets about the same number of partitions, and keeps as many as possible of those that it has.

    Racks make no difference, as in Kafka since 4.0. Source: Kafka UniformAssignor; KIP-848.
    """

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


BUILT_IN: Final[Mapping[str, SteppedAssignor]] = {"uniform": UniformAssignor(), "range": RangeAssignor()}

KAFKA_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
