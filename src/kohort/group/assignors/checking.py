"""
A guard around assignors that Kohort does not ship.

Records and heartbeats of the group are built from the target assignment, so a wrong one would assign a partition twice, or a
partition that does not exist. This module is not compiled, because a compiled one refuses a list where a tuple is expected.
"""

from typing import Any, Final
from uuid import UUID

from kohort.group.assignors.interface import (
    AssignmentSteps,
    AssignorError,
    PartitionAssignor,
    SteppedAssignor,
    TopicDescriber,
)
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec


class CheckedAssignor:
    """
    An assignor whose results are checked and brought into their canonical form.

    Members that the result lacks get nothing, as in Kafka. Partitions may be in any iterable and in any order. Everything else
    that the contract forbids is an `AssignorError`, and so is any exception of the assignor.
    """

    def __init__(self, assignor: PartitionAssignor | SteppedAssignor) -> None:
        self._assignor: Final = assignor

    @property
    def name(self) -> str:
        return self._assignor.name

    def assign_in_steps(self, group: GroupSpec, topics: TopicDescriber, /) -> AssignmentSteps:
        """
        Compute the target assignment in the steps of the assignor, or in one; `SteppedAssignor.assign_in_steps`.

        Raises:
            AssignorError: the assignor failed, or its result is wrong.
        """
        try:
            assignor: Any = self._assignor
            if hasattr(assignor, "assign_in_steps"):
                target = yield from assignor.assign_in_steps(group, topics)
            else:
                yield
                target = assignor.assign(group, topics)
            return checked(target, group, topics)
        except AssignorError:
            raise
        except Exception as error:
            raise AssignorError(f"the assignor {self.name} failed: {error!r}") from error


def checked(target: GroupAssignment, group: GroupSpec, topics: TopicDescriber) -> GroupAssignment:
    """
    Return the target in its canonical form: an entry for each member, ascending tuples, no empty ones, and the same object for
    an assignment that stays the same.

    Raises:
        AssignorError: a member or partition is unknown, a member is not subscribed to a topic, or a partition is there twice.
    """
    unknown = next((member_id for member_id in target if member_id not in group.members), None)
    if unknown is not None:
        raise AssignorError(f"the assignment names the member {unknown!r}, which the group does not have")
    owners: dict[UUID, dict[int, str]] = {}
    return {
        member_id: _checked_member(member_id, member, target.get(member_id, NO_ASSIGNMENT), topics, owners)
        for member_id, member in group.members.items()
    }


def _checked_member(
    member_id: str, member: MemberSpec, target: Assignment, topics: TopicDescriber, owners: dict[UUID, dict[int, str]]
) -> Assignment:
    assignment = {}
    for topic_id, partitions in target.items():
        ordered = tuple(sorted(partitions))
        if not ordered:
            continue
        if topic_id not in member.topic_ids:
            raise AssignorError(
                f"member {member_id} gets partitions of topic {topic_id}, to which it is not subscribed"
            )
        count = topics.partition_count(topic_id)
        if ordered[0] < 0 or ordered[-1] >= count:
            raise AssignorError(f"member {member_id} gets a partition of topic {topic_id} outside of 0 to {count - 1}")
        topic_owners = owners.setdefault(topic_id, {})
        for partition in ordered:
            other = topic_owners.setdefault(partition, member_id)
            if other is not member_id:
                raise AssignorError(f"partition {partition} of topic {topic_id} is assigned to {other} and {member_id}")
        if len(set(ordered)) < len(ordered):
            raise AssignorError(f"member {member_id} gets a partition of topic {topic_id} twice")
        assignment[topic_id] = ordered
    return member.assigned if member.assigned == assignment else assignment
