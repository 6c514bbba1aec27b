"""
The member that a heartbeat comes from: a known one, a new one, or a static one under a new id; and its fencing.

Source: Kafka GroupMetadataManager.getOrMaybeSubscribeDynamicConsumerMember, getOrMaybeSubscribeStaticConsumerMember,
throwIfConsumerGroupMemberEpochIsInvalid.
"""

from collections.abc import Sequence

from kohort.group.assignments import TopicPartitions, contains_all
from kohort.group.assignors.specs import NO_ASSIGNMENT
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import JOIN_EPOCH, ConsumerMember
from kohort.group.consumer.records import current_record, member_record, member_tombstones, target_record
from kohort.group.records import GroupRecord
from kohort.model.errors import CoordinatorError, ErrorCode


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None, size_max: int) -> None:
    """
    Refuse a new member of a full group. A static member that returns under a new id is no new member.

    Raises:
        CoordinatorError: GROUP_MAX_SIZE_REACHED.
    """
    is_known = member_id in group.members or group.static_member(instance_id) is not None
    if len(group.members) >= size_max and not is_known:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """
    The member that a request names. Without an instance id, the one of a static member is not compared.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if instance_id is None:
        return group.known(member_id)
    holder = group.static_member(instance_id)
    if holder is None:
        raise unknown_instance(instance_id)
    if holder.member_id != member_id:
        raise CoordinatorError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def find_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    owned: Sequence[TopicPartitions] | None,
    records: list[GroupRecord],
) -> ConsumerMember:
    """
    The member that a heartbeat comes from; a new one if it joins. If a static member joins under another member id than before,
    `records` get the replacement.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID.
    """
    if epoch != JOIN_EPOCH:
        member = known_member(group, member_id, instance_id)
        check_epoch(member, epoch, owned)
        return member
    holder = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if holder.classic is None and not holder.is_away:
        raise CoordinatorError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
            f"owned by {holder.member_id} member.",
        )
    replacement = holder.under_new_id(member_id)
    replace_member(group, holder, replacement, records)
    return replacement


def replace_member(
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    records: list[GroupRecord],
) -> None:
    """
    Write a static member under its new id, with its target and its partitions.

    The deadlines of the old id run out without effect.
    """
    group_id = group.group_id
    records += member_tombstones(group_id, old.member_id)
    records.append(member_record(group_id, new))
    records.append(target_record(group_id, new.member_id, group.targets.get(old.member_id, NO_ASSIGNMENT)))
    records.append(current_record(group_id, new))


def check_epoch(member: ConsumerMember, epoch: int, owned: Sequence[TopicPartitions] | None) -> None:
    """
    Fence a member that is not at the epoch that the coordinator knows.

    The previous epoch passes if the member has nothing but what it was given: it lost an
    answer.

    Raises:
        CoordinatorError: FENCED_MEMBER_EPOCH.
    """
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        comparison = "greater"
    else:
        if epoch == member.previous_epoch and owned is not None and contains_all(member.assigned, owned):
            return
        comparison = "smaller"
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def unknown_instance(instance_id: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
