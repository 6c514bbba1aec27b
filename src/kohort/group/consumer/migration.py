"""
The migration of groups with members, between classic and consumer groups.

Upgrade: a classic group becomes a consumer group when a member joins by ConsumerGroupHeartbeat. Its members go on with the
classic protocol. Group epoch, assignment epoch and member epochs are the generation, and the target is the last assignment of
the classic group. The member that joins raises the epoch. Members whose JoinGroup or SyncGroup waits join again; if the upgrade
fails they wait on (in Kafka they join again then, too).

Downgrade: a consumer group becomes a classic group when its last member of the consumer protocol is removed, or is replaced by
a member of the classic protocol. The generation is the group epoch, which the removal does not raise; the assignments are the
targets. If members were removed, or the targets are older than the group epoch, the classic group rebalances at once.

Source: Kafka GroupMetadataManager.validateOnlineUpgrade, convertToConsumerGroup, validateOnlineDowngradeWithFencedMembers,
validateOnlineDowngradeWithReplacedMember, convertToClassicGroup; ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup; KIP-848.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from kohort.group.assignments import assignment_of
from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.rebalance import GroupSteps
from kohort.group.classic.states import STABLE
from kohort.group.consumer.assignments import assignment_bytes, with_topic_ids
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember, classic_metadata
from kohort.group.consumer.records import current_record, member_record, target_record
from kohort.group.consumer.registry import ConsumerRegistry, member_keys
from kohort.group.events import GroupConverted, GroupEvent
from kohort.group.groups import CLASSIC, CONSUMER, session_key
from kohort.group.records import GroupRecord
from kohort.group.subscriptions import TopicIndex
from kohort.machine.shard import Result
from kohort.machine.steps import Wake
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, WireError
from kohort.records.consumer_protocol import read_assignment, read_subscription
from kohort.records.values import ConsumerGroupMetadata, ConsumerGroupTargetAssignmentMetadata

T = TypeVar("T")


# Upgrade


def upgrade(registry: ConsumerRegistry, classic: ClassicGroup, records: list[GroupRecord]) -> ConsumerGroup:
    """
    The consumer group that a classic group becomes. It is not in the map of groups: the replay of `records` puts it there.

    Args:
        records: get the conversion.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, the group cannot be upgraded; the message says why. COORDINATOR_LOAD_IN_PROGRESS,
            its members have not voted for a protocol yet: they wait on, and the client sends its heartbeat again. Kafka answers
            UNKNOWN_SERVER_ERROR, which ends the client. UNKNOWN_SERVER_ERROR, the assignments of the members overlap.
    """
    config = registry.config
    if config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _refused(classic, "online upgrade is disabled.")
    if not classic.is_consumer:
        raise _refused(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > config.group_consumer_max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size.")
    if classic.protocol_name is None:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Group {classic.group_id} can be upgraded when the first generation of its members is complete.",
        )
    members = [_upgraded(registry, classic, member) for member in classic.members.values()]
    try:
        group = _consumer_group(registry, classic, members)
    except InvariantError as error:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    records += classic.tombstones()
    records += _records(group, members)
    return group


def _refused(classic: ClassicGroup, reason: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}",
    )


def _upgraded(registry: ConsumerRegistry, classic: ClassicGroup, member: ClassicMember) -> ConsumerMember:
    """
    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND.
    """
    try:
        subscription = read_subscription(member.metadata(classic.protocol_name))
        # A member that has never synchronised has no assignment.
        assignment = read_assignment(member.assignment) if member.assignment else None
    except WireError as error:
        raise _refused(classic, "the embedded consumer protocol is malformed.") from error
    if assignment is not None and assignment.user_data:
        raise _refused(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
            "before re-attempting the upgrade.",
        )
    assigned = () if assignment is None else with_topic_ids(assignment.assigned_partitions, registry.context.image)
    return ConsumerMember(
        member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=assignment_of(assigned),
        assigned_epochs=classic.generation if assigned else 0,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def _consumer_group(
    registry: ConsumerRegistry, classic: ClassicGroup, members: Sequence[ConsumerMember]
) -> ConsumerGroup:
    """A group outside of the shard's timelines."""
    snapshots = SnapshotRegistry()
    group = ConsumerGroup(classic.group_id, snapshots, TopicIndex(snapshots))
    for member in members:
        group.put(member)
        group.targets.put(member.member_id, member.assigned)
    group.epoch.set(classic.generation)
    group.assignment_epoch.set(classic.generation)
    group.metadata_hash.set(registry.metadata_hash(group.subscribed_topics()))
    return group


