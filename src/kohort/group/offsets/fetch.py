"""
OffsetFetch (9), versions 1 to 10, for one group.

2 can ask for all partitions, 7 for stable offsets only (KIP-447), 8 for several groups (KIP-709, split up by the service), 9
names a member (classic groups ignore it), 10 has topic ids in place of names. The response has the form of version 8 and later;
`kohort.group.offsets.versions` downgrades it.

Source: Kafka OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kohort.group.context import GroupContext
from kohort.group.offsets.offsets import NOTHING, CommittedOffset, GroupOffsets, Offsets, Partition
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m


def fetch_offsets(
    context: GroupContext, request: m.OffsetFetchRequestGroup, *, require_stable: bool, committed_offset: int | None
) -> m.OffsetFetchResponseGroup:
    """
    The committed offsets of a group. A partition without one has offset -1, likewise every partition of a missing group.

    Args:
        committed_offset: the offset in the log as of which to read; None for the newest state.
    """
    group_id, groups = request.group_id, context.groups
    group = groups.get(group_id) if committed_offset is None else groups.get_at(group_id, committed_offset)
    try:
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.validate_offset_fetch(request.member_id, request.member_epoch, committed_offset)
    except CoordinatorError as exc:
        if exc.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return fetch_refused(request, exc.code)
        topics = [topic_refused(topic, ErrorCode.NONE) for topic in request.topics or ()]
        return m.OffsetFetchResponseGroup(group_id=group_id, topics=topics)
    view = _View(context.offsets, group_id, require_stable=require_stable, at=committed_offset)
    topics = list(view.all_topics()) if request.topics is None else [view.topic(topic) for topic in request.topics]
    return m.OffsetFetchResponseGroup(group_id=group_id, topics=topics)


class _View:
    """The offsets of one group, in the newest state or as of an offset of the log."""

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
            if topic_id is not None:
                committed_in = offset.topic_id
                # The ids are mostly one object, and to compare two takes a third of an answer.
                if committed_in is not topic_id and committed_in is not None and committed_in != topic_id:
                    offset = NOTHING  # committed in an earlier topic of that name
            is_stable = not pending or (name, index) not in pending
            partitions.append(_partition(index, offset) if is_stable else _partition(index, NOTHING, _UNSTABLE))
        return m.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)

    def all_topics(self) -> Iterable[m.OffsetFetchResponseTopics]:
        """Every committed partition; a partition with only a pending offset is left out."""
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


_NONE: Final = int(ErrorCode.NONE)
_UNSTABLE: Final = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
_Partition: Final = m.OffsetFetchResponsePartitions


def _nothing(_: Partition) -> None:
    return None


def _partition(index: int, offset: CommittedOffset, error_code: int = _NONE) -> m.OffsetFetchResponsePartitions:
    return _Partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=error_code,
    )


def topic_refused(topic: m.OffsetFetchRequestTopics, code: ErrorCode) -> m.OffsetFetchResponseTopics:
    """A topic whose partitions have no offset, with this error code."""
    partitions = [_partition(index, NOTHING, int(code)) for index in topic.partition_indexes]
    return m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def fetch_refused(group: m.OffsetFetchRequestGroup, code: ErrorCode) -> m.OffsetFetchResponseGroup:
    """Refuse a group. Its partitions repeat the error, for versions that have no error per group."""
    topics = [topic_refused(topic, code) for topic in group.topics or ()]
    return m.OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(code), topics=topics)
