"""
Downgrade: a consumer group becomes a classic group when its last member of the consumer protocol is removed, or is replaced by
a member of the classic protocol.

The generation is the group epoch, which the removal does not raise; the assignments are the targets. If members were removed,
or the new member has another subscription, the classic group rebalances at once.

Source: Kafka GroupMetadataManager.validateOnlineDowngradeWithFencedMembers, validateOnlineDowngradeWithReplacedMember,
convertToClassicGroup; ClassicGroup.fromConsumerGroup; KIP-848.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

from kohort.group.consumer.classic_members.embedded import assignment_bytes
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry, member_keys
from kohort.group.conversion import ClassicMemberState, ClassicState
from kohort.group.events import GroupConverted, GroupEvent
from kohort.group.groups import CLASSIC, CONSUMER
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline

_POLICIES: Final = ("bidirectional", "downgrade")

T = TypeVar("T")


def can_downgrade_without(
    registry: ConsumerRegistry, group: ConsumerGroup, removed: Collection[ConsumerMember]
) -> bool:
    """Whether the removal of these members leaves members of the classic protocol only, and the group may be downgraded."""
    gone = {member.member_id for member in removed}
    remaining = [member for member in group.members.values() if member.member_id not in gone]
    return bool(remaining) and _is_classic(remaining) and _is_allowed(registry, len(remaining))


def can_downgrade_by(registry: ConsumerRegistry, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether `replaced` is the last member of the consumer protocol, and the group may be downgraded when it is replaced."""
    others = (member for member in group.members.values() if member.member_id != replaced.member_id)
    return replaced.classic is None and _is_classic(others) and _is_allowed(registry, len(group.members))


def _is_classic(members: Iterable[ConsumerMember]) -> bool:
    return all(member.classic is not None for member in members)


def _is_allowed(registry: ConsumerRegistry, size: int) -> bool:
    return registry.config.group_consumer_migration_policy in _POLICIES and size <= registry.config.group_max_size


def downgrade_without(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    removed: Collection[ConsumerMember],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
) -> Result[GroupRecord, T]:
    """Downgrade the group without the members that are removed."""
    gone = {member.member_id for member in removed}
    members = [member for member in group.members.values() if member.member_id not in gone]
    adopted = _adopt(registry, group, members, {}, now_ms, "the group was downgraded: members left")
    return _result(group, group.tombstones(), adopted, events, response)


def downgrade_by(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    replaced: ConsumerMember,
    joined: ConsumerMember,
    records: Sequence[GroupRecord],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
    *,
    is_changed: bool,
) -> Result[GroupRecord, T]:
    """
    Downgrade the group because a member of the classic protocol takes the place of its last other member.

    Args:
        joined: the new member, as it is in the group after `records`.
        is_changed: whether its subscription differs from that of the replaced member.
    """
    others = [member for member in group.members.values() if member.member_id != replaced.member_id]
    reason = "the group was downgraded: a static member changed its subscription" if is_changed else None
    holders = {joined.member_id: replaced.member_id}
    adopted = _adopt(registry, group, [*others, joined], holders, now_ms, reason)
    tombstones = group.tombstones((replaced.member_id, joined.member_id))
    return _result(group, [*records, *tombstones], adopted, events, response)


def _adopt(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    holders: dict[str, str],
    now_ms: int,
    reason: str | None,
) -> Result[GroupRecord, None]:
    """
    Prepare the classic group.

    Args:
        holders: by member id, the id under which the group has the member's target.
    """
    state = ClassicState(group.group_id, group.epoch.get(), CONSUMER, None, [_export(member) for member in members])
    targets, image = group.targets, registry.context.image
    return registry.classic_groups.adopt(
        state,
        lambda member_id, metadata: assignment_bytes(targets.get(holders.get(member_id, member_id)), metadata, image),
        now_ms,
        rebalance_reason=reason,
    )


def _result(
    group: ConsumerGroup,
    records: Sequence[GroupRecord],
    adopted: Result[GroupRecord, None],
    events: Sequence[GroupEvent],
    response: T | None,
) -> Result[GroupRecord, T]:
    """Remove the consumer group by its tombstones; the record of the classic group is the last one."""
    cancelled = [Deadline(key) for member_id in group.members for key in member_keys(group.group_id, member_id)]
    return Result(
        [*records, *adopted.records],
        response,
        deadlines=[*cancelled, *adopted.deadlines],
        effects=[*events, GroupConverted(group.group_id, CLASSIC), *adopted.effects],
    )


def _export(member: ConsumerMember) -> ClassicMemberState:
    assert member.classic is not None
    return ClassicMemberState(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        [(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols],
        b"",
    )
