"""
DeleteShareGroupOffsets (92), version 0: delete the states of an empty group, topic by topic. And the deletion of all of them,
which comes before the deletion of a group.

A topic is noted as deleting before its states are deleted, and forgotten when that is done. If it fails, the topic stays so,
and the request may be repeated.

Source: Kafka GroupCoordinatorService.deleteShareGroupOffsets, deleteShareGroups, GroupMetadataManager
.sharePartitionsEligibleForOffsetDeletion, completeDeleteShareGroupOffsets, shareGroupBuildPartitionDeleteRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.context import HasContext
from kohort.group.front import GroupFront
from kohort.group.groups import SHARE
from kohort.group.records import GroupRecord
from kohort.group.share.calls import delete, keys_of
from kohort.group.share.errors import error_fields, refusal_of
from kohort.group.share.registry import ShareRegistry, registry_of
from kohort.group.share.states import ShareStates
from kohort.machine.ports import Persister, SharePartitionKey
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

NOTHING: Final = "There is no offset information to delete."


class DeletionPlan(NamedTuple):
    """
    Attributes:
        refused: by the name of a topic, why it is not deleted.
        topics: the ids of the others, by name.
        partitions: whose states are to be deleted.
    """

    refused: dict[str, CoordinatorError]
    topics: dict[str, UUID]
    partitions: Assignment


def offset_deletion_refused(error: CoordinatorError) -> m.DeleteShareGroupOffsetsResponse:
    return m.DeleteShareGroupOffsetsResponse(**error_fields(error))


def plan_deletion(
    shard: HasContext, _now_ms: int, request: m.DeleteShareGroupOffsetsRequest
) -> Result[GroupRecord, DeletionPlan | CoordinatorError]:
    """
    Note the topics as deleting. A group that never had a state answers with no topic at all.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    registry = registry_of(shard)
    group = registry.get(request.group_id)
    if group.members:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)
    plan = DeletionPlan({}, {}, NO_ASSIGNMENT)
    states, image = group.states.get(), registry.context.image
    if states is None:
        return Result(response=plan)
    for asked in request.topics:
        topic = image.topic(asked.topic_name)
        if topic is None:
            plan.refused[asked.topic_name] = CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.topic_id in states.initialized or topic.topic_id in states.deleting:
            plan.topics[topic.name] = topic.topic_id
        else:
            plan.refused[topic.name] = CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING)
    topic_ids = plan.topics.values()
    plan = plan._replace(partitions=_partitions_of(registry, states, topic_ids))
    return Result([states.deleting_too(topic_ids, image).record(group.group_id)], plan)


def _partitions_of(registry: ShareRegistry, states: ShareStates, topic_ids: Iterable[UUID]) -> Assignment:
    """The partitions of topics that may have a state; all of a topic whose deletion has begun earlier."""
    found: dict[UUID, tuple[int, ...]] = {}
    for topic_id in topic_ids:
        known = {*states.initialized.get(topic_id, ()), *states.initializing.get(topic_id, ())}
        found[topic_id] = tuple(sorted(known or range(registry.partition_count(topic_id))))
    return found


def note_deletion(
    shard: HasContext, _now_ms: int, group_id: str, topic_ids: Sequence[UUID]
) -> Result[GroupRecord, CoordinatorError | ErrorCode]:
    """Forget topics whose states are deleted."""
    registry = registry_of(shard)
    group = registry.find(group_id)
    if group is None:
        return Result(response=ErrorCode.NONE)
    deleted = group.known_states.deleting.intersection(topic_ids)
    states = group.known_states.without_topics(deleted, registry.context.image)
    return Result([states.record(group_id)], ErrorCode.NONE)


