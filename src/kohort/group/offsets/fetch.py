"""
OffsetFetch (9), versions 1 to 10, for one group.

2 can ask for everything, 7 for stable offsets only (KIP-447), 8 for several groups (KIP-709, split up by the service), 9
names a member (which classic groups ignore), 10 has topic ids in place of names. The answer is that of version 8 and later;
the service lowers it.

Source: Kafka OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from collections.abc import Callable, Collection, Iterable

from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD
from kohort.group.offsets.offsets import NOTHING, CommittedOffset, GroupOffsets, Offsets, Partition
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
    if not _has_group(registry, request.group_id, committed_offset):
        topics = [_without_offsets(topic) for topic in request.topics or ()]
        return m.OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)
    view = _View(offsets, request.group_id, require_stable=require_stable, at=committed_offset)
    topics = list(view.all_topics()) if request.topics is None else [view.topic(topic) for topic in request.topics]
    return m.OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _has_group(registry: GroupRegistry, group_id: str, at: int | None) -> bool:
    groups = registry.groups
    group = groups.get(group_id) if at is None else groups.get_at(group_id, at)
    return group is not None and group.state is not DEAD


class _View:
    """The offsets of one group at one moment."""

    __slots__ = ("_at", "_committed", "_get", "_pending")

    def __init__(self, offsets: Offsets, group_id: str, *, require_stable: bool, at: int | None) -> None:
        by_group = offsets.by_group
        committed = by_group.get(group_id) if at is None else by_group.get_at(group_id, at)
        self._at = at
        self._committed: GroupOffsets | None = committed
        self._get: Callable[[Partition], CommittedOffset | None] = _nothing
        if committed is not None:
            self._get = committed.get if at is None else committed.getter_at(at)
        self._pending: Collection[Partition] = offsets.writers.get(group_id, ()) if require_stable else ()

    def topic(self, topic: m.OffsetFetchRequestTopics) -> m.OffsetFetchResponseTopics:
        partitions: list[m.OffsetFetchResponsePartitions] = []
        name, topic_id, get, pending = topic.name, topic.topic_id, self._get, self._pending
        for index in topic.partition_indexes:
            offset = get((name, index)) or NOTHING
            if topic_id is not None and offset.topic_id is not None and offset.topic_id != topic_id:
                offset = NOTHING  # of an earlier topic of that name
            is_stable = not pending or (name, index) not in pending
            partitions.append(_partition(index, offset) if is_stable else _partition(index, NOTHING, _UNSTABLE))
        return m.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)

    def all_topics(self) -> Iterable[m.OffsetFetchResponseTopics]:
        """Every committed partition; one that is only pending is not shown."""
        committed, at, pending = self._committed, self._at, self._pending
        if committed is None:
            return
        by_topic: dict[str, list[m.OffsetFetchResponsePartitions]] = {}
        for partition, offset in list(committed.items()) if at is None else committed.items_at(at):
            topic, index = partition
            is_stable = not pending or partition not in pending
            entry = _partition(index, offset) if is_stable else _partition(index, NOTHING, _UNSTABLE)
            entries = by_topic.get(topic)
            if entries is None:
                by_topic[topic] = [entry]
            else:
                entries.append(entry)
        for topic, partitions in by_topic.items():
            yield m.OffsetFetchResponseTopics(name=topic, partitions=partitions)


_NONE = int(ErrorCode.NONE)
_UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _nothing(_: Partition) -> None:
    return None


def _partition(index: int, offset: CommittedOffset, error_code: int = _NONE) -> m.OffsetFetchResponsePartitions:
    return m.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=error_code,
    )


def _without_offsets(topic: m.OffsetFetchRequestTopics) -> m.OffsetFetchResponseTopics:
    return topic_refused(topic, ErrorCode.NONE)


def topic_refused(topic: m.OffsetFetchRequestTopics, code: ErrorCode) -> m.OffsetFetchResponseTopics:
    """A topic whose partitions have no offset to show, because of `code`."""
    partitions = [_partition(index, NOTHING, int(code)) for index in topic.partition_indexes]
    return m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
