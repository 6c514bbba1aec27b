"""
AlterShareGroupOffsets (91), version 0: set the start offsets of the share partitions of an empty group.

A group that does not exist is made. The states are made anew, with the epoch of the group. The answer waits for the record of
the outcome, so a description after it shows them; Kafka's does not. Leaders that have a share partition in memory go on with
it.

Source: Kafka GroupCoordinatorService.alterShareGroupOffsets, GroupMetadataManager.completeAlterShareGroupOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kohort.group.context import HasContext
from kohort.group.front import GroupFront
from kohort.group.groups import SHARE, of_another_kind
from kohort.group.records import GroupRecord
from kohort.group.share.calls import assignment_of_keys, initialize
from kohort.group.share.errors import error_fields, refusal_of
from kohort.group.share.group import ShareGroup
from kohort.group.share.initialization import end_initialization
from kohort.group.share.registry import registry_of
from kohort.machine.gradual import HANDLER_STEP, Awaited, chunks, gathered
from kohort.machine.ports import Persister, SharePartitionKey
from kohort.machine.shard import Result
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.image import ClusterImage
from kohort.wire import messages as m

AskedOffsets = Mapping[str, Mapping[int, int]]
"""The start offsets of a request, by topic and partition, as far as these exist. The last one of a partition counts."""


class AlterationPlan(NamedTuple):
    """
    Attributes:
        topics: their ids by name, as far as they exist.
        start_offsets: of the partitions that exist.
    """

    state_epoch: int
    topics: dict[str, UUID]
    start_offsets: dict[SharePartitionKey, int]


def alteration_refused(error: CoordinatorError) -> m.AlterShareGroupOffsetsResponse:
    return m.AlterShareGroupOffsetsResponse(**error_fields(error))


def plan_alteration(
    shard: HasContext, now_ms: int, group_id: str, asked: AskedOffsets
) -> Result[GroupRecord, AlterationPlan | CoordinatorError]:
    """
    Note that the states of the partitions are being made.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND (another kind of group), NON_EMPTY_GROUP.
    """
    registry = registry_of(shard)
    found = registry.groups.get(group_id)
    if found is not None and not isinstance(found, ShareGroup):
        raise of_another_kind(group_id, SHARE)
    group = registry.new_group(group_id) if found is None else found
    if group.members:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)
    image = registry.context.image
    plan = AlterationPlan(group.epoch.get(), {}, {})
    for name, start_offsets in asked.items():
        topic = image.topic(name)
        if topic is None:
            continue
        plan.topics[name] = topic.topic_id
        for partition, start_offset in start_offsets.items():
            if partition < topic.partition_count:
                plan.start_offsets[SharePartitionKey(group_id, topic.topic_id, partition)] = start_offset
    if not plan.start_offsets:
        return Result(response=plan)
    if found is None:
        registry.context.prepared.put(group_id, group)
    group.initializing_since_ms = now_ms
    states = group.known_states.initializing_too(assignment_of_keys(plan.start_offsets), image)
    return Result([states.record(group_id)], plan)


class Alteration(NamedTuple):
    """The outcome of the partitions of a plan."""

    plan: AlterationPlan
    outcome: Mapping[SharePartitionKey, CoordinatorError | None]


def alter_offsets(
    front: GroupFront, persister: Persister, request: m.AlterShareGroupOffsetsRequest
) -> Generator[Any, None, m.AlterShareGroupOffsetsResponse]:
    """Alter the offsets of a group. What has begun goes on if nobody waits for the answer any more."""
    asked = yield from _asked_offsets(front.image, request)
    awaited: Awaited[Alteration | CoordinatorError] = Awaited()
    _alter(front, persister, request.group_id, asked, awaited.reply)
    altered = yield from awaited.get(None)
    if isinstance(altered, CoordinatorError):
        return alteration_refused(altered)
    return (yield from _response(request, altered))


def _asked_offsets(
    image: ClusterImage, request: m.AlterShareGroupOffsetsRequest
) -> Generator[None, None, AskedOffsets]:
    asked: dict[str, dict[int, int]] = {}
    for each in request.topics:
        topic = image.topic(each.topic_name)
        if topic is not None:
            start_offsets = asked.setdefault(topic.name, {})
            count = topic.partition_count
            for some in chunks(each.partitions, HANDLER_STEP):
                start_offsets.update(
                    {one.partition_index: one.start_offset for one in some if 0 <= one.partition_index < count}
                )
                yield
        yield
    return asked


def _alter(
    front: GroupFront,
    persister: Persister,
    group_id: str,
    asked: AskedOffsets,
    done: Callable[[Alteration | CoordinatorError], None],
) -> None:
    def planned(plan: AlterationPlan | CoordinatorError) -> None:
        if isinstance(plan, CoordinatorError):
            done(plan)
        else:
            start_offsets = list(plan.start_offsets.items())
            initialize(persister, plan.state_epoch, start_offsets, lambda errors: initialized(plan, errors))

    def initialized(plan: AlterationPlan, errors: Sequence[CoordinatorError | None]) -> None:
        """Have the outcome written, then answer. A partition that failed may be tried again after the interval."""
        alteration = Alteration(plan, dict(zip(plan.start_offsets, errors, strict=True)))
        made = assignment_of_keys(key for key, error in alteration.outcome.items() if error is None)
        if made:
            end_initialization(front, group_id, made, lambda _: done(alteration), is_done=True)
        else:
            done(alteration)

    plan: AlterationPlan | CoordinatorError | None = front.runner.write(
        front.partition_for(group_id), Operation(plan_alteration, group_id, asked), planned, refusal_of
    )
    if plan is not None:
        planned(plan)


def _response(
    request: m.AlterShareGroupOffsetsRequest, altered: Alteration
) -> Generator[None, None, m.AlterShareGroupOffsetsResponse]:
    """Answer each topic once, and its partitions as often as they were named."""
    topics, outcome = altered.plan.topics, altered.outcome
    answers: dict[str, list[m.AlterShareGroupOffsetsResponsePartition]] = {}
    for asked in request.topics:
        topic_id = topics.get(asked.topic_name)
        partitions = answers.setdefault(asked.topic_name, [])
        for some in chunks(asked.partitions, HANDLER_STEP):
            for partition in some:
                error: CoordinatorError | ErrorCode | None = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic_id is not None:
                    key = SharePartitionKey(request.group_id, topic_id, partition.partition_index)
                    error = outcome.get(key, error)
                partitions.append(
                    m.AlterShareGroupOffsetsResponsePartition(
                        partition_index=partition.partition_index, **error_fields(error)
                    )
                )
            yield
    topic = m.AlterShareGroupOffsetsResponseTopic
    responses = yield from gathered(
        topic(topic_name=name, topic_id=topics.get(name), partitions=partitions) for name, partitions in answers.items()
    )
    return m.AlterShareGroupOffsetsResponse(responses=responses)
