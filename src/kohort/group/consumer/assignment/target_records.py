"""The records of a new target assignment."""

from collections.abc import Iterable, Mapping

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.records import target_record
from kohort.group.records import GroupRecord
from kohort.records.values import ConsumerGroupTargetAssignmentMetadata


def target_records(
    group: ConsumerGroup, members: Iterable[str], assignment: Mapping[str, Assignment], epoch: int | None
) -> list[GroupRecord]:
    """
    The targets of these members that change. A member without target gets one, even an empty one.

    Args:
        epoch: of the assignment, for the last record; None if further targets follow.
    """
    records: list[GroupRecord] = []
    for member_id in members:
        target = assignment.get(member_id, NO_ASSIGNMENT)
        old = group.targets.get(member_id)
        if old is None or (old is not target and old != target):
            records.append(target_record(group.group_id, member_id, target))
    if epoch is not None:
        records.append(ConsumerGroupTargetAssignmentMetadata(group.group_id, epoch))
    return records
