"""
OffsetFetch (9), versions 1 to 10, for one group.

2 can ask for everything, 7 for stable offsets only (KIP-447), 8 for several groups (KIP-709, split up by the service), 9
names a member (which classic groups ignore), 10 has topic ids in place of names. The answer is that of version 8 and later;
the service lowers it.

Source: Kafka OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from collections.abc import Iterable

from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD
from kohort.group.offsets.offsets import NOTHING, CommittedOffset, Offsets, Partition
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m


def fetch_offsets(
    registry: GroupRegistry,
    offsets: Offsets,
    request: m.OffsetFetchRequestGroup,
    *,
    require_stable: bool,
    committed_offset: int | None,
) -> m.OffsetFetchResponseGroup:
    """
    The positions of a group. One that has none, and a group that is not there, are no error: the offset is -1.

    Args:
        committed_offset: as of which offset of the log; None for the newest state.
    """
    view = _View(offsets, request.group_id, require_stable=require_stable, at=committed_offset)
    is_known = view.has_group(registry)
    if request.topics is None:
        topics = list(view.all_topics()) if is_known else []
    else:
        topics = [view.topic(topic) if is_known else _without_offsets(topic) for topic in request.topics]
    return m.OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


class _View:
    """The offsets of one group at one moment."""

    __slots__ = ("_at", "_group_id", "_offsets", "_require_stable")

    def __init__(self, offsets: Offsets, group_id: str, *, require_stable: bool, at: int | None) -> None:
        self._offsets = offsets
        self._group_id = group_id
        self._require_stable = require_stable
        self._at = at

    def has_group(self, registry: GroupRegistry) -> bool:
        groups = registry.groups
        group = groups.get(self._group_id) if self._at is None else groups.get_at(self._group_id, self._at)
        return group is not None and group.state is not DEAD

    def topic(self, topic: m.OffsetFetchRequestTopics) -> m.OffsetFetchResponseTopics:
        partitions = []
        for index in topic.partition_indexes:
            offset = self._offset((topic.name, index))
            if offset.topic_id is not None and topic.topic_id is not None and offset.topic_id != topic.topic_id:
                offset = NOTHING  # of an earlier topic of that name
            partitions.append(self._partition(topic.name, index, offset))
        return m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    def all_topics(self) -> Iterable[m.OffsetFetchResponseTopics]:
        """Every committed partition; one that is only pending is not shown."""
        by_topic: dict[str, list[m.OffsetFetchResponsePartitions]] = {}
        for (topic, index), offset in self._committed():
            by_topic.setdefault(topic, []).append(self._partition(topic, index, offset))
        for topic, partitions in by_topic.items():
            yield m.OffsetFetchResponseTopics(name=topic, partitions=partitions)

    def _offset(self, partition: Partition) -> CommittedOffset:
        by_group, at = self._offsets.by_group, self._at
        if at is None:
            return self._offsets.get(self._group_id, partition) or NOTHING
        committed = by_group.get_at(self._group_id, at)
        return NOTHING if committed is None else committed.get_at(partition, at) or NOTHING

    def _committed(self) -> Iterable[tuple[Partition, CommittedOffset]]:
        at = self._at
        if at is None:
            return self._offsets.of_group(self._group_id)
        committed = self._offsets.by_group.get_at(self._group_id, at)
        return () if committed is None else committed.items_at(at)

    def _partition(self, topic: str, index: int, offset: CommittedOffset) -> m.OffsetFetchResponsePartitions:
        if self._require_stable and self._offsets.has_pending(self._group_id, (topic, index)):
            return _partition(index, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _partition(index, offset)


def _partition(
    index: int, offset: CommittedOffset, code: ErrorCode = ErrorCode.NONE
) -> m.OffsetFetchResponsePartitions:
    return m.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=int(code),
    )


def _without_offsets(topic: m.OffsetFetchRequestTopics) -> m.OffsetFetchResponseTopics:
    return topic_refused(topic, ErrorCode.NONE)


def topic_refused(topic: m.OffsetFetchRequestTopics, code: ErrorCode) -> m.OffsetFetchResponseTopics:
    """A topic whose partitions have no offset to show, because of `code`."""
    partitions = [_partition(index, NOTHING, code) for index in topic.partition_indexes]
    return m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
