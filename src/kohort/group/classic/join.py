"""
JoinGroup (11), versions 0 to 9.

0 has no rebalance timeout: the session timeout is used. From 4 on (KIP-394) a dynamic member first gets a member id and joins
again with it. 5 adds static members (KIP-345); from 9 on the replacement of a static leader is told that it leads but need not
assign (KIP-814). `reason` (8, KIP-800) is for the log.

Source: Kafka GroupMetadataManager.classicGroupJoin, classicGroupJoinNewMember, classicGroupJoinExistingMember.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from sys import intern
from typing import Final, TypeAlias

import msgspec

from kohort.group.classic.group import NO_LEADER, NO_MEMBER_ID, ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import GroupSteps, find_group, join_wait
from kohort.group.classic.responses import joined, members_of, refused_join
from kohort.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.configs import NEW_MEMBER_JOIN_TIMEOUT_MS
from kohort.group.context import GroupContext, HasContext
from kohort.group.errors import append_error
from kohort.group.events import MemberJoined, StaticMemberReplaced
from kohort.group.groups import CLASSIC, Transition, session_key, transition
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Operation, Wait
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, error_code
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire import messages as m
from kohort.wire.primitives import cut_text

_MEMBER_PREFIX_BYTES_MAX: Final = STRING_BYTES_MAX - 37
"""Of the client's name in the member id that it gets; a hyphen and a UUID follow."""
MEMBER_ID_REQUIRED_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9

JoinResult: TypeAlias = Result[GroupRecord, m.JoinGroupResponse]


