"""
The target assignment of a consumer group: the assignor that its members prefer, its input, and the records of the result.

Source: Kafka TargetAssignmentBuilder, GroupMetadataManager.updateTargetAssignment.
"""

from collections.abc import Iterable, Mapping

from kohort.group.assignors.errors import AssignorError
from kohort.group.assignors.interface import SteppedAssignor, run_to_end
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupSpec, MemberSpec
from kohort.group.consumer.assignment.background_assignment import assign_in_background, is_large, is_under_way
from kohort.group.consumer.assignment.target_records import target_records
from kohort.group.consumer.epochs import view_after
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember, preferred_assignor
from kohort.group.consumer.registry import ConsumerRegistry
from kohort.group.records import GroupRecord
from kohort.model.errors import CoordinatorError, ErrorCode


def assign(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    updated: ConsumerMember,
    epoch: int,
    records: list[GroupRecord],
) -> tuple[Assignment, int]:
    """
    Compute the target assignment of a group epoch, at once or in the background (`background_assignment`).

    Args:
        updated: the member that the heartbeat changes.
        records: get the targets that change, and the epoch.

    Returns:
        The target of `updated` and its epoch; the present ones if the new target is computed in the background.

    Raises:
        CoordinatorError: UNKNOWN_SERVER_ERROR, the assignor failed.
    """
    present = group.target_of(updated) or NO_ASSIGNMENT, group.assignment_epoch.get()
    # The first member needs an epoch above 0 at once: 0 would tell it to join again.
    may_wait = present[1] > 0 and registry.context.executor is not None
    if may_wait and is_under_way(registry, group.group_id):
        return present
    members = members_after(group, updated)
    assignor = choose_assignor(registry, members.values())
    is_homogeneous = view_after(group, updated).is_homogeneous(len(members))
    spec = group_spec(registry, group, members, is_homogeneous=is_homogeneous)
    if may_wait and is_large(spec, registry):
        assign_in_background(registry, group, assignor, spec, epoch)
        return present
    try:
        assignment = run_to_end(assignor.assign_in_steps(spec, registry))
    except AssignorError as error:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        ) from error
    records += target_records(group, members, assignment, epoch)
    return assignment.get(updated.member_id, NO_ASSIGNMENT), epoch


def members_after(group: ConsumerGroup, updated: ConsumerMember) -> dict[str, ConsumerMember]:
    """The members of the group with `updated` in place of itself, or of the static member whose instance id it takes over."""
    members = dict(group.members)
    holder = group.static_member(updated.instance_id)
    if holder is not None and holder.member_id != updated.member_id:
        del members[holder.member_id]
    members[updated.member_id] = updated
    return members


def choose_assignor(registry: ConsumerRegistry, members: Iterable[ConsumerMember]) -> SteppedAssignor:
    """The assignor that most members prefer, or the first one of the configuration."""
    name = preferred_assignor(members)
    return next((assignor for assignor in registry.assignors if assignor.name == name), registry.assignors[0])


def group_spec(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    *,
    is_homogeneous: bool,
) -> GroupSpec:
    """The input of the assignor. Members with equal subscriptions share one set of topic ids."""
    subscriptions = group.subscriptions
    shared: dict[tuple[frozenset[str], str], frozenset[object]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        key = (member.topic_names, member.topic_pattern)
        topic_ids = shared.get(key)
        if topic_ids is None:
            topic_ids = shared[key] = registry.topic_ids(subscriptions.topics_of(member))
        target = group.target_of(member) or NO_ASSIGNMENT
        specs[member_id] = MemberSpec(topic_ids, target, member.instance_id, member.rack_id)  # type: ignore[arg-type]
    return GroupSpec(specs, is_homogeneous)
