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
from kohort.group.consumer.emit import emit_all
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.conversion import ClassicMemberState, ClassicState
from kohort.group.events import GroupConverted, GroupEvent
from kohort.group.groups import CLASSIC, CONSUMER, Group
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result

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
    record = _adopt(registry, group, members, {}, now_ms, "the group was downgraded: members left")
    return _result(registry, group, [*group.tombstones(), record], events, response, now_ms)


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
    record = _adopt(registry, group, [*others, joined], holders, now_ms, reason)
    tombstones = group.tombstones((replaced.member_id, joined.member_id))
    return _result(registry, group, [*records, *tombstones, record], events, response, now_ms)


def _adopt(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    holders: dict[str, str],
    now_ms: int,
    reason: str | None,
) -> GroupRecord:
    """
    Put the classic group in place.

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


def _result(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    records: Sequence[GroupRecord],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
) -> Result[GroupRecord, T]:
    """The classic group is in the map already, so the records are only written."""
    classic = registry.groups[group.group_id]
    armed = [member for member in group.members.values() if registry.cancel_timers(group, member.member_id)]
    topics = group.subscribed_topics()
    for topic in topics:
        registry.index.remove(topic, group.group_id)
    after = _Downgraded(registry, group, classic, topics, armed, events, now_ms)
    return Result(records, response, after=after, replayed=False)


class _Downgraded:
    """
    A `kohort.machine.shard.After`: if the records could not be written, the consumer group is there again, and the members that
    wait in the classic group join again.
    """

    __slots__ = ("_armed", "_classic", "_events", "_group", "_now_ms", "_registry", "_topics")

    def __init__(
        self,
        registry: ConsumerRegistry,
        group: ConsumerGroup,
        classic: Group,
        topics: Collection[str],
        armed: Sequence[ConsumerMember],
        events: Sequence[GroupEvent],
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._group = group
        self._classic = classic
        self._topics = topics
        self._armed = armed
        self._events = events
        self._now_ms = now_ms

    def __call__(self, error: Exception | None) -> Iterable[Release]:
        registry, group = self._registry, self._group
        if error is None:
            emit_all(registry.emit, self._events)
            registry.emit(GroupConverted(group.group_id, CLASSIC))
            return ()
        # Requests that came since then may wait in the classic group, which nobody else knows any more.
        releases = registry.classic_groups.dismiss_parked(self._classic)
        present = registry.groups.get(group.group_id)
        if present is self._classic:
            # An earlier batch was full and ended after this operation had put the classic group in place.
            registry.groups.put(group.group_id, group)
            for topic in self._topics:
                registry.index.add(topic, group.group_id)
        elif present is not group:
            # The same batch had created the consumer group, so the failure took that back, too. Kafka puts it into the map
            # again, where it has no members.
            if present is not None:
                registry.context.managers[present.kind].on_loaded(present, self._now_ms)
            return releases
        for member in self._armed:
            registry.arm_timers(group, member)
        return releases
