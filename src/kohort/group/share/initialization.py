"""
The initialization of share partitions that a heartbeat has found: the share coordinators, then the record of the outcome.

A partition that was noted as initializing and got no outcome (the node died, or the outcome could not be written) is
initialized again by a heartbeat after `group.share.initialize.retry.interval.ms`.

Source: Kafka GroupCoordinatorService.persisterInitialize, handlePersisterInitializeResponse, GroupMetadataManager
.initializeShareGroupState, uninitializeShareGroupState.
"""

from collections.abc import Callable, Sequence

from kohort.group.assignments import common, union
from kohort.group.assignors.specs import Assignment
from kohort.group.context import HasContext
from kohort.group.errors import append_error
from kohort.group.front import GroupFront
from kohort.group.records import GroupRecord
from kohort.group.share.calls import initialize, keys_of
from kohort.group.share.heartbeat import Initialization
from kohort.group.share.registry import registry_of
from kohort.machine.ports import Persister
from kohort.machine.shard import Result
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode

UNKNOWN_OFFSET = -1
"""The leader of the partition chooses the start offset, by `share.auto.offset.reset`."""


def begin_initialization(front: GroupFront, persister: Persister, asked: Initialization) -> None:
    start_offsets = [
        *((key, UNKNOWN_OFFSET) for key in keys_of(asked.group_id, asked.of_new_topics)),
        *((key, 0) for key in keys_of(asked.group_id, asked.of_known_topics)),
    ]
    partitions = union(asked.of_new_topics, asked.of_known_topics)

    def finished(errors: Sequence[CoordinatorError | None]) -> None:
        is_done = all(error is None for error in errors)
        end_initialization(front, asked.group_id, partitions, lambda _: None, is_done=is_done)

    initialize(persister, asked.state_epoch, start_offsets, finished)


def end_initialization(
    front: GroupFront, group_id: str, partitions: Assignment, noted: Callable[[ErrorCode], None], *, is_done: bool
) -> None:
    """Write the outcome. `noted` is called when that is committed, or cannot be written."""
    code: ErrorCode | None = front.runner.write(
        front.partition_for(group_id), Operation(note_outcome, group_id, partitions, is_done), noted, append_error
    )
    if code is not None:
        noted(code)


def note_outcome(
    shard: HasContext, now_ms: int, group_id: str, partitions: Assignment, is_done: bool
) -> Result[GroupRecord, ErrorCode]:
    """
    Write which partitions are initialized, or that they are not being initialized any more.

    Others than those that are initializing are left out: their topic was deleted meanwhile, or their group was made anew. Kafka
    notes them as initialized.
    """
    registry = registry_of(shard)
    group = registry.find(group_id)
    if group is None:
        return Result(response=ErrorCode.NONE)
    image, states = registry.context.image, group.known_states
    partitions = common(partitions, states.initializing)
    if not partitions:
        return Result(response=ErrorCode.NONE)
    changed = states.initialized_too(partitions, image) if is_done else states.not_initializing(partitions, image)
    group.initializing_since_ms = now_ms
    return Result([changed.record(group_id)], ErrorCode.NONE)
