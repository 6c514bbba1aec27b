"""
Target assignments of large groups, computed in the background.

A small group gets its target within the heartbeat that raised its epoch, as in Kafka 4.2. The assignor of a large group would
hold up all other requests: it runs on another thread, over a copy of its input, in steps. Until its result is written, the
members keep their present targets. Members that join meanwhile share the next run, because at most one run per group is under
way.

Kafka 4.2 has no such way; KIP-1263 describes one for later versions.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from kohort.group.assignors.cost import assignment_cost
from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.assignors.specs import GroupAssignment, GroupSpec
from kohort.group.consumer.assignment.target_records import target_records
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.registry import ConsumerRegistry, registry_of
from kohort.group.context import HasContext
from kohort.group.events import AssignmentFailed
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Operation

COST_MAX: Final = 2_000
"""
The largest cost, in units of `kohort.group.assignors.cost`, of an assignor that runs within a heartbeat: one millisecond
compiled, five plain.
"""
RECORDS_AT_ONCE: Final = 500
"""Targets that one operation writes: some milliseconds of work."""


def is_large(spec: GroupSpec, registry: ConsumerRegistry) -> bool:
    """Whether the assignor would hold up other requests. A group smaller than the bound costs no estimate of its topics."""
    return assignment_cost(spec, registry) > COST_MAX


def is_under_way(registry: ConsumerRegistry, group_id: str) -> bool:
    """Whether a target of this group is being computed or written."""
    return group_id in registry.assigning


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
        partial(assignor.assign_in_steps, spec, _partition_counts(spec, registry)),
        partial(_computed, registry, group_id, epoch),
    )


class _Topics:
    """A copy of the partition counts of an input, for another thread. Racks do not change while the node runs."""

    __slots__ = ("_counts", "_registry")

    def __init__(self, counts: Mapping[UUID, int], registry: ConsumerRegistry) -> None:
        self._counts = counts
        self._registry = registry

    def partition_count(self, topic_id: UUID, /) -> int:
        return self._counts.get(topic_id, -1)

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        return self._registry.racks(topic_id, partition)


def _partition_counts(spec: GroupSpec, registry: ConsumerRegistry) -> _Topics:
    return _Topics({topic_id: registry.partition_count(topic_id) for topic_id in spec.topic_ids}, registry)


def _computed(
    registry: ConsumerRegistry,
    group_id: str,
    epoch: int,
    assignment: GroupAssignment | None,
    error: Exception | None,
    _now_ms: int,
) -> Result[GroupRecord, None]:
    """Write the first targets. The next heartbeat starts anew if there is no result."""
    if assignment is None:
        registry.assigning.discard(group_id)
        return Result(effects=[AssignmentFailed(group_id, epoch, str(error))])
    return _write(registry, group_id, epoch, list(assignment), assignment)


def write_targets(
    shard: HasContext, _now_ms: int, group_id: str, epoch: int, member_ids: Sequence[str], assignment: GroupAssignment
) -> Result[GroupRecord, None]:
    """Write the next targets of an assignment."""
    return _write(registry_of(shard), group_id, epoch, member_ids, assignment)


def _write(
    registry: ConsumerRegistry, group_id: str, epoch: int, member_ids: Sequence[str], assignment: GroupAssignment
) -> Result[GroupRecord, None]:
    """Write the targets of these members, or as many as one operation may; the epoch comes last."""
    group = registry.find(group_id)
    if group is None or not _is_current(group, epoch, assignment):
        registry.assigning.discard(group_id)
        return Result()
    some, rest = member_ids[:RECORDS_AT_ONCE], member_ids[RECORDS_AT_ONCE:]
    present = [member_id for member_id in some if member_id in group.members]
    records = target_records(group, present, assignment, None if rest else epoch)
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
