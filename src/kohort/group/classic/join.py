"""
JoinGroup (11), versions 0 to 9.

0 has no rebalance timeout: the session timeout is used. From 4 on (KIP-394) a dynamic member first gets a member id and joins
again with it. 5 adds static members (KIP-345); from 9 on the replacement of a static leader is told that it leads but need not
assign (KIP-814). `reason` (8, KIP-800) is for the log.

Source: Kafka GroupMetadataManager.classicGroupJoin, classicGroupJoinNewMember, classicGroupJoinExistingMember.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Final, TypeAlias

from kohort.group.classic.group import NO_LEADER, NO_MEMBER_ID, ClassicGroup
from kohort.group.classic.member import ClassicMember, Protocol
from kohort.group.classic.rebalance import (
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_complete,
    refuse_parked_join,
    refuse_parked_sync,
)
from kohort.group.classic.registry import ClassicRegistry, Records, join_key, session_key
from kohort.group.classic.responses import joined, members_of, refused_join
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.configs import NEW_MEMBER_JOIN_TIMEOUT_MS
from kohort.group.errors import append_error
from kohort.group.events import GroupCreationFailed, MemberJoined, StaticMemberReplaced
from kohort.group.groups import CLASSIC, Transition, transition
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Reply, Result
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire import messages as m
from kohort.wire.primitives import cut_text

_MEMBER_PREFIX_BYTES_MAX: Final = STRING_BYTES_MAX - 37
"""Of the client's name in the member id that it gets; a hyphen and a UUID follow."""
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9

JoinResult: TypeAlias = Result[GroupRecord, m.JoinGroupResponse]


