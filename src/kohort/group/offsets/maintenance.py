"""
Background deletion of offsets in one shard: expired offsets at an interval, and the offsets of deleted topics.

Both are done in parts of some milliseconds, one operation each; a timer runs the next part when the last one is written.

Source: Kafka GroupCoordinatorShard.cleanupExpiredOffsets, OffsetMetadataManager.onPartitionsDeleted.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from kohort.group.context import GroupContext
from kohort.group.offsets.deletion import TopicDeletion, topic_tombstones
from kohort.group.offsets.expiry import ExpiredPart, cleanup_expired_offsets
from kohort.group.offsets.scan import OffsetScan
from kohort.group.records import GroupRecord
from kohort.machine.shard import Release, Result
from kohort.machine.timeline import SnapshotRegistry

CLEANUP_TIMER: Final = "expire offsets"
CLEANUP_PART_TIMER: Final = "expire offsets of some groups"
DELETED_TOPICS_TIMER: Final = "delete offsets of deleted topics"


class OffsetMaintenance:
    """The timers that delete offsets."""

    def __init__(self, context: GroupContext, snapshots: SnapshotRegistry) -> None:
        self._context = context
        self._timers = context.timers
        self._snapshots = snapshots
        self._deleted_topics: dict[str, int] = {}
        """As `TopicDeletion.topics`: the topics that wait for the end of the present deletion."""
        self._deletion: TopicDeletion | None = None

    # Expired offsets

    def schedule_cleanup(self) -> None:
        delay_ms = self._context.config.offsets_retention_check_interval_ms
        self._timers.schedule(CLEANUP_TIMER, delay_ms, self._begin_cleanup, retry=True)

    def _begin_cleanup(self, _now_ms: int) -> Result[GroupRecord, None]:
        self.schedule_cleanup()
        self._schedule_cleanup_part(OffsetScan(list(self._context.groups)))
        return Result()

    def _schedule_cleanup_part(self, scan: OffsetScan) -> None:
        self._timers.schedule(CLEANUP_PART_TIMER, 0, partial(self._cleanup_part, scan), retry=True)

    def _cleanup_part(self, scan: OffsetScan, now_ms: int) -> Result[GroupRecord, None]:
        """Expire some offsets; the next part runs when these tombstones are committed, and a part that fails runs again."""
        found = cleanup_expired_offsets(self._context, now_ms, scan)

        def after(error: Exception | None) -> Iterable[Release]:
            if error is None:
                self._expired(found)
            return ()

        return Result(found.records, after=after, is_atomic=False)

    def _expired(self, found: ExpiredPart) -> None:
        for event in found.events:
            self._context.events(event)
        if found.rest is not None:
            self._schedule_cleanup_part(found.rest)

    # Offsets of deleted topics

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete the offsets of topics that were deleted just now. Later commits are of new topics with these names."""
        self._deleted_topics.update(dict.fromkeys(names, self._newest_record_offset()))
        if self._deletion is None:
            self._begin_deletion()
        elif self._timers.is_scheduled(DELETED_TOPICS_TIMER):
            # A part that failed waits for its retry: do it now.
            self._continue_deletion(self._deletion)

    def _newest_record_offset(self) -> int:
        """The offset in the log below which every commit made so far lies, or at which it is."""
        snapshot = self._snapshots.newest
        return max(self._context.offsets.newest_record_offset, -1 if snapshot is None else snapshot.epoch - 1)

    def _begin_deletion(self) -> None:
        topics, self._deleted_topics = self._deleted_topics, {}
        self._continue_deletion(TopicDeletion(topics) if topics else None)

    def _continue_deletion(self, deletion: TopicDeletion | None) -> None:
        self._deletion = deletion
        if deletion is not None:
            self._timers.schedule(DELETED_TOPICS_TIMER, 0, partial(self._delete_part, deletion), retry=True)

    def _delete_part(self, deletion: TopicDeletion, _now_ms: int) -> Result[GroupRecord, None]:
        """As `_cleanup_part`; topics that were deleted meanwhile follow when these are done."""
        records, rest = topic_tombstones(self._context.offsets, deletion)

        def after(error: Exception | None) -> Iterable[Release]:
            # A part whose write timed out runs again, so it may be written twice; only the first one continues.
            if error is None and deletion is self._deletion:
                if rest is None:
                    self._begin_deletion()
                else:
                    self._continue_deletion(rest)
            return ()

        return Result(records, after=after, is_atomic=False)
