"""An estimate of the work of an assignment, by which the caller decides where to run it."""

from typing import Final

from kohort.group.assignors.interface import TopicDescriber
from kohort.group.assignors.specs import GroupSpec

UNIT_NS: Final = 1_000
"""Nanoseconds of processor time that a unit of the built-in assignors takes on plain Python: `python -m bench.assignors`."""

COMPILED_UNIT_NS: Final = 500
"""The same of the compiled build."""


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