class DeletedOffsets:
    """One request, from the plan to the answer."""

    def __init__(
        self,
        front: GroupFront,
        persister: Persister,
        request: m.DeleteShareGroupOffsetsRequest,
        reply: Reply[m.DeleteShareGroupOffsetsResponse],
    ) -> None:
        self._front: Final = front
        self._persister: Final = persister
        self._request: Final = request
        self._reply: Final = reply
        self._partition: Final = front.partition_for(request.group_id)

    def begin(self) -> None:
        plan: DeletionPlan | CoordinatorError | None = self._front.runner.write(
            self._partition, Operation(plan_deletion, self._request), self._planned, refusal_of
        )
        if plan is not None:
            self._planned(plan)

    def _planned(self, plan: DeletionPlan | CoordinatorError) -> None:
        if isinstance(plan, CoordinatorError):
            self._reply(offset_deletion_refused(plan))
            return
        keys = keys_of(self._request.group_id, plan.partitions)
        delete(self._persister, keys, lambda errors: self._deleted(plan, _by_topic(keys, errors)))

    def _deleted(self, plan: DeletionPlan, failed: Mapping[UUID, CoordinatorError]) -> None:
        """Note what is deleted, then answer."""
        response = m.DeleteShareGroupOffsetsResponse(responses=_responses(plan, failed))
        topic_ids = [topic_id for topic_id in plan.topics.values() if topic_id not in failed]

        def noted(outcome: CoordinatorError | ErrorCode) -> None:
            self._reply(response if isinstance(outcome, ErrorCode) else offset_deletion_refused(outcome))

        if not topic_ids:
            self._reply(response)
            return
        operation = Operation(note_deletion, self._request.group_id, topic_ids)
        outcome: CoordinatorError | ErrorCode | None = self._front.runner.write(
            self._partition, operation, noted, refusal_of
        )
        if outcome is not None:
            noted(outcome)


def _by_topic(
    keys: Iterable[SharePartitionKey], errors: Iterable[CoordinatorError | None]
) -> Mapping[UUID, CoordinatorError]:
    """The first error of each topic that has one."""
    found: dict[UUID, CoordinatorError] = {}
    for key, error in zip(keys, errors, strict=True):
        if error is not None:
            found.setdefault(key.topic_id, error)
    return found


def _responses(
    plan: DeletionPlan, failed: Mapping[UUID, CoordinatorError]
) -> list[m.DeleteShareGroupOffsetsResponseTopic]:
    answer = m.DeleteShareGroupOffsetsResponseTopic
    refused = [answer(topic_name=name, **error_fields(error)) for name, error in plan.refused.items()]
    deleted = [
        answer(topic_name=name, topic_id=topic_id, **error_fields(failed.get(topic_id)))
        for name, topic_id in plan.topics.items()
    ]
    return [*deleted, *refused]


# All states of groups that are to be deleted


def prepare_deletion(
    front: GroupFront,
    persister: Persister,
    partition: int,
    group_ids: Sequence[str],
    ready: Callable[[Mapping[str, ErrorCode]], None],
) -> bool:
    """See `kohort.group.kinds.PreparesDeletion`."""

    def share_groups(shard: HasContext, committed_offset: int) -> list[str]:
        groups = shard.context.groups
        found = ((group_id, groups.get_at(group_id, committed_offset)) for group_id in group_ids)
        return [group_id for group_id, group in found if group is not None and group.kind == SHARE]

    share_group_ids = front.runner.read(partition, share_groups, lambda _: [])
    if not share_group_ids:
        return False

    def planned(keys: list[SharePartitionKey]) -> None:
        def deleted(errors: Sequence[CoordinatorError | None]) -> None:
            ready({key.group_id: error.code for key, error in zip(keys, errors, strict=True) if error is not None})

        delete(persister, keys, deleted)

    keys = front.runner.write(partition, Operation(plan_deletions, share_group_ids), planned, lambda _: [])
    if keys is not None:
        planned(keys)
    return True


def plan_deletions(
    shard: HasContext, _now_ms: int, group_ids: Sequence[str]
) -> Result[GroupRecord, list[SharePartitionKey]]:
    """Note all topics of groups without members as deleting, and return the share partitions whose states are to be deleted."""
    registry = registry_of(shard)
    records: list[GroupRecord] = []
    keys: list[SharePartitionKey] = []
    for group_id in group_ids:
        group = registry.find(group_id)
        states = None if group is None or group.members else group.states.get()
        if states is not None:
            records.append(states.deleting_too(states.topic_ids, registry.context.image).record(group_id))
            keys += keys_of(group_id, _partitions_of(registry, states, states.topic_ids))
    return Result(records, keys)
