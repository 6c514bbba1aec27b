"""
Background deletion of offsets in one shard: expired offsets at an interval, and the offsets of deleted topics.

Both are done in parts of some milliseconds, one operation each. The next part begins when the last one is committed; a part
that cannot be written runs again, as every operation of a deadline does.

Source: Kafka GroupCoordinatorShard.cleanupExpiredOffsets, OffsetMetadataManager.onTopicsDeleted.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kohort.group.context import GroupContext, HasContext
from kohort.group.offsets.deletion import TopicDeletion, topic_tombstones
from kohort.group.offsets.expiry import cleanup_expired_offsets
from kohort.group.offsets.offsets import DeletedTopic
from kohort.group.offsets.scan import OffsetScan
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.image import TopicImage

_CLEANUP: Final = ("expire offsets",)
_CLEANUP_PART: Final = ("expire offsets of some groups",)
_DELETION_PART: Final = ("delete offsets of deleted topics",)


# Expired offsets


def cleanup_deadline(context: GroupContext) -> Deadline:
    """The deadline of the next cleanup."""
    return Deadline(_CLEANUP, context.config.offsets_retention_check_interval_ms, Operation(begin_cleanup))


def begin_cleanup(shard: HasContext, _now_ms: int) -> Result[GroupRecord, None]:
    context = shard.context
    part = Operation(clean_part, OffsetScan(list(context.groups)))
    return Result(deadlines=[cleanup_deadline(context), Deadline(_CLEANUP_PART, 0, part)])


def clean_part(shard: HasContext, now_ms: int, scan: OffsetScan) -> Result[GroupRecord, None]:
    """Expire some offsets."""
    found = cleanup_expired_offsets(shard.context, now_ms, scan)
    following = None if found.rest is None else Operation(continue_cleanup, found.rest)
    return Result(found.records, effects=found.events, then=following, is_atomic=False)


def continue_cleanup(_shard: HasContext, _now_ms: int, rest: OffsetScan) -> Result[GroupRecord, None]:
    return Result(deadlines=[Deadline(_CLEANUP_PART, 0, Operation(clean_part, rest))])


# Offsets of deleted topics


def delete_topics(context: GroupContext, topics: Sequence[TopicImage]) -> Sequence[Deadline]:
    """Delete the offsets of topics that were deleted just now. Later commits are of new topics with these names."""
    newest = context.offsets.newest_record_offset
    for topic in topics:
        waiting = context.deleted_topics.get(topic.name)
        others = frozenset[UUID]() if waiting is None else waiting.topic_ids
        context.deleted_topics.put(topic.name, DeletedTopic(others | {topic.topic_id}, newest))
    return () if context.is_deleting_topics.get() else _next_deletion(context)


def _next_deletion(context: GroupContext) -> Sequence[Deadline]:
    """Begin with the topics that wait for the end of the present deletion, if there are some."""
    topics = context.deleted_topics.copy()
    context.deleted_topics.clear()
    context.is_deleting_topics.set(bool(topics))
    return [Deadline(_DELETION_PART, 0, Operation(delete_part, TopicDeletion(topics)))] if topics else ()


def delete_part(shard: HasContext, _now_ms: int, deletion: TopicDeletion) -> Result[GroupRecord, None]:
    """Delete some offsets of the topics."""
    records, rest = topic_tombstones(shard.context.offsets, deletion)
    return Result(records, then=Operation(continue_deletion, rest), is_atomic=False)


def continue_deletion(shard: HasContext, _now_ms: int, rest: TopicDeletion | None) -> Result[GroupRecord, None]:
    if rest is None:
        return Result(deadlines=_next_deletion(shard.context))
    return Result(deadlines=[Deadline(_DELETION_PART, 0, Operation(delete_part, rest))])
