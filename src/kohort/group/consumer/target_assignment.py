"""
The target assignment of a consumer group: the assignor that its members prefer, its input, and the records of the result.

A small group gets its target within a heartbeat. The assignor of a large group would
hold up all other requests: it runs on another thread, over a copy of its input, in steps. Until its result is written, the
members keep their present targets. Members that join meanwhile share the next run, because at most one run per group is under
way. Kafka 4.4 runs every assignor within a heartbeat.

Source: Kafka TargetAssignmentBuilder, GroupMetadataManager.updateTargetAssignment.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from kohort.group.assignors.interface import AssignorError, SteppedAssignor, assignment_cost
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.member import ConsumerMember, preferred_assignor
from kohort.group.consumer.records import target_record
from kohort.group.consumer.registry import ConsumerRegistry, registry_of
from kohort.group.context import HasContext
from kohort.group.events import AssignmentFailed
from kohort.group.modern import FIRST_EPOCH
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.values import ConsumerGroupTargetAssignmentMetadata
from kohort.wire.generated.gradual import drain


def target_records(
    group: ConsumerGroup,
    members: Iterable[str],
    assignment: Mapping[str, Assignment],
    epoch: int | None,
    now_ms: int,
    updated: ConsumerMember | None = None,
) -> list[GroupRecord]:
    """
    The targets of these members that change. A member without target gets one, even an empty one.

    Args:
        epoch: of the assignment, for the last record; None if further targets follow.
        updated: the member that the heartbeat changes. Earlier records of the heartbeat give it the target of the static member
            whose instance id it takes over.
    """
    records: list[GroupRecord] = []
    for member_id in members:
        target = assignment.get(member_id, NO_ASSIGNMENT)
        if updated is not None and member_id == updated.member_id:
            old = group.target_of(updated)
        else:
            old = group.targets.get(member_id)
        if old is None or (old is not target and old != target):
            records.append(target_record(group.group_id, member_id, target))
    if epoch is not None:
        records.append(ConsumerGroupTargetAssignmentMetadata(group.group_id, epoch, now_ms))
    return records


COST_MAX: Final = 2_000
"""
The largest cost, in units of `assignment_cost`, of an assignor that runs within a heartbeat: one millisecond
compiled, five plain.
"""
RECORDS_AT_ONCE: Final = 500
"""Targets that one operation writes: some milliseconds of work."""


def assign_in_background(
    registry: ConsumerRegistry, group: ConsumerGroup, assignor: SteppedAssignor, spec: GroupSpec, epoch: int
) -> None:
    """Start to compute the target assignment of a group epoch."""
    executor = registry.context.executor
    assert executor is not None
    registry.assigning.add(group.group_id)
    group_id = group.group_id
    executor.schedule(
        f"assign {group_id}",
        partial(assignor.assign_in_steps, spec, _Topics(spec, registry)),
        partial(_computed, registry, group_id, epoch),
    )


class _Topics:
    """A copy of the partition counts of an input, for another thread. Racks do not change while the node runs."""

    __slots__ = ("_counts", "_registry")

    def __init__(self, spec: GroupSpec, registry: ConsumerRegistry) -> None:
        self._counts = {topic_id: registry.partition_count(topic_id) for topic_id in spec.topic_ids}
        self._registry = registry

    def partition_count(self, topic_id: UUID, /) -> int:
        return self._counts.get(topic_id, -1)

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        return self._registry.racks(topic_id, partition)


def _computed(
    registry: ConsumerRegistry,
    group_id: str,
    epoch: int,
    assignment: GroupAssignment | None,
    error: Exception | None,
    now_ms: int,
) -> Result[GroupRecord, None]:
    """Write the first targets. The next heartbeat starts anew if there is no result."""
    if assignment is None:
        registry.assigning.discard(group_id)
        return Result(effects=[AssignmentFailed(group_id, epoch, str(error))])
    return _write(registry, now_ms, group_id, epoch, list(assignment), assignment)


def write_targets(
    shard: HasContext, now_ms: int, group_id: str, epoch: int, member_ids: Sequence[str], assignment: GroupAssignment
) -> Result[GroupRecord, None]:
    """Write the next targets of an assignment."""
    return _write(registry_of(shard), now_ms, group_id, epoch, member_ids, assignment)


def _write(
    registry: ConsumerRegistry,
    now_ms: int,
    group_id: str,
    epoch: int,
    member_ids: Sequence[str],
    assignment: GroupAssignment,
) -> Result[GroupRecord, None]:
    """Write the targets of these members, or as many as one operation may; the epoch comes last."""
    group = registry.find(group_id)
    if group is None or not _is_current(group, epoch, assignment):
        registry.assigning.discard(group_id)
        return Result()
    some, rest = member_ids[:RECORDS_AT_ONCE], member_ids[RECORDS_AT_ONCE:]
    present = [member_id for member_id in some if member_id in group.members]
    records = target_records(group, present, assignment, None if rest else epoch, now_ms)
    following = Operation(write_targets, group_id, epoch, rest, assignment) if rest else Operation(end_run, group_id)
    return Result(records, then=following, otherwise=Operation(end_run, group_id))


def end_run(
    shard: HasContext, _now_ms: int, group_id: str, _error: Exception | None = None
) -> Result[GroupRecord, None]:
    """Let the next heartbeat start anew, if there is need: the assignment is written, or could not be."""
    registry_of(shard).assigning.discard(group_id)
    return Result()


def _is_current(group: ConsumerGroup, of_epoch: int, assignment: GroupAssignment) -> bool:
    """False if the write that raised the epoch failed, or if another group of this id took the place of the group."""
    epoch = group.epoch.get()
    return epoch > of_epoch or (epoch == of_epoch and group.members.keys() == assignment.keys())


def assign(
    registry: ConsumerRegistry,
    group: ConsumerGroup,
    updated: ConsumerMember,
    epoch: int,
    records: list[GroupRecord],
    now_ms: int,
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
    # The first members of a group do not wait: they have no partitions to go on with.
    may_wait = present[1] > FIRST_EPOCH and registry.context.executor is not None
    if may_wait and group.group_id in registry.assigning:
        return present
    members = members_after(group, updated)
    assignor = choose_assignor(registry, members.values())
    is_homogeneous = group.view_after(updated).is_homogeneous(len(members))
    spec = group_spec(registry, group, members, is_homogeneous=is_homogeneous)
    if may_wait and assignment_cost(spec, registry) > COST_MAX:
        assign_in_background(registry, group, assignor, spec, epoch)
        return present
    try:
        assignment = drain(assignor.assign_in_steps(spec, registry))
    except AssignorError as error:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        ) from error
    records += target_records(group, members, assignment, epoch, now_ms, updated)
    return assignment.get(updated.member_id, NO_ASSIGNMENT), epoch


def members_after(group: ConsumerGroup, updated: ConsumerMember) -> dict[str, ConsumerMember]:
    """The members of the group with `updated` in place of itself, or of the static member whose instance id it takes over."""
    members = dict(group.members)
    holder = group.static_member(updated.instance_id)
    if holder is not None and holder.member_id != updated.member_id:
        del members[holder.member_id]
    members[updated.member_id] = updated
    return members


def assignor_changed(
    registry: ConsumerRegistry, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
) -> bool:
    """Whether the update of a member makes the group prefer another assignor."""
    if updated.server_assignor == member.server_assignor:
        return False
    after = choose_assignor(registry, members_after(group, updated).values())
    return after is not choose_assignor(registry, group.members.values())


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
