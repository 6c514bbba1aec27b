"""
OffsetFetch (9), versions 1 to 10, for one group.

2 can ask for all partitions, 7 for stable offsets only (KIP-447), 8 for several groups (KIP-709, split up by the service), 9
names a member (classic groups ignore it), 10 has topic ids in place of names. The response has the form of version 8 and later;
`kohort.group.offsets.versions` downgrades it.

Source: Kafka OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.group.context import GroupContext, HasContext
from kohort.group.offsets.offsets import NOTHING, CommittedOffset, Partition
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

Found: TypeAlias = list[Any] | ErrorCode
"""
What a group has of the offsets that a request asks for: for each of its partitions, in order, a `CommittedOffset`, `UNSTABLE`
or None; pairs of `Partition` and `CommittedOffset` if it asks for all; the error of a group that does not answer.
"""

UNSTABLE: Final = msgspec.structs.replace(NOTHING, record_offset=-2)
"""Stands for an offset that a transaction may change."""


def asked_partitions(request: m.OffsetFetchRequestGroup) -> list[Partition] | None:
    """The partitions that a request asks for; None for all. Every topic has its name."""
    if request.topics is None:
        return None
    return [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


def find_offsets(
    context: GroupContext,
    request: m.OffsetFetchRequestGroup,
    partitions: list[Partition] | None,
    *,
    require_stable: bool,
    committed_offset: int | None,
) -> Found:
    """
    Look the offsets of a group up. A missing group has none.

    Args:
        partitions: of the request (`asked_partitions`).
        committed_offset: the offset in the log as of which to read; None for the newest state.
    """
    group_id, groups, offsets, at = request.group_id, context.groups, context.offsets, committed_offset
    group = groups.get(group_id) if at is None else groups.get_at(group_id, at)
    try:
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.validate_offset_fetch(request.member_id, request.member_epoch, at)
    except CoordinatorError as exc:
        return [None] * len(partitions or ()) if exc.code is ErrorCode.GROUP_ID_NOT_FOUND else exc.code
    by_group = offsets.by_group
    committed = by_group.get(group_id) if at is None else by_group.get_at(group_id, at)
    pending: Collection[Partition] = offsets.writers.get(group_id, ()) if require_stable else ()
    if partitions is None:
        pairs = [] if committed is None else list(committed.items() if at is None else committed.items_at(at))
        # A partition with only a pending offset is left out.
        return [(key, UNSTABLE if key in pending else offset) for key, offset in pairs] if pending else pairs
    found: list[CommittedOffset | None] = [None] * len(partitions)
    if committed is not None:
        found = list(map(committed.get if at is None else committed.getter_at(at), partitions))
    if pending:
        found = [UNSTABLE if key in pending else offset for key, offset in zip(partitions, found, strict=True)]
    return found


def find_stable_offsets(
    shard: HasContext, _now_ms: int, request: m.OffsetFetchRequestGroup, partitions: list[Partition] | None
) -> Result[GroupRecord, Found]:
    """`find_offsets` as a write operation: `UNSTABLE` for offsets that a transaction may change."""
    found = find_offsets(shard.context, request, partitions, require_stable=True, committed_offset=None)
    return Result(response=found)


def answer_found(request: m.OffsetFetchRequestGroup, found: Found) -> m.OffsetFetchResponseGroup:
    """The answer of a group, from its offsets. A partition without one has offset -1."""
    if isinstance(found, ErrorCode):
        return fetch_refused(request, found)
    topics: list[m.OffsetFetchResponseTopics] = []
    if request.topics is None:
        by_topic: dict[str, list[m.OffsetFetchResponsePartitions]] = {}
        pairs: list[tuple[Partition, CommittedOffset]] = found
        for (name, index), offset in pairs:
            partitions = by_topic.get(name)
            if partitions is None:
                partitions = by_topic[name] = []
                topics.append(m.OffsetFetchResponseTopics(name=name, partitions=partitions))
            partitions.append(_partition(index, offset))
    else:
        offsets: Iterator[CommittedOffset | None] = iter(found)
        for topic in request.topics:
            of_topic = map(_partition, topic.partition_indexes, offsets)
            if topic.topic_id is not None:
                of_topic = map(partial(_partition_of, topic.topic_id), topic.partition_indexes, offsets)
            topics.append(
                m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=list(of_topic))
            )
    return m.OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


_NONE: Final = int(ErrorCode.NONE)
_UNSTABLE: Final = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
_Partition: Final = m.OffsetFetchResponsePartitions


def _partition(index: int, offset: CommittedOffset | None, error_code: int = _NONE) -> m.OffsetFetchResponsePartitions:
    if offset is None:
        offset = NOTHING
    return _Partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=_UNSTABLE if offset is UNSTABLE else error_code,
    )


def _partition_of(topic_id: UUID, index: int, offset: CommittedOffset | None) -> m.OffsetFetchResponsePartitions:
    committed_in = None if offset is None else offset.topic_id
    # The ids are mostly one object, and to compare two takes a third of an answer.
    if committed_in is not topic_id and committed_in is not None and committed_in != topic_id:
        offset = None  # committed in an earlier topic of that name
    return _partition(index, offset)


def topic_refused(topic: m.OffsetFetchRequestTopics, code: ErrorCode) -> m.OffsetFetchResponseTopics:
    """A topic whose partitions have no offset, with this error code."""
    partitions = [_partition(index, None, int(code)) for index in topic.partition_indexes]
    return m.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def fetch_refused(group: m.OffsetFetchRequestGroup, code: ErrorCode) -> m.OffsetFetchResponseGroup:
    """Refuse a group. Its partitions repeat the error, for versions that have no error per group."""
    topics = [topic_refused(topic, code) for topic in group.topics or ()]
    return m.OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(code), topics=topics)
