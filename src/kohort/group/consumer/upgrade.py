"""
Upgrade: a classic group with members becomes a consumer group when a member joins by ConsumerGroupHeartbeat.

Its members go on with the classic protocol. Group epoch, assignment epoch and member epochs are the generation, and the target
is the last assignment of the classic group. The member that joins raises the epoch. Members whose JoinGroup or SyncGroup waits
join again; if the upgrade fails they wait on (in Kafka they join again then, too).

Source: Kafka GroupMetadataManager.validateOnlineUpgrade, convertToConsumerGroup; ConsumerGroup.fromClassicGroup; KIP-848.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kohort.group.consumer.assignments import assignment_of
from kohort.group.consumer.classic_members.embedded import classic_metadata, with_topic_ids
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember
from kohort.group.consumer.records import current_record, member_record, target_record
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.consumer.removal import session_deadline
from kohort.group.consumer.subscriptions import TopicIndex
from kohort.group.conversion import ClassicMemberState, ClassicState
from kohort.group.groups import CONSUMER, Group
from kohort.group.records import GroupRecord
from kohort.machine.steps import Deadline
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, WireError
from kohort.records.consumer_protocol import read_assignment, read_subscription
from kohort.records.values import ConsumerGroupMetadata, ConsumerGroupTargetAssignmentMetadata

_POLICIES: Final = ("bidirectional", "upgrade")


def upgrade(registry: ConsumerRegistry, classic: Group, records: list[GroupRecord]) -> ConsumerGroup:
    """
    The consumer group that a classic group becomes. It is not in the map of groups: the replay of `records` puts it there.

    Args:
        records: get the conversion.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, the group cannot be upgraded; the message says why. COORDINATOR_LOAD_IN_PROGRESS,
            its members have not voted for a protocol yet: they wait on, and the client sends its heartbeat again. Kafka answers
            UNKNOWN_SERVER_ERROR, which ends the client. UNKNOWN_SERVER_ERROR, the assignments of the members overlap.
    """
    state = registry.classic_groups.export(classic)
    _check(registry, state)
    if state.protocol_name is None:
        raise CoordinatorError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Group {state.group_id} can be upgraded when the first generation of its members is complete.",
        )
    members = [_member(registry, state, each) for each in state.members]
    try:
        group = _group(registry, state, members)
    except InvariantError as error:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    records += classic.tombstones()
    records += _records(group, members)
    return group


def _check(registry: ConsumerRegistry, state: ClassicState) -> None:
    config = registry.config
    if config.group_consumer_migration_policy not in _POLICIES:
        raise _refused(state, "online upgrade is disabled.")
    if state.protocol_type != CONSUMER:
        raise _refused(state, "the group does not use the consumer embedded protocol.")
    if len(state.members) > config.group_consumer_max_size:
        raise _refused(state, "the group size exceeds the consumer group maximum size.")


def _refused(state: ClassicState, reason: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {state.group_id} to consumer group because {reason}",
    )


def _member(registry: ConsumerRegistry, state: ClassicState, member: ClassicMemberState) -> ConsumerMember:
    """
    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND.
    """
    metadata = next((metadata for name, metadata in member.protocols if name == state.protocol_name), b"")
    try:
        subscription = read_subscription(metadata)
        # A member that has never synchronised has no assignment.
        assignment = read_assignment(member.assignment) if member.assignment else None
    except WireError as error:
        raise _refused(state, "the embedded consumer protocol is malformed.") from error
    if assignment is not None and assignment.user_data:
        raise _refused(
            state,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
            "before re-attempting the upgrade.",
        )
    assigned = () if assignment is None else with_topic_ids(assignment.assigned_partitions, registry.context.image)
    return ConsumerMember(
        member.member_id,
        epoch=state.generation,
        previous_epoch=state.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=assignment_of(assigned),
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def _group(registry: ConsumerRegistry, state: ClassicState, members: Sequence[ConsumerMember]) -> ConsumerGroup:
    """A group outside of the shard's timelines."""
    snapshots = SnapshotRegistry()
    group = ConsumerGroup(state.group_id, snapshots, TopicIndex(snapshots))
    for member in members:
        group.put(member)
        group.targets.put(member.member_id, member.assigned)
    group.epoch.set(state.generation)
    group.assignment_epoch.set(state.generation)
    group.metadata_hash.set(registry.metadata_hash(group.subscribed_topics()))
    return group


def _records(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> Iterable[GroupRecord]:
    group_id = group.group_id
    yield from (member_record(group_id, member) for member in members)
    yield ConsumerGroupMetadata(group_id, group.epoch.get(), group.metadata_hash.get())
    yield from (target_record(group_id, member.member_id, member.assigned) for member in members)
    yield ConsumerGroupTargetAssignmentMetadata(group_id, group.assignment_epoch.get())
    yield from (current_record(group_id, member) for member in members)


def upgraded_sessions(group: ConsumerGroup) -> list[Deadline]:
    """The sessions of the members that come from the classic group."""
    return [
        session_deadline(group.group_id, member.member_id, member.classic.session_timeout_ms)
        for member in group.members.values()
        if member.classic is not None
    ]
