"""
LeaveGroup (13) in a consumer group. It removes members of either protocol, so that an administrator can remove any member.

Source: Kafka GroupMetadataManager.classicGroupLeaveToConsumerGroup.
"""

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.members.membership import known_member, unknown_instance
from kohort.group.consumer.members.removal import remove
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.events import GroupEvent, MemberLeft
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError
from kohort.wire import messages as m


def leave_group(
    registry: ConsumerRegistry, group: ConsumerGroup, request: m.LeaveGroupRequest, now_ms: int
) -> Result[GroupRecord, m.LeaveGroupResponse]:
    """Remove all members that are named correctly in one step; ids are echoed as they were sent."""
    removed: dict[str, ConsumerMember] = {}
    events: list[GroupEvent] = []
    answers: list[m.LeaveGroupResponseMemberResponse] = []
    for identity in request.members:
        code = 0
        try:
            member = _find(group, identity)
        except CoordinatorError as error:
            code = int(error.code)
        else:
            if member.member_id not in removed:
                removed[member.member_id] = member
                events.append(MemberLeft(group.group_id, member.member_id, member.instance_id, identity.reason))
        answers.append(
            m.LeaveGroupResponseMemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    response = m.LeaveGroupResponse(members=tuple(answers))
    if not removed:
        return Result(response=response)
    return remove(registry, group, list(removed.values()), events, response, now_ms)


def _find(group: ConsumerGroup, identity: m.LeaveGroupRequestMemberIdentity) -> ConsumerMember:
    """
    The member that is named; an administrator may name a static member by its instance id alone.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    instance_id = identity.group_instance_id
    if instance_id is None or identity.member_id:
        return known_member(group, identity.member_id, instance_id)
    member = group.static_member(instance_id)
    if member is None:
        raise unknown_instance(instance_id)
    return member