def join_group(
    shard: HasContext, now_ms: int, request: m.JoinGroupRequest, request_context: RequestContext
) -> JoinResult:
    """
    Add a member to the next generation; answered at once, or when that generation starts.

    A group of another kind with members answers by itself, if it has members of the classic protocol; an empty one is replaced.
    """
    context = shard.context
    group = context.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        return _Join(context, group, request, request_context, (), now_ms).decide()
    removal: Sequence[GroupRecord] = ()
    if group is not None:
        try:
            rule = transition(group, CLASSIC)
        except CoordinatorError as exc:
            return Result(response=refused_join(NO_MEMBER_ID, exc.code))
        host = context.host_of(group)
        if rule is Transition.SERVE and host is not None:
            return host.join_group(group, request, request_context, now_ms)
        removal = group.tombstones()
    if request.member_id != NO_MEMBER_ID:
        return Result(response=refused_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
    new = ClassicGroup(request.group_id, context.snapshots)
    new.change(state_timestamp_ms=now_ms)
    context.prepared.put(request.group_id, new)
    # The group is logged even if its first JoinGroup is refused.
    return _Join(context, new, request, request_context, (*removal, new.to_record()), now_ms).decide()


class _Join:
    """
    The handling of one JoinGroup.

    Args:
        creation: the records of a new group.
    """

    __slots__ = ("_context", "_request", "_request_context", "_steps", "group", "protocols")

    def __init__(
        self,
        context: GroupContext,
        group: ClassicGroup,
        request: m.JoinGroupRequest,
        request_context: RequestContext,
        creation: Sequence[GroupRecord],
        now_ms: int,
    ) -> None:
        self._context = context
        self._request = request
        self._request_context = request_context
        self._steps = GroupSteps(context, group, now_ms)
        self._steps.records += creation
        self.group = group
        self.protocols = tuple([(intern(protocol.name), protocol.metadata) for protocol in request.protocols])

    def decide(self) -> JoinResult:
        group, request = self.group, self._request
        if not self._has_room():
            group.remove(request.member_id)
            return self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        if not group.supports(request.protocol_type, self.protocols):
            return self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id == NO_MEMBER_ID:
            return self._join_new()
        if request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                # Only dynamic members get ids this way. Kafka fails with an internal error.
                return self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER_ID)
            return self._add(request.member_id)
        return self._join_known()

    @property
    def rebalance_timeout_ms(self) -> int:
        has_own = self._request_context.api_version >= 1
        return self._request.rebalance_timeout_ms if has_own else self._request.session_timeout_ms

    def _has_room(self) -> bool:
        group, size_max = self.group, self._context.config.group_max_size
        if group.state is EMPTY:
            return True
        member_id = self._request.member_id
        if group.state is PREPARING_REBALANCE:
            # Members that do not join again will be removed: only those that have joined count.
            return member_id in group.waiting or len(group.waiting) < size_max
        return member_id in group.members or len(group.members) < size_max

    def _refuse(self, code: ErrorCode, member_id: str | None = None) -> JoinResult:
        return self._steps.result(refused_join(self._request.member_id if member_id is None else member_id, code))

    def _wait(self, member_id: str) -> JoinResult:
        """Let the request wait for the next generation, unless that has begun with it."""
        key = join_wait(self.group.group_id, member_id)
        # Kafka never answers a request that another one replaces.
        replaced = refused_join(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        if member_id not in self.group.waiting:
            return self._steps.result(self._steps.take_answer(key, replaced))
        # The join deadline of the group ends the wait.
        return self._steps.result(Wait(key, None, None, replaced), on_error=partial(_wait_failed, member_id))

    # A member without an id

    def _join_new(self) -> JoinResult:
        request = self._request
        prefix = self._request_context.client_id if request.group_instance_id is None else request.group_instance_id
        member_id = f"{cut_text(prefix, _MEMBER_PREFIX_BYTES_MAX)}-{self._context.new_uuid()}"
        if request.group_instance_id is not None:
            holder = self.group.static_members.get(request.group_instance_id)
            return self._add(member_id) if holder is None else self._replace_static(holder, member_id)
        if self._request_context.api_version < MEMBER_ID_REQUIRED_SINCE:
            return self._add(member_id)
        self.group.pending_members.add(member_id)
        self._steps.begin_session(session_key(self.group.group_id, member_id), request.session_timeout_ms)
        return self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, member_id: str) -> JoinResult:
        group, request, request_context = self.group, self._request, self._request_context
        member = ClassicMember(
            member_id=member_id,
            session=session_key(group.group_id, member_id),
            group_instance_id=request.group_instance_id,
            client_id=request_context.client_id,
            client_host=request_context.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=self.protocols,
        )
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.change(new_member_added=True)
        group.add(member, request.protocol_type)
        # The client of a waiting JoinGroup may have disconnected unnoticed: this bounds how long the member counts.
        self._steps.begin_session(member.session, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._steps.emit(
            MemberJoined(group.group_id, member_id, member.group_instance_id, member.client_id, member.client_host)
        )
        self._steps.join(member_id, self._cause(f"member {member_id} joined"), is_new=True)
        return self._wait(member_id)

    def _cause(self, change: str) -> str:
        reason = self._request.reason
        return f"{change}; client reason: {reason}" if reason else change

    # A known member

    def _join_known(self) -> JoinResult:
        group, request = self.group, self._request
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except CoordinatorError as exc:
            return self._refuse(exc.code)
        is_same = member.protocols == self.protocols
        if group.state is PREPARING_REBALANCE:
            return self._update(member)
        if group.state is COMPLETING_REBALANCE:
            # A member with the same metadata did not receive the answer: repeat it.
            return self._steps.result(joined(group, member)) if is_same else self._update(member)
        if group.state is STABLE:
            # A leader joins again in order to assign anew.
            if is_same and not group.is_leader(member.member_id):
                return self._steps.result(joined(group, member))
            return self._update(member)
        return self._refuse(ErrorCode.UNKNOWN_MEMBER_ID)

    def _update(self, member: ClassicMember) -> JoinResult:
        group = self.group
        self._take_over_request(member)
        role = "leader" if group.is_leader(member.member_id) else "member"
        self._steps.join(member.member_id, self._cause(f"{role} {member.member_id} joined again"))
        return self._wait(member.member_id)

    def _take_over_request(self, member: ClassicMember) -> ClassicMember:
        return self.group.update(
            member,
            self.protocols,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self._request.session_timeout_ms,
        )

    # A static member that joins without a member id

    def _replace_static(self, old_id: str, new_id: str) -> JoinResult:
        """Replace a static member: the new id takes over client id, assignment and leadership, the old id is fenced."""
        group, steps = self.group, self._steps
        old = group.members[old_id]
        old_leader = group.leader
        steps.refuse_waiting(old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
        new = old.changed(member_id=new_id, session=session_key(group.group_id, new_id))
        group.replace_static(old, new)
        # The deadline of the old id runs out without effect. The new one has the old session timeout, as in Kafka; the
        # request's applies from the next time on.
        steps.begin_session(new.session, old.session_timeout_ms)
        new = self._take_over_request(new)
        steps.emit(StaticMemberReplaced(group.group_id, new_id, old_id, new.group_instance_id))
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            return self._log_replacement(old_id, new, old_leader)
        if group.state is EMPTY:
            raise InvariantError(f"the group {group.group_id} is Empty, and has static members")
        # In COMPLETING_REBALANCE the leader may be assigning to the old id already.
        steps.join(new_id, f"static member {new_id} replaced {old_id}")
        return self._wait(new_id)

    def _log_replacement(self, old_id: str, new: ClassicMember, old_leader: str | None) -> JoinResult:
        """Log the new id without a rebalance, then answer with the current generation."""
        group = self.group
        self._steps.records.append(group.to_record())
        # The id of the old leader keeps a member of an older version from assigning again.
        knows_skipping = self._request_context.api_version >= SKIP_ASSIGNMENT_SINCE
        leader = group.leader if knows_skipping else old_leader
        skips_assignment = knows_skipping and group.is_leader(new.member_id)
        response = m.JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or NO_LEADER,
            skip_assignment=skips_assignment,
            member_id=new.member_id,
            members=members_of(group) if skips_assignment else (),
        )
        refused = msgspec.structs.replace(
            response, leader=old_leader or NO_LEADER, skip_assignment=False, member_id=NO_MEMBER_ID, members=()
        )
        return self._steps.result(
            response,
            otherwise=Operation(replacement_failed, group.group_id, old_id),
            on_error=lambda error: msgspec.structs.replace(refused, error_code=int(append_error(error))),
        )


def _wait_failed(member_id: str, error: Exception) -> m.JoinGroupResponse:
    """The error of a request that waits; the clients of a partition that is unloaded are told their member ids."""
    is_unloaded = error_code(error) is ErrorCode.NOT_COORDINATOR
    return refused_join(member_id if is_unloaded else NO_MEMBER_ID, append_error(error))


def replacement_failed(
    shard: HasContext, now_ms: int, group_id: str, old_id: str, _error: Exception
) -> Result[GroupRecord, None]:
    """The new id could not be written: the member with the old id gets a whole session."""
    group = find_group(shard.context, group_id)
    member = None if group is None else group.members.get(old_id)
    if group is None or member is None:
        return Result()
    steps = GroupSteps(shard.context, group, now_ms)
    steps.begin_session(member.session, member.session_timeout_ms)
    return steps.result()
