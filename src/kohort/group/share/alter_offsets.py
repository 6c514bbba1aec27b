"""
AlterShareGroupOffsets (91), version 0: set the start offsets of the share partitions of an empty group.

A group that does not exist is made. The states are made anew, with the epoch of the group. The answer waits for the record of
the outcome, so a description after it shows them; Kafka's does not. Leaders that have a share partition in memory go on with
it.

Source: Kafka GroupCoordinatorService.alterShareGroupOffsets, GroupMetadataManager.completeAlterShareGroupOffsets.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
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
from kohort.machine.ports import Persister, SharePartitionKey
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


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
    shard: HasContext, now_ms: int, request: m.AlterShareGroupOffsetsRequest
) -> Result[GroupRecord, AlterationPlan | CoordinatorError]:
    """
    Note that the states of the partitions are being made.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND (another kind of group), NON_EMPTY_GROUP.
    """
    registry, group_id = registry_of(shard), request.group_id
    found = registry.groups.get(group_id)
    if found is not None and not isinstance(found, ShareGroup):
        raise of_another_kind(group_id, SHARE)
    group = registry.new_group(group_id) if found is None else found
    if group.members:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)
    image = registry.context.image
    plan = AlterationPlan(group.epoch.get(), {}, {})
    for asked in request.topics:
        topic = image.topic(asked.topic_name)
        if topic is None:
            continue
        plan.topics[topic.name] = topic.topic_id
        for partition in asked.partitions:
            if 0 <= partition.partition_index < topic.partition_count:
                key = SharePartitionKey(group_id, topic.topic_id, partition.partition_index)
                plan.start_offsets[key] = partition.start_offset
    if not plan.start_offsets:
        return Result(response=plan)
    if found is None:
        registry.context.prepared.put(group_id, group)
    group.initializing_since_ms = now_ms
    states = group.known_states.initializing_too(assignment_of_keys(plan.start_offsets), image)
    return Result([states.record(group_id)], plan)


class AlteredOffsets:
    """One request, from the plan to the answer."""

    def __init__(
        self,
        front: GroupFront,
        persister: Persister,
        request: m.AlterShareGroupOffsetsRequest,
        reply: Reply[m.AlterShareGroupOffsetsResponse],
    ) -> None:
        self._front: Final = front
        self._persister: Final = persister
        self._request: Final = request
        self._reply: Final = reply

    def begin(self) -> None:
        plan: AlterationPlan | CoordinatorError | None = self._front.runner.write(
            self._front.partition_for(self._request.group_id),
            Operation(plan_alteration, self._request),
            self._planned,
            refusal_of,
        )
        if plan is not None:
            self._planned(plan)

    def _planned(self, plan: AlterationPlan | CoordinatorError) -> None:
        if isinstance(plan, CoordinatorError):
            self._reply(alteration_refused(plan))
            return
        initialize(
            self._persister,
            plan.state_epoch,
            list(plan.start_offsets.items()),
            lambda errors: self._initialized(plan, errors),
        )

    def _initialized(self, plan: AlterationPlan, errors: Sequence[CoordinatorError | None]) -> None:
        """Have the outcome written, then answer. A partition that failed may be tried again after the interval."""
        outcome = dict(zip(plan.start_offsets, errors, strict=True))
        response = self._response(plan, outcome)
        done = assignment_of_keys(key for key, error in outcome.items() if error is None)
        if done:
            group_id = self._request.group_id
            end_initialization(self._front, group_id, done, lambda _: self._reply(response), is_done=True)
        else:
            self._reply(response)

    def _response(
        self, plan: AlterationPlan, outcome: dict[SharePartitionKey, CoordinatorError | None]
    ) -> m.AlterShareGroupOffsetsResponse:
        answers: dict[str, list[m.AlterShareGroupOffsetsResponsePartition]] = {}
        for asked in self._request.topics:
            topic_id = plan.topics.get(asked.topic_name)
            partitions = answers.setdefault(asked.topic_name, [])
            for partition in asked.partitions:
                error: CoordinatorError | ErrorCode | None = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if topic_id is not None:
                    key = SharePartitionKey(self._request.group_id, topic_id, partition.partition_index)
                    error = outcome.get(key, error)
                partitions.append(
                    m.AlterShareGroupOffsetsResponsePartition(
                        partition_index=partition.partition_index, **error_fields(error)
                    )
                )
        topic = m.AlterShareGroupOffsetsResponseTopic
        return m.AlterShareGroupOffsetsResponse(
            responses=[
                topic(topic_name=name, topic_id=plan.topics.get(name), partitions=partitions)
                for name, partitions in answers.items()
            ]
        )
