"""The responses to JoinGroup and SyncGroup for one member of a group."""

from __future__ import annotations

from kohort.group.classic.group import NO_GENERATION, NO_LEADER, ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m


def refused_join(member_id: str, code: ErrorCode) -> m.JoinGroupResponse:
    """The refusal of a JoinGroup; the member id depends on the error."""
    return m.JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None,
        leader=NO_LEADER,
        member_id=member_id,
    )


def joined(group: ClassicGroup, member: ClassicMember) -> m.JoinGroupResponse:
    """The current generation; the leader also gets its members."""
    return m.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or NO_LEADER,
        member_id=member.member_id,
        members=members_of(group) if group.is_leader(member.member_id) else (),
    )


def members_of(group: ClassicGroup) -> tuple[m.JoinGroupResponseMember, ...]:
    """The members and their metadata, for the leader."""
    return tuple(
        m.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    )


def refused_sync(code: ErrorCode) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=code, protocol_type=None, protocol_name=None, assignment=b"")


def synced(group: ClassicGroup, assignment: bytes) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
