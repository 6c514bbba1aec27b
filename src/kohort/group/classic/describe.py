"""
DescribeGroups (15), versions 0 to 6.

Describes classic groups; a group of another kind counts as missing. 3 can ask for the operations that the caller may do, 4
shows instance ids. From 6 on (KIP-1043) a missing group is an error with a message, before that a group in state Dead.

Source: Kafka GroupMetadataManager.describeGroups, ClassicGroup.describe.
"""

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.states import DEAD_NAME, STABLE
from kohort.group.context import GroupContext
from kohort.group.groups import CLASSIC, group_of_kind
from kohort.model.errors import CoordinatorError
from kohort.wire import messages as m

NOT_FOUND_SINCE = 6


def describe_group(
    context: GroupContext, group_id: str, *, api_version: int, committed_offset: int
) -> m.DescribeGroupsResponseDescribedGroup:
    """Describe a group; protocol and metadata only while it is Stable, because before that they may not belong together."""
    found = context.groups.get_at(group_id, committed_offset)
    try:
        group = group_of_kind(found, group_id, CLASSIC, ClassicGroup)
    except CoordinatorError as exc:
        if api_version < NOT_FOUND_SINCE:
            return m.DescribeGroupsResponseDescribedGroup(group_id=group_id, group_state=DEAD_NAME)
        return m.DescribeGroupsResponseDescribedGroup(
            error_code=int(exc.code), error_message=exc.message, group_id=group_id, group_state=DEAD_NAME
        )
    state = group.state_at(committed_offset)
    is_stable = state is STABLE
    protocol_name = group.value_at("protocol_name", committed_offset)
    return m.DescribeGroupsResponseDescribedGroup(
        group_id=group_id,
        group_state=state.value,
        protocol_type=group.value_at("protocol_type", committed_offset) or "",
        protocol_data=(protocol_name or "") if is_stable else "",
        members=tuple(
            _describe_member(member, member.metadata(protocol_name) if is_stable else b"")
            for _, member in group.members.items_at(committed_offset)
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
