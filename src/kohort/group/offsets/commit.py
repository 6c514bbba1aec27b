"""
OffsetCommit (8), versions 2 to 10.

2 to 4 may carry a retention time; 6 adds the leader epoch, 7 static members, 10 topic ids in place of names (the service has
replaced them by names). The service has checked that topics and partitions exist (`validation`).

Source: Kafka OffsetMetadataManager.commitOffset.
"""

from functools import lru_cache
from typing import Final, TypeAlias

from kohort.group.context import GroupContext
from kohort.group.records import GroupRecord, utf16_length
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.offset_commits import NO_TIMESTAMP_MS
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m

UNKNOWN_GROUP_HAS_OWN_CODE_SINCE: Final = 9
NO_RETENTION_MS: Final = -1
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1

CommitResult: TypeAlias = Result[GroupRecord, m.OffsetCommitResponse]


def offset_commit(context: GroupContext, request: m.OffsetCommitRequest, api_version: int, now_ms: int) -> CommitResult:
    """Log the offset of each partition. A partition with too long metadata is refused, the others are not."""
    try:
        validate(context, request, api_version)
    except CoordinatorError as exc:
        return Result(response=commit_refused(request, exc.code))
    expire_ms = expire_timestamp_ms(request, now_ms)
    records, response = accept(request, context.config.offset_metadata_max_bytes, now_ms, expire_ms)
    context.counters.offset_commits += len(records)
    return Result(records, response)


def expire_timestamp_ms(request: m.OffsetCommitRequest, now_ms: int) -> int:
    """The time at which the offsets expire by the request itself; -1 if the retention of the broker applies."""
    retention_ms = request.retention_time_ms
    return NO_TIMESTAMP_MS if retention_ms == NO_RETENTION_MS else min(now_ms + retention_ms, TIMESTAMP_MS_MAX)


def accept(
    request: m.OffsetCommitRequest, metadata_max: int, now_ms: int, expire_ms: int
) -> tuple[list[OffsetCommit], m.OffsetCommitResponse]:
    """The records and the response of a commit that the group allows."""
    group_id = request.group_id
    records: list[OffsetCommit] = []
    topics: list[m.OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[m.OffsetCommitResponsePartition] = []
        for entry in topic.partitions:
            index, metadata = entry.partition_index, entry.committed_metadata or ""
            if is_metadata_too_large(metadata, metadata_max):
                code = _TOO_LARGE
            else:
                code = 0
                offset, leader_epoch = entry.committed_offset, entry.committed_leader_epoch
                records.append(
                    OffsetCommit(
                        group_id, topic.name, index, offset, leader_epoch, metadata, now_ms, expire_ms, topic.topic_id
                    )
                )
            partitions.append(answer(index, code))
        topics.append(m.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return records, m.OffsetCommitResponse(topics=topics)


def is_metadata_too_large(metadata: str, metadata_max: int) -> bool:
    """Whether metadata is longer than `offset.metadata.max.bytes`, which counts UTF-16 units."""
    return len(metadata) * 2 > metadata_max and utf16_length(metadata) > metadata_max


@lru_cache(maxsize=4_096)
def answer(partition: int, error_code: int) -> m.OffsetCommitResponsePartition:
    """Cached: most commits name the same partitions and succeed."""
    return m.OffsetCommitResponsePartition(partition_index=partition, error_code=error_code)


_TOO_LARGE: Final = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


def validate(context: GroupContext, request: m.OffsetCommitRequest, api_version: int) -> None:
    """
    Ask the group whether the client may commit. A member that may commit is alive.

    Raises:
        CoordinatorError: as `Group.validate_offset_commit`; GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION before version 9) if there
            is no group and the client names a generation.
    """
    group = context.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        # Without a generation, replay creates the group: an admin client, or a consumer that assigns partitions to itself.
        if generation >= 0:
            has_own_code = api_version >= UNKNOWN_GROUP_HAS_OWN_CODE_SINCE
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND if has_own_code else ErrorCode.ILLEGAL_GENERATION)
        return
    member_id = request.member_id
    group.validate_offset_commit(member_id, request.group_instance_id, generation, api_version, is_transactional=False)
    context.managers[group.kind].on_offset_commit(group, member_id)


def commit_refused(request: m.OffsetCommitRequest | m.OffsetCommitResponse, code: ErrorCode) -> m.OffsetCommitResponse:
    """Refuse every partition of a request, given as the request itself or as its response."""
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
