"""
Classic groups that become groups of another kind, and the reverse; see `kohort.group.conversion`.

Source: Kafka GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup; ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Callable

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember, Protocol
from kohort.group.classic.rebalance import prepare_rebalance, refuse_parked_join, refuse_parked_sync
from kohort.group.classic.registry import ClassicRegistry
from kohort.group.classic.states import STABLE
from kohort.group.conversion import ClassicMemberState, ClassicState
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release
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


def dismiss_parked(group: ClassicGroup) -> list[Release]:
    """Have every waiting member join again. Timers of the group run out without effect."""
    releases: list[Release] = []
    for member in group.members.values():
        refuse_parked_join(group, member, releases, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        refuse_parked_sync(member, releases, ErrorCode.REBALANCE_IN_PROGRESS)
    return releases


def adopt_group(
    registry: ClassicRegistry,
    state: ClassicState,
    assign: Callable[[str, bytes], bytes],
    now_ms: int,
    rebalance_reason: str | None,
) -> GroupRecord:
    group = ClassicGroup(
        state.group_id,
        state=STABLE,
        state_timestamp_ms=now_ms,
        generation=state.generation,
        protocol_type=state.protocol_type,
    )
    for each in state.members:
        member = ClassicMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            session_timeout_ms=each.session_timeout_ms,
            protocols=tuple(Protocol(name, metadata) for name, metadata in each.protocols),
        )
        group.add(member, state.protocol_type or "")
    group.protocol_name = group.select_protocol()
    group.subscribed_topics = group.read_subscribed_topics()
    for member in group.members.values():
        member.assignment = assign(member.member_id, member.metadata(group.protocol_name))
    record = group.to_record()
    registry.groups.put(group.group_id, group)
    for member in group.members.values():
        registry.arm_session(group, member)
    if rebalance_reason is not None:
        releases: list[Release] = []
        records = prepare_rebalance(registry, group, releases, now_ms, rebalance_reason)
        assert not records, "the group has members, so it is not empty"
        assert not releases, "no request is parked in a new group"
    return record
