"""
OffsetCommit (8), versions 2 to 10.

2 to 4 may carry a retention time; 6 adds the leader epoch, 7 static members, 10 topic ids in place of names (the service has
put the names back). What is not about the group (do topic and partition exist) is checked by the service.

Source: Kafka OffsetMetadataManager.commitOffset, ClassicGroup.validateOffsetCommit.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from kohort.group.classic.group import NO_MEMBER_ID, ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.offsets.prepared_commits import CommitRun, PreparedCommit
from kohort.group.records import NO_TIMESTAMP_MS, GroupRecord, OffsetCommit, utf16_length
from kohort.machine.shard import Result
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.encoders import PreparedResponse

UNKNOWN_GROUP_HAS_OWN_CODE_SINCE: Final = 9
NO_RETENTION_MS: Final = -1

CommitResult: TypeAlias = Result[GroupRecord, m.OffsetCommitResponse]


def offset_commit(
    registry: GroupRegistry, request: m.OffsetCommitRequest, context: RequestContext, now_ms: int
) -> CommitResult:
    """Log a position per partition. One that is refused for its metadata does not hinder the others."""
    try:
        _check(registry, request, context)
    except CoordinatorError as exc:
        return Result(response=commit_refused(request, exc.code))
    retention_ms = request.retention_time_ms
    expire_ms = NO_TIMESTAMP_MS if retention_ms == NO_RETENTION_MS else now_ms + retention_ms
    records, response = accept(request, registry.config.offset_metadata_max_bytes, now_ms, expire_ms)
    registry.counters.offset_commits += len(records)
    return Result(records, response)


def accept(
    request: m.OffsetCommitRequest, metadata_max: int, now_ms: int, expire_ms: int
) -> tuple[list[OffsetCommit], m.OffsetCommitResponse]:
    """What is logged of a commit that the group allows, and what it is answered."""
    group_id = request.group_id
    records: list[OffsetCommit] = []
    topics: list[m.OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[m.OffsetCommitResponsePartition] = []
        for entry in topic.partitions:
            index, metadata = entry.partition_index, entry.committed_metadata or ""
            if len(metadata) * 2 > metadata_max and utf16_length(metadata) > metadata_max:
                code = _TOO_LARGE
            else:
                code = 0
                offset, leader_epoch = entry.committed_offset, entry.committed_leader_epoch
                records.append(
                    OffsetCommit(
                        group_id, topic.name, index, offset, leader_epoch, metadata, now_ms, expire_ms, topic.topic_id
                    )
                )
            partitions.append(_answer(index, code))
        topics.append(m.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return records, m.OffsetCommitResponse(topics=topics)


def commit_prepared(
    registry: GroupRegistry, plan: PreparedCommit, offsets: tuple[int, ...], context: RequestContext, now_ms: int
) -> Result[GroupRecord, m.OffsetCommitResponse | PreparedResponse]:
    """`offset_commit` of a request that is known but for its offsets."""
    try:
        _check(registry, plan.request, context)
    except CoordinatorError as exc:
        return Result(response=commit_refused(plan.answer, exc.code))
    registry.counters.offset_commits += len(offsets)
    return Result(CommitRun(plan, offsets, now_ms), plan.response)


@lru_cache(maxsize=4_096)
def _answer(partition: int, error_code: int) -> m.OffsetCommitResponsePartition:
    """Most commits are of the same partitions, and go well: one answer serves all of them."""
    return m.OffsetCommitResponsePartition(partition_index=partition, error_code=error_code)


_TOO_LARGE: Final = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


def _check(registry: GroupRegistry, request: m.OffsetCommitRequest, context: RequestContext) -> None:
    """
    May this client move the group's positions? If it is a member, it has shown that it lives.

    Raises:
        CoordinatorError: GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION before version 9), COORDINATOR_NOT_AVAILABLE,
            UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
    """
    group = registry.groups.get(request.group_id)
    if group is None:
        # Without a generation it comes from a tool, or from a consumer that assigns itself; replay makes the group.
        if request.generation_id_or_member_epoch >= 0:
            has_own_code = context.api_version >= UNKNOWN_GROUP_HAS_OWN_CODE_SINCE
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND if has_own_code else ErrorCode.ILLEGAL_GENERATION)
        return
    check_commit(group, request)
    if group.state is STABLE or group.state is PREPARING_REBALANCE:
        registry.arm_session(group, group.members[request.member_id])


def check_commit(group: ClassicGroup, request: m.OffsetCommitRequest) -> None:
    """The rules of a classic group, in Kafka's order; raises as `_check`."""
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    if group.state is DEAD:
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if generation < 0 and group.state is EMPTY:
        return
    if generation < 0 and member_id == NO_MEMBER_ID and request.group_instance_id is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.check_member(member_id, request.group_instance_id)
    if generation != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is COMPLETING_REBALANCE:
        raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)


def commit_refused(request: m.OffsetCommitRequest | m.OffsetCommitResponse, code: ErrorCode) -> m.OffsetCommitResponse:
    """The same error for every partition of a request, or of what would have been its answer."""
    return m.OffsetCommitResponse(
        topics=[
            m.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    m.OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=int(code))
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