def _records(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> Iterable[GroupRecord]:
    group_id = group.group_id
    yield from (member_record(group_id, member) for member in members)
    yield ConsumerGroupMetadata(group_id, group.epoch.get(), group.metadata_hash.get())
    yield from (target_record(group_id, member.member_id, member.assigned) for member in members)
    yield ConsumerGroupTargetAssignmentMetadata(group_id, group.assignment_epoch.get())
    yield from (current_record(group_id, member) for member in members)


def dismiss_waiting(registry: ConsumerRegistry, classic: ClassicGroup) -> Sequence[Wake]:
    """Have every waiting member join again. Deadlines of the classic group run out without effect."""
    steps = GroupSteps(registry.context, classic, 0)
    for member_id in list(classic.waiting):
        steps.refuse_waiting(member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    return steps.result().wakes


# Downgrade


def downgrade_without(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    removed: Collection[ConsumerMember],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
) -> Result[GroupRecord, T] | None:
    """
    Downgrade the group without the members that are removed.

    Returns:
        None if that does not leave members of the classic protocol only, or the group may not be downgraded.
    """
    gone = {member.member_id for member in removed}
    remaining = [member for member in group.members.values() if member.member_id not in gone]
    if not remaining or not is_classic(remaining) or not _is_allowed(registry, len(remaining)):
        return None
    reason = "the group was downgraded: members left"
    return _downgrade(registry, group, remaining, {}, group.tombstones(), events, response, now_ms, reason)


def can_downgrade_by(registry: ConsumerRegistry, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether `replaced` is the last member of the consumer protocol, and the group may be downgraded when it is replaced."""
    others = (member for member in group.members.values() if member.member_id != replaced.member_id)
    return replaced.classic is None and is_classic(others) and _is_allowed(registry, len(group.members))


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
    is_stale: bool,
) -> Result[GroupRecord, T]:
    """
    Downgrade the group because a member of the classic protocol takes the place of its last other member.

    Args:
        joined: the new member, as it is in the group after `records`.
        is_stale: whether the target assignment is older than the group epoch, which a change of the subscription has raised,
            too.
    """
    others = [member for member in group.members.values() if member.member_id != replaced.member_id]
    reason = "the group was downgraded with a stale assignment" if is_stale else None
    holders = {joined.member_id: replaced.member_id}
    removal = [*records, *group.tombstones((replaced.member_id, joined.member_id))]
    return _downgrade(registry, group, [*others, joined], holders, removal, events, response, now_ms, reason)


def is_classic(members: Iterable[ConsumerMember]) -> bool:
    """Whether all members are of the classic protocol."""
    return all(member.classic is not None for member in members)


def _is_allowed(registry: ConsumerRegistry, size: int) -> bool:
    config = registry.config
    return config.group_consumer_migration_policy in ("bidirectional", "downgrade") and size <= config.group_max_size


def _downgrade(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    holders: dict[str, str],
    removal: Sequence[GroupRecord],
    events: Sequence[GroupEvent],
    response: T | None,
    now_ms: int,
    reason: str | None,
) -> Result[GroupRecord, T]:
    """
    Remove the consumer group, and prepare a Stable classic group: the replay of its record, the last one, puts it in place.

    Args:
        holders: by member id, the id under which the group has the member's target.
        removal: the records before that of the classic group.
        reason: starts a rebalance after the record; None leaves the group Stable.
    """
    context, group_id = registry.context, group.group_id
    classic = ClassicGroup(group_id, context.snapshots)
    classic.change(state=STABLE, state_timestamp_ms=now_ms, generation=group.epoch.get())
    for member in members:
        classic.add(_downgraded(group_id, member), CONSUMER)
    protocol = classic.select_protocol()
    classic.change(protocol_name=protocol, subscribed_topics=classic.read_subscribed_topics(protocol))
    steps = GroupSteps(context, classic, now_ms)
    for member_id in group.members:
        for key in member_keys(group_id, member_id):
            steps.cancel(key)
    for each in list(classic.members.values()):
        target = group.targets.get(holders.get(each.member_id, each.member_id))
        assignment = assignment_bytes(target, each.metadata(protocol), context.image)
        classic.members.put(each.member_id, each.changed(assignment=assignment))
        steps.begin_session(each.session, each.session_timeout_ms)
    context.prepared.put(group_id, classic)
    steps.records += [*removal, classic.to_record()]
    for event in (*events, GroupConverted(group_id, CLASSIC)):
        steps.emit(event)
    if reason is not None:
        steps.prepare_rebalance(reason)
    return steps.result(response)


def _downgraded(group_id: str, member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        session=session_key(group_id, member.member_id),
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((each.name, each.metadata) for each in member.classic.supported_protocols),
    )
