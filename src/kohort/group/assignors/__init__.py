"""
Server-side assignors: functions from the members of a group and their topics to a target assignment (KIP-848).

`interface.py` has the protocol of an assignor, `specs.py` its input, `builtin.py` the assignors of Kafka.
docs/howto/custom-assignors.md shows how to add one.
"""

from kohort.group.assignors.interface import (
    AssignmentSteps,
    AssignorError,
    PartitionAssignor,
    SteppedAssignor,
    TopicDescriber,
)
from kohort.group.assignors.specs import Assignment, GroupAssignment, GroupSpec, MemberSpec

__all__ = [
    "Assignment",
    "AssignmentSteps",
    "AssignorError",
    "GroupAssignment",
    "GroupSpec",
    "MemberSpec",
    "PartitionAssignor",
    "SteppedAssignor",
    "TopicDescriber",
]
