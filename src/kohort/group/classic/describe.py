"""
DescribeGroups (15), versions 0 to 6.

Classic groups only; any other group is one that is not there. 3 can ask for the operations that the caller may do, 4 shows
instance ids, from 6 on (KIP-1043) an unknown group is an error with a text, before that a group in state Dead.

Source: Kafka GroupMetadataManager.describeGroups, ClassicGroup.describe.
"""

from kohort.group.classic.group import ClassicGroup, ClassicMember
from kohort.group.classic.states import DEAD, STABLE
from kohort.machine.timeline import TimelineDict
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

NOT_FOUND_SINCE = 6


def describe_group(
    groups: TimelineDict[str, ClassicGroup], group_id: str, *, api_version: int, committed_offset: int
) -> m.DescribeGroupsResponseDescribedGroup:
    """The group as clients see it; its metadata only while it is stable, for before that they may not belong together."""
    group = groups.get_at(group_id, committed_offset)
    if group is None:
        return group_not_found(group_id, api_version=api_version)
    is_stable = group.state is STABLE
    return m.DescribeGroupsResponseDescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            _describe_member(member, member.metadata(group.protocol_name) if is_stable else b"")
            for member in group.members.values()
        ),
    )


def _describe_member(member: ClassicMember, metadata: bytes) -> m.DescribeGroupsResponseDescribedGroupMember:
    return m.DescribeGroupsResponseDescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )


def group_not_found(group_id: str, *, api_version: int) -> m.DescribeGroupsResponseDescribedGroup:
    if api_version < NOT_FOUND_SINCE:
        return m.DescribeGroupsResponseDescribedGroup(group_id=group_id, group_state=DEAD.value)
    return m.DescribeGroupsResponseDescribedGroup(
        error_code=int(ErrorCode.GROUP_ID_NOT_FOUND),
        error_message=f"Group {group_id} not found.",
        group_id=group_id,
        group_state=DEAD.value,
    )
