"""
DescribeShareGroupOffsets (90), versions 0 and 1: the start offsets of share partitions, and from version 1 on their lag.

Named partitions are asked for whether there is a group or not. An error of a share coordinator shows as an unknown offset, as
in Kafka; a partition that its topic does not have is answered so without asking.

Source: Kafka GroupCoordinatorService.describeShareGroupOffsets, describeShareGroupAllOffsets.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kohort.group.context import HasContext
from kohort.group.errors import append_error
from kohort.group.front import GroupFront
from kohort.group.share.calls import Calls
from kohort.group.share.errors import error_fields
from kohort.group.share.group import ShareGroup
from kohort.machine.gradual import CHUNK, Awaited, chunks
from kohort.machine.ports import LatestOffsets, Persister, SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages as m

_UNKNOWN: Final = -1

Described = m.DescribeShareGroupOffsetsResponseGroup
DescribedPartition = m.DescribeShareGroupOffsetsResponsePartition


class _Topic(NamedTuple):
    """
    Attributes:
        topic_id: None if the topic does not exist.
    """

    name: str
    topic_id: UUID | None
    partition_count: int
    partitions: Sequence[int]


def describe_offsets(
    front: GroupFront, persister: Persister, asked: m.DescribeShareGroupOffsetsRequestGroup
) -> Generator[Any, None, m.DescribeShareGroupOffsetsResponseGroup]:
    """Describe the offsets of one group."""
    if not front.is_active:
        return _refused(asked.group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topics = _all_topics(front, asked.group_id) if asked.topics is None else _named_topics(front, asked)
    if isinstance(topics, ErrorCode):
        return _refused(asked.group_id, topics)
    described = []
    for topic in topics:
        partitions: list[m.DescribeShareGroupOffsetsResponsePartition] = []
        for some in chunks(topic.partitions, CHUNK):
            partitions += yield from _describe(front, persister, asked.group_id, topic, some)
            yield
        described.append(
            m.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return Described(group_id=asked.group_id, topics=described)


def _refused(group_id: str, code: ErrorCode) -> m.DescribeShareGroupOffsetsResponseGroup:
    return Described(group_id=group_id, **error_fields(code))


def _all_topics(front: GroupFront, group_id: str) -> list[_Topic] | ErrorCode:
    """Every initialized partition of a topic that exists; none of a group of another kind."""
    if not group_id:
        return []

    def query(shard: HasContext, committed_offset: int) -> list[_Topic] | ErrorCode:
        group = shard.context.groups.get_at(group_id, committed_offset)
        states = group.states.get_at(committed_offset) if isinstance(group, ShareGroup) else None
        if states is None:
            return []
        found = ((front.image.topic_by_id(topic_id), each) for topic_id, each in states.initialized.items())
        return [
            _Topic(topic.name, topic.topic_id, topic.partition_count, each)
            for topic, each in found
            if topic is not None
        ]

    return front.runner.read(front.partition_for(group_id), query, append_error)


def _named_topics(front: GroupFront, asked: m.DescribeShareGroupOffsetsRequestGroup) -> list[_Topic] | ErrorCode:
    """The topics of a request. Kafka fails if one has no partitions, or if the group id is empty."""
    named = asked.topics or ()
    if named and (not asked.group_id or not all(topic.partitions for topic in named)):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    topics = []
    for each in named:
        topic = front.image.topic(each.topic_name)
        topic_id, count = (None, 0) if topic is None else (topic.topic_id, topic.partition_count)
        topics.append(_Topic(each.topic_name, topic_id, count, each.partitions))
    return topics


def _describe(
    front: GroupFront, persister: Persister, group_id: str, topic: _Topic, partitions: Sequence[int]
) -> Generator[Any, None, list[m.DescribeShareGroupOffsetsResponsePartition]]:
    known = [each for each in partitions if 0 <= each < topic.partition_count]
    states: dict[int, SharePartitionState] = {}
    latest: dict[int, int | CoordinatorError] = {}
    if topic.topic_id is not None and known:
        keys = [SharePartitionKey(group_id, topic.topic_id, each) for each in known]
        summaries: Awaited[list[SharePartitionState | CoordinatorError]] = Awaited()
        Calls(keys, persister.summary, summaries.reply).run()
        answers = yield from summaries.get(None)
        states = {
            each: answer
            for each, answer in zip(known, answers, strict=True)
            if isinstance(answer, SharePartitionState) and answer.start_offset != _UNKNOWN
        }
        latest = yield from _latest(front.latest_offsets, topic.name, list(states))
    return [_described(each, states.get(each), latest.get(each)) for each in partitions]


def _latest(
    latest_offsets: LatestOffsets | None, name: str, partitions: Sequence[int]
) -> Generator[Any, None, dict[int, int | CoordinatorError]]:
    """The ends of partitions."""
    if latest_offsets is None or not partitions:
        return {}
    found: Awaited[list[int | CoordinatorError]] = Awaited()
    Calls([TopicPartition(name, each) for each in partitions], latest_offsets.latest_offset, found.reply).run()
    return dict(zip(partitions, (yield from found.get(None)), strict=True))


def _described(
    partition: int, state: SharePartitionState | None, latest: int | CoordinatorError | None
) -> m.DescribeShareGroupOffsetsResponsePartition:
    if state is None:
        return DescribedPartition(partition_index=partition, start_offset=_UNKNOWN, lag=_UNKNOWN)
    if isinstance(latest, CoordinatorError):
        return DescribedPartition(
            partition_index=partition, start_offset=_UNKNOWN, lag=_UNKNOWN, **error_fields(latest)
        )
    lag = _UNKNOWN
    if latest is not None and state.delivery_complete_count != _UNKNOWN:
        lag = latest - state.start_offset - state.delivery_complete_count
    return DescribedPartition(
        partition_index=partition, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )
