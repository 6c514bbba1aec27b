"""
The assignors of Kafka, by name.

Kafka's setting `group.consumer.assignors` also takes class names; the names of Kafka's own classes mean the assignors here.
"""

from collections.abc import Mapping
from typing import Final

from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.uniform import UniformAssignor

BUILT_IN: Final[Mapping[str, SteppedAssignor]] = {"uniform": UniformAssignor(), "range": RangeAssignor()}

KAFKA_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
