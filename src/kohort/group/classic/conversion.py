"""
Classic groups that become groups of another kind, and the reverse; see `kohort.group.conversion`.

Source: Kafka GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup; ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Callable, Sequence

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember, Protocol
from kohort.group.classic.rebalance import GroupSteps
from kohort.group.classic.states import STABLE
from kohort.group.context import GroupContext
from kohort.group.conversion import ClassicMemberState, ClassicState
from kohort.group.groups import session_key
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Wake
from kohort.model.errors import ErrorCode


def export_group(group: ClassicGroup) -> ClassicState:
    return ClassicState(
        group.group_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        [
            ClassicMemberState(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.protocols,
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def dismiss_waiting(context: GroupContext, group: ClassicGroup) -> Sequence[Wake]:
    """Have every waiting member join again. Deadlines of the group run out without effect."""
    steps = GroupSteps(context, group, 0)
    for member_id in list(group.waiting):
        steps.refuse_waiting(member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    return steps.result().wakes


def adopt_group(
    context: GroupContext,
    state: ClassicState,
    assign: Callable[[str, bytes], bytes],
    now_ms: int,
    rebalance_reason: str | None,
) -> Result[GroupRecord, None]:
    group = ClassicGroup(state.group_id, context.snapshots)
    group.change(
        state=STABLE,
        state_timestamp_ms=now_ms,
        generation=state.generation,
        protocol_type=state.protocol_type,
    )
    for each in state.members:
        member = ClassicMember(
            member_id=each.member_id,
            session=session_key(state.group_id, each.member_id),
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            session_timeout_ms=each.session_timeout_ms,
            protocols=tuple(Protocol(name, metadata) for name, metadata in each.protocols),
        )
        group.add(member, state.protocol_type or "")
    protocol_name = group.select_protocol()
    group.change(protocol_name=protocol_name, subscribed_topics=group.read_subscribed_topics(protocol_name))
    for member in list(group.members.values()):
        assignment = assign(member.member_id, member.metadata(group.protocol_name))
        group.members.put(member.member_id, member.with_assignment(assignment))
    context.prepared.put(group.group_id, group)
    steps = GroupSteps(context, group, now_ms)
    steps.records.append(group.to_record())
    for member in group.members.values():
        steps.begin_session(member.session, member.session_timeout_ms)
    if rebalance_reason is not None:
        steps.prepare_rebalance(rebalance_reason)
    return steps.result()