def join_group(
    registry: ClassicRegistry,
    request: m.JoinGroupRequest,
    context: RequestContext,
    reply: Reply[m.JoinGroupResponse],
    now_ms: int,
) -> JoinResult:
    """
    Add a member to the next generation; answered at once, or when that generation starts.

    A group of another kind with members answers by itself, if it has members of the classic protocol; an empty one is replaced.
    """
    group = registry.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        return _Join(registry, group, request, context, reply, now_ms).decide()
    removal: Sequence[GroupRecord] = ()
    if group is not None:
        try:
            rule = transition(group, CLASSIC)
        except CoordinatorError as exc:
            return Result(response=refused_join(NO_MEMBER_ID, exc.code))
        host = registry.host_of(group)
        if rule is Transition.SERVE and host is not None:
            return host.join_group(group, request, context, now_ms)
        removal = group.tombstones()
    if request.member_id != NO_MEMBER_ID:
        return Result(response=refused_join(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
    new = ClassicGroup(request.group_id, state_timestamp_ms=now_ms)
    creation = (*removal, new.to_record())
    registry.groups.put(request.group_id, new)
    result = _Join(registry, new, request, context, reply, now_ms).decide()
    return _log_new_group(registry, new, creation, result)


def _log_new_group(
    registry: ClassicRegistry, group: ClassicGroup, creation: Sequence[GroupRecord], result: JoinResult
) -> JoinResult:
    """Log a new group, even if its first JoinGroup was refused."""

    def after(error: Exception | None) -> Iterable[Release]:
        releases = [] if result.after is None else list(result.after(error))
        if error is not None:
            # Members that have joined since then wait in a group that nobody knows any more.
            code = append_error(error)
            for member in group.members.values():
                refuse_parked_join(group, member, releases, code)
                refuse_parked_sync(member, releases, code)
            registry.emit(GroupCreationFailed(group.group_id, code.name))
            if registry.is_current(group):
                registry.groups.remove(group.group_id)
            registry.timers.cancel(join_key(group.group_id))
            for member_id in (*group.members, *group.pending_members):
                registry.cancel_session(group, member_id)
        return releases

    return Result(creation, result.response, result.releases, after, replayed=False)


@dataclass(slots=True)
class _Join:
    """The handling of one JoinGroup."""

    registry: ClassicRegistry
    group: ClassicGroup
    request: m.JoinGroupRequest
    context: RequestContext
    reply: Reply[m.JoinGroupResponse]
    now_ms: int
    releases: list[Release] = field(default_factory=list)

    def decide(self) -> JoinResult:
        group, request = self.group, self.request
        if not self._has_room():
            group.remove(request.member_id)
            return self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        if group.state is DEAD:
            return self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
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

    # Fields of the request

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        return tuple(Protocol(intern(protocol.name), protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        has_own = self.context.api_version >= 1
        return self.request.rebalance_timeout_ms if has_own else self.request.session_timeout_ms

    def _has_room(self) -> bool:
        group, size_max = self.group, self.registry.config.group_max_size
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(self.request.member_id)
        if group.state is PREPARING_REBALANCE:
            # Members that do not join again will be removed: only those that have joined count.
            return (member is not None and member.join_reply is not None) or group.parked_joins < size_max
        return member is not None or len(group.members) < size_max

    def _refuse(self, code: ErrorCode, member_id: str | None = None) -> JoinResult:
        return Result(response=refused_join(self.request.member_id if member_id is None else member_id, code))

    def _parked(self, records: Records) -> JoinResult:
        def after(error: Exception | None) -> Iterable[Release]:
            if error is not None and not self.registry.is_current(self.group):
                # The write that creates the group has failed, too: answer all that wait.
                for member in self.group.members.values():
                    refuse_parked_join(self.group, member, self.releases, append_error(error))
            return () if error is None else self.releases

        return Result(records, releases=self.releases, after=after, replayed=False)

    # A member without an id

    def _join_new(self) -> JoinResult:
        request = self.request
        prefix = self.context.client_id if request.group_instance_id is None else request.group_instance_id
        member_id = f"{cut_text(prefix, _MEMBER_PREFIX_BYTES_MAX)}-{self.registry.new_uuid()}"
        if request.group_instance_id is not None:
            holder = self.group.static_members.get(request.group_instance_id)
            return self._add(member_id) if holder is None else self._replace_static(holder, member_id)
        if self.context.api_version < MEMBER_ID_REQUIRED_SINCE:
            return self._add(member_id)
        self.group.pending_members.add(member_id)
        self._arm_pending(member_id)
        return self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _arm_pending(self, member_id: str) -> None:
        """Expire the assigned member id unless the member joins with it within the session timeout."""
        operation = self.registry.on_expiry(self.group, member_id)
        key = session_key(self.group.group_id, member_id)
        self.registry.timers.schedule(key, self.request.session_timeout_ms, operation)

    def _add(self, member_id: str) -> JoinResult:
        group = self.group
        member = self._member(member_id, is_new=True)
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, self.request.protocol_type)
        # The client of a parked JoinGroup may have disconnected unnoticed: this bounds how long the member counts.
        self.registry.arm_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.registry.emit(
            MemberJoined(group.group_id, member_id, member.group_instance_id, member.client_id, member.client_host)
        )
        return self._rebalance(f"member {member_id} joined")

    def _rebalance(self, change: str) -> JoinResult:
        """Start a rebalance, or continue the present one, because of this request."""
        reason = self.request.reason
        cause = f"{change}; client reason: {reason}" if reason else change
        return self._parked(rebalance_or_complete(self.registry, self.group, self.releases, self.now_ms, cause))

    def _member(self, member_id: str, *, is_new: bool) -> ClassicMember:
        return ClassicMember(
            member_id=member_id,
            group_instance_id=self.request.group_instance_id,
            client_id=self.context.client_id,
            client_host=self.context.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
            is_new=is_new,
            join_reply=self.reply,
        )

    # A known member

    def _join_known(self) -> JoinResult:
        group, request = self.group, self.request
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except CoordinatorError as exc:
            return self._refuse(exc.code)
        is_same = tuple(member.protocols) == self.protocols
        if group.state is PREPARING_REBALANCE:
            return self._update(member)
        if group.state is COMPLETING_REBALANCE:
            # A member with the same metadata did not receive the answer: repeat it.
            return Result(response=joined(group, member)) if is_same else self._update(member)
        if group.state is STABLE:
            # A leader joins again in order to assign anew.
            if is_same and not group.is_leader(member.member_id):
                return Result(response=joined(group, member))
            return self._update(member)
        return self._refuse(ErrorCode.UNKNOWN_MEMBER_ID)

    def _update(self, member: ClassicMember) -> JoinResult:
        self._take_over_request(member)
        replaced = self.group.park_join(member, self.reply)
        if replaced is not None:
            # Kafka never answers the earlier request.
            response = refused_join(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self.releases.append(Release(replaced, response))
        return self._rebalance(
            f"{'leader' if self.group.is_leader(member.member_id) else 'member'} {member.member_id} joined again"
        )

    def _take_over_request(self, member: ClassicMember) -> None:
        self.group.update(
            member,
            self.protocols,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
        )

    # A static member that joins without a member id

    def _replace_static(self, old_id: str, new_id: str) -> JoinResult:
        """Replace a static member: the new id takes over client id, assignment and leadership, the old id is fenced."""
        registry, group = self.registry, self.group
        old = group.members[old_id]
        old_leader = group.leader
        refuse_parked_join(group, old, self.releases, ErrorCode.FENCED_INSTANCE_ID, old_id)
        refuse_parked_sync(old, self.releases, ErrorCode.FENCED_INSTANCE_ID)
        new = replace(old, member_id=new_id, is_new=False, join_reply=self.reply, timer_key="", on_expiry=None)
        group.replace_static(old, new)
        # With the old session timeout, as in Kafka; the request's applies from the next time on.
        registry.arm_session(group, new)
        self._take_over_request(new)
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            return self._log_replacement(old, new, old_leader)
        registry.emit(StaticMemberReplaced(group.group_id, new_id, old_id, new.group_instance_id))
        if group.state in (STABLE, COMPLETING_REBALANCE):
            # In COMPLETING_REBALANCE the leader may be assigning to the old id already.
            reason = f"static member {new_id} replaced {old_id}"
            return self._parked(prepare_rebalance(registry, group, self.releases, self.now_ms, reason))
        if group.state is PREPARING_REBALANCE:
            return self._parked(maybe_complete_join(registry, group, self.releases, self.now_ms))
        raise InvariantError(f"a group in {group.state.value} has static members")

    def _log_replacement(self, old: ClassicMember, new: ClassicMember, old_leader: str | None) -> JoinResult:
        """Log the new id without a rebalance, then answer with the current generation."""
        group, reply, generation = self.group, self.reply, self.group.generation

        def after(error: Exception | None) -> list[Release]:
            releases = self.releases
            if error is None:
                self.registry.emit(
                    StaticMemberReplaced(group.group_id, new.member_id, old.member_id, new.group_instance_id)
                )
            is_waiting = new.join_reply is reply
            if is_waiting:
                group.unpark_join(new)
            if error is not None and group.state is STABLE and group.generation == generation:
                self._revert_replacement(old, new)
            if not is_waiting:
                return releases  # a rebalance has answered it meanwhile, or an upgrade of the group
            if error is not None:
                response = _replaced(group, new, leader=old_leader, member_id="", code=append_error(error))
            elif self.context.api_version >= SKIP_ASSIGNMENT_SINCE:
                is_leader = group.is_leader(new.member_id)
                response = _replaced(group, new, leader=group.leader, is_leader=is_leader)
            else:
                # The old leader's id keeps the member from assigning again.
                response = _replaced(group, new, leader=old_leader)
            releases.append(Release(reply, response))
            return releases

        return Result((group.to_record(),), after=after, replayed=False)

    def _revert_replacement(self, old: ClassicMember, new: ClassicMember) -> None:
        new.reverted_to = old
        if self.group.members.get(new.member_id) is not new:
            return
        # A batch may have several replacements of one member, which fail in their order.
        while old.reverted_to is not None:
            old = old.reverted_to
        self.group.replace_static(new, old)
        self.registry.cancel_session(self.group, new.member_id)
        self.registry.arm_session(self.group, old)


def _replaced(
    group: ClassicGroup,
    member: ClassicMember,
    *,
    leader: str | None,
    is_leader: bool = False,
    member_id: str | None = None,
    code: ErrorCode = ErrorCode.NONE,
) -> m.JoinGroupResponse:
    """The answer to a replacement: the current generation continues."""
    return m.JoinGroupResponse(
        error_code=code,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or NO_LEADER,
        skip_assignment=is_leader,
        member_id=member.member_id if member_id is None else member_id,
        members=members_of(group) if is_leader else (),
    )
