"""
The rebalance of a classic group: wait for all members to join, start a generation, wait for the leader's assignment.

    prepare_rebalance ─▶ (all joined, or the join deadline) complete_join ─▶ (the leader's SyncGroup, see sync.py) Stable
          ▲                        │ no member left              │
          │                        ▼                             ▼
          │                      Empty                      sync deadline: members without SyncGroup are removed
          └─────────────────────────────────────────────────────┘

Source: Kafka GroupMetadataManager, "classic group" methods; KIP-134 (initial delay), KIP-345 (static members).
"""

from collections.abc import Callable, Mapping
from typing import Any

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.responses import joined, refused_join, refused_sync, synced
from kohort.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE, can_rebalance
from kohort.group.context import GroupContext, HasContext
from kohort.group.events import GenerationStarted, GroupEmptied, GroupEvent, MemberExpired, RebalanceStarted
from kohort.group.groups import session_key
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Key, Operation, Wake
from kohort.model.errors import ErrorCode


class GroupSteps:
    """
    The steps of one operation on a classic group: they change the group, and collect the rest of the result.

    Attributes:
        records: the group, if it became empty.
    """

    __slots__ = ("_context", "_deadlines", "_events", "_now_ms", "_sessions", "_wakes", "group", "records")

    def __init__(self, context: GroupContext, group: ClassicGroup, now_ms: int) -> None:
        self._context = context
        self._now_ms = now_ms
        self._wakes: list[Wake] = []
        self._deadlines: list[Deadline] = []
        self._sessions: dict[Key, int] = {}
        """The sessions that begin, with their timeouts in milliseconds."""
        self._events: list[GroupEvent] = []
        self.group = group
        self.records: list[GroupRecord] = []

    def result(
        self,
        response: Any = None,
        *,
        otherwise: Operation | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Result[GroupRecord, Any]:
        group_id = self.group.group_id
        for session, timeout_ms in self._sessions.items():
            operation = Operation(expire_member, group_id, session[-1])
            self._deadlines.append(Deadline(session, timeout_ms, operation))
        return Result(
            self.records,
            response,
            wakes=self._wakes,
            deadlines=self._deadlines,
            effects=self._events,
            otherwise=otherwise,
            on_error=on_error,
        )

    def emit(self, event: GroupEvent) -> None:
        """Tell an event, once the operation is committed."""
        self._events.append(event)

    # The phases

    def join(self, member_id: str, reason: str, *, is_new: bool = False) -> None:
        """Note that a member has joined: start a rebalance, or continue the present one."""
        group = self.group
        if can_rebalance(group.state):
            self.prepare_rebalance(reason, member_id, is_new=is_new)
        else:
            group.waiting.put(member_id, group.waiting.get(member_id, is_new))
            self.maybe_complete_join()

    def prepare_rebalance(self, reason: str, joined_id: str | None = None, *, is_new: bool = False) -> None:
        """
        Start a rebalance: every member has to join again. The rebalance of an empty group waits for the initial delay.

        Args:
            reason: for the log.
            joined_id: the member whose JoinGroup starts it.
        """
        group = self.group
        self.emit(RebalanceStarted(group.group_id, group.state.value, group.generation, reason))
        if group.state is COMPLETING_REBALANCE:
            self.drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        group.move_to(PREPARING_REBALANCE, self._now_ms)
        if joined_id is not None:
            group.waiting.put(joined_id, is_new)
        if group.previous_state is EMPTY:
            delay_ms = self._context.config.group_initial_rebalance_delay_ms
            self._begin_join(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_joined:
            self.complete_join()
        else:
            self._begin_join(group.rebalance_timeout_ms)

    def maybe_complete_join(self, *, ends_delay: bool = False) -> None:
        """Complete the join phase if all members have joined. A join or leave never shortens the initial delay."""
        group = self.group
        may_end = ends_delay or group.previous_state is not EMPTY
        if group.state is PREPARING_REBALANCE and group.has_all_joined and may_end:
            self.complete_join()

    def complete_join(self) -> None:
        """
        Start the next generation with the members that have joined, and answer their JoinGroups.

        Dynamic members that did not join again are removed. Static members stay until the sync deadline. While a test holds the
        group, it waits for `complete_held`.
        """
        group = self.group
        self._deadlines.append(Deadline(join_deadline(group.group_id)))
        if self._context.is_held(group.group_id):
            return
        waiting = group.waiting
        for member in [each for each in group.members.values() if each.member_id not in waiting and not each.is_static]:
            group.remove(member.member_id)
            self.end_session(member.member_id)
            self.emit(MemberExpired(group.group_id, member.member_id, None, "join"))
        if group.members and not group.elect_joined_leader():
            self._begin_join(group.rebalance_timeout_ms)
            return
        group.start_next_generation(self._now_ms)
        if group.state is EMPTY:
            self.emit(GroupEmptied(group.group_id, group.generation))
            self.records.append(group.to_record())
            return
        self.emit(
            GenerationStarted(group.group_id, group.generation, len(group.members), group.protocol_name, group.leader)
        )
        for member in group.members.values():
            if member.member_id in waiting:
                self._wakes.append(Wake(join_wait(group.group_id, member.member_id), joined(group, member)))
            self.renew_session(member)
            group.pending_sync.add(member.member_id)
        waiting.clear()
        deadline = Operation(sync_expired, group.group_id)
        self._deadlines.append(Deadline(sync_deadline(group.group_id), group.rebalance_timeout_ms, deadline))

    def _begin_join(self, delay_ms: int, extendable_ms: int = 0) -> None:
        """Wait `delay_ms` for members to join; a member that joins meanwhile may extend that by up to `extendable_ms`."""
        operation = Operation(join_expired, self.group.group_id, delay_ms, extendable_ms)
        self._deadlines.append(Deadline(join_deadline(self.group.group_id), delay_ms, operation))

    def extend_join(self, delay_ms: int, extendable_ms: int) -> bool:
        """Extend the initial delay because a member joined; False if none has, or the rebalance timeout has passed."""
        if not self.group.new_member_added or not extendable_ms:
            return False
        self.group.change(new_member_added=False)
        next_ms = min(self._context.config.group_initial_rebalance_delay_ms, extendable_ms)
        self._begin_join(next_ms, max(extendable_ms - delay_ms, 0))
        return True

    # Members

    def begin_session(self, session: Key, timeout_ms: int) -> None:
        """Expire the member, or the member id, in `timeout_ms`; replaces an earlier deadline."""
        self._sessions[session] = timeout_ms

    def renew_session(self, member: ClassicMember) -> None:
        """Give the member a whole session timeout."""
        if member.session in self._sessions:
            self._sessions[member.session] = member.session_timeout_ms
        else:
            self._context.deadlines.extend(member.session, member.session_timeout_ms)

    def end_session(self, member_id: str) -> None:
        self.cancel(session_key(self.group.group_id, member_id))

    def cancel(self, deadline: Key) -> None:
        self._deadlines.append(Deadline(deadline))

    def remove_member(self, member: ClassicMember) -> None:
        """Remove a member; its waiting request is answered UNKNOWN_MEMBER_ID."""
        self.end_session(member.member_id)
        # Kafka never answers the waiting SyncGroup of a member that leaves.
        self.refuse_waiting(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.group.remove(member.member_id)

    # Requests that wait

    def answer_syncs(self, assignments: Mapping[str, bytes]) -> None:
        """Answer every waiting SyncGroup with the member's new assignment."""
        group = self.group
        for member_id in list(group.waiting):
            wait = sync_wait(group.group_id, member_id)
            self._wakes.append(Wake(wait, synced(group, assignments.get(member_id, b""))))
            self.renew_session(group.members[member_id])
        group.waiting.clear()

    def refuse_waiting(self, member_id: str, code: ErrorCode, told_id: str = "") -> None:
        """
        Refuse the request of a member, if one waits.

        Args:
            told_id: the member id in the answer to a JoinGroup.
        """
        group = self.group
        if group.waiting.remove(member_id) is None:
            return
        if group.state is PREPARING_REBALANCE:
            self._wakes.append(Wake(join_wait(group.group_id, member_id), refused_join(told_id, code)))
        else:
            self._wakes.append(Wake(sync_wait(group.group_id, member_id), refused_sync(code)))

    def drop_assignments(self, code: ErrorCode) -> None:
        """Give up the assignments of this generation; waiting SyncGroups are refused with `code`."""
        group = self.group
        for member in list(group.members.values()):
            if member.member_id in group.waiting:
                self.refuse_waiting(member.member_id, code)
                self.renew_session(member)
            if member.assignment:
                group.members.put(member.member_id, member.changed(assignment=b""))

    def take_answer(self, wait: Key, replaced: Any) -> Any:
        """Return the answer of the present request, which would wait; an earlier one under its key gets `replaced`."""
        index = next(index for index, wake in enumerate(self._wakes) if wake.key == wait)
        answer = self._wakes[index].answer
        self._wakes[index] = Wake(wait, replaced)
        return answer


# Keys of waits and deadlines


def join_wait(group_id: str, member_id: str) -> Key:
    return ("join", group_id, member_id)


def sync_wait(group_id: str, member_id: str) -> Key:
    return ("sync", group_id, member_id)


def join_deadline(group_id: str) -> Key:
    return ("join", group_id)


def sync_deadline(group_id: str) -> Key:
    return ("sync", group_id)


# Deadlines


def find_group(context: GroupContext, group_id: str) -> ClassicGroup | None:
    """The group, if there is one of this id and kind."""
    group = context.groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def join_expired(
    shard: HasContext, now_ms: int, group_id: str, delay_ms: int, extendable_ms: int
) -> Result[GroupRecord, None]:
    """Start the generation without the members that have not joined, unless the initial delay is extended."""
    group = find_group(shard.context, group_id)
    if group is None or group.state is not PREPARING_REBALANCE:
        return Result()
    steps = GroupSteps(shard.context, group, now_ms)
    if not steps.extend_join(delay_ms, extendable_ms):
        steps.complete_join()
    return steps.result()


def sync_expired(shard: HasContext, now_ms: int, group_id: str) -> Result[GroupRecord, None]:
    """Remove the members of this generation whose SyncGroup has not arrived, static members too."""
    group = find_group(shard.context, group_id)
    if group is None or not group.pending_sync:
        return Result()
    steps = GroupSteps(shard.context, group, now_ms)
    for member_id in sorted(group.pending_sync):
        member = group.members.get(member_id)
        if member is not None:  # a static member may have been replaced meanwhile
            steps.remove_member(member)
            steps.emit(MemberExpired(group_id, member_id, member.group_instance_id, "sync"))
    steps.prepare_rebalance("members sent no SyncGroup in time")
    return steps.result()


def force_rebalance(shard: HasContext, now_ms: int, group_id: str) -> Result[GroupRecord, ErrorCode]:
    """Let the members of a group join again, for tests of clients; GROUP_ID_NOT_FOUND without such a group or members."""
    group = find_group(shard.context, group_id)
    if group is None or not group.members:
        return Result(response=ErrorCode.GROUP_ID_NOT_FOUND)
    steps = GroupSteps(shard.context, group, now_ms)
    if can_rebalance(group.state):
        steps.prepare_rebalance("asked for by the testing kit")
    return steps.result(ErrorCode.NONE)


def complete_held(shard: HasContext, now_ms: int, group_id: str) -> Result[GroupRecord, ErrorCode]:
    """Complete the join phase of a group that a test has held."""
    group = find_group(shard.context, group_id)
    if group is None or group.state is not PREPARING_REBALANCE:
        return Result(response=ErrorCode.NONE)
    steps = GroupSteps(shard.context, group, now_ms)
    steps.complete_join()
    return steps.result(ErrorCode.NONE)


def expire_member(shard: HasContext, now_ms: int, group_id: str, member_id: str) -> Result[GroupRecord, None]:
    """
    Remove the member whose session timeout has passed, or the member id that was assigned and not used.

    A member whose request waits cannot heartbeat and stays, unless it is new: its client may have disconnected before it got
    its first answer.

    Source: Kafka GroupMetadataManager.expireClassicGroupMemberHeartbeat.
    """
    group = find_group(shard.context, group_id)
    if group is None:
        return Result()
    steps = GroupSteps(shard.context, group, now_ms)
    member = group.members.get(member_id)
    if member_id in group.pending_members:
        group.remove(member_id)
        steps.emit(MemberExpired(group_id, member_id, None, "member id"))
        steps.maybe_complete_join(ends_delay=True)
    elif member is not None and not group.waiting.get(member_id, True):
        steps.begin_session(member.session, member.session_timeout_ms)
    elif member is not None:
        steps.remove_member(member)
        steps.emit(MemberExpired(group_id, member_id, member.group_instance_id, "session"))
        if group.state in (STABLE, COMPLETING_REBALANCE):
            steps.prepare_rebalance(f"the session of member {member_id} expired")
        else:
            steps.maybe_complete_join(ends_delay=True)
    return steps.result()
