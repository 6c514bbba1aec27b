"""
OffsetCommit (8), versions 2 to 10.

2 to 4 may carry a retention time; 6 adds the leader epoch, 7 static members, 10 topic ids in place of names. The service has
answered each partition as if the group allowed the commit (`commit_answers`).

Source: Kafka OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from kohort.group.context import GroupContext, HasContext
from kohort.group.groups import PartitionCheck
from kohort.group.offsets.commit_answers import Entry
from kohort.group.records import GroupRecord
from kohort.machine.bulk import records_of
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.offset_commits import NO_TIMESTAMP_MS
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m

UNKNOWN_GROUP_HAS_OWN_CODE_SINCE: Final = 9
NO_RETENTION_MS: Final = -1
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1


def offset_commit(
    shard: HasContext, now_ms: int, request: m.OffsetCommitRequest, entries: Sequence[Entry], api_version: int
) -> Result[GroupRecord, ErrorCode]:
    """Log the offset of each entry, all in one batch. The response is the code of all partitions asked for."""
    try:
        check = validate(shard.context, committer_of(request), api_version)
        if check is not None:
            check_partitions(shard.context, partitions_of(entries), check)
    except CoordinatorError as exc:
        return Result(response=exc.code)
    retention_ms = request.retention_time_ms
    expire_ms = NO_TIMESTAMP_MS if retention_ms == NO_RETENTION_MS else min(now_ms + retention_ms, TIMESTAMP_MS_MAX)
    return accepted(shard.context, request.group_id, entries, now_ms, expire_ms)


def accepted(
    context: GroupContext, group_id: str, entries: Sequence[Entry], now_ms: int, expire_ms: int
) -> Result[GroupRecord, ErrorCode]:
    """
    The records of a commit that the group allows.

    Args:
        expire_ms: the time at which the offsets expire by the request itself; -1 if the retention of the broker applies.
    """
    context.counters.offset_commits += len(entries)
    return Result(records_of(entries, partial(record, group_id, now_ms, expire_ms)), ErrorCode.NONE)


def record(group_id: str, now_ms: int, expire_ms: int, entry: Entry) -> OffsetCommit:
    """The record of one entry. A value with an expire timestamp has no place for the topic id, so the state has none either."""
    topic, topic_id, partition = entry
    return OffsetCommit(
        group_id,
        topic,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expire_ms,
        topic_id if expire_ms == NO_TIMESTAMP_MS else None,
    )


NamedPartition: TypeAlias = tuple[str, UUID | None, int]
"""Name and id of a topic, and the number of a partition; without an id, the one that the topic has now is meant."""


def partitions_of(entries: Iterable[Entry]) -> Iterable[NamedPartition]:
    """The partitions of a commit."""
    return ((topic, topic_id, partition.partition_index) for topic, topic_id, partition in entries)


def check_partitions(context: GroupContext, partitions: Iterable[NamedPartition], check: PartitionCheck) -> None:
    """
    Check every partition of a commit: one that is refused refuses the whole commit.

    Raises:
        CoordinatorError: as `check`.
    """
    for topic, topic_id, partition in partitions:
        found = context.image.topic(topic) if topic_id is None else None
        check(topic_id if found is None else found.topic_id, partition)


class Committer:
    """The committer, as a request names it. A plain class: compiled code reads its attributes from fixed places."""

    __slots__ = ("generation", "group_id", "instance_id", "member_id")

    def __init__(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        self.group_id: Final = group_id
        self.generation: Final = generation
        self.member_id: Final = member_id
        self.instance_id: Final = instance_id


def committer_of(request: m.OffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )


def validate(context: GroupContext, committer: Committer, api_version: int) -> PartitionCheck | None:
    """
    Ask the group whether the client may commit. A member that may commit is alive.

    Returns:
        The check of each partition, if the group wants them checked.

    Raises:
        CoordinatorError: as `Group.validate_offset_commit`; GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION before version 9) if there
            is no group and the client names a generation.
    """
    group = context.groups.get(committer.group_id)
    generation = committer.generation
    if group is None:
        # Without a generation, replay creates the group: an admin client, or a consumer that assigns partitions to itself.
        if generation >= 0:
            has_own_code = api_version >= UNKNOWN_GROUP_HAS_OWN_CODE_SINCE
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND if has_own_code else ErrorCode.ILLEGAL_GENERATION)
        return None
    member_id = committer.member_id
    check = group.validate_offset_commit(
        member_id, committer.instance_id, generation, api_version, is_transactional=False
    )
    context.managers[group.kind].on_offset_commit(group, member_id)
    return check
