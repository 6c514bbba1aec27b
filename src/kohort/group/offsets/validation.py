"""
Validation of OffsetFetch and OffsetDelete against the topics of the cluster, before the group is asked.

Source: Kafka KafkaApis.handleOffsetFetchRequest, handleOffsetDeleteRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kohort.group.offsets.commit_answers import TOPIC_IDS_SINCE, topic_by_id
from kohort.group.offsets.fetch import topic_refused
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage
from kohort.wire import messages as m

_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# OffsetFetch


class CheckedFetch(msgspec.Struct, frozen=True):
    """
    Attributes:
        request: the accepted part, for the shard; every topic has its name.
        refused: topics with an unknown id; they are last in the response.
        ids: in a fetch of all topics by id, the image that gives the ids of names.
    """

    request: m.OffsetFetchRequestGroup
    refused: Sequence[m.OffsetFetchResponseTopics] = ()
    ids: ClusterImage | None = None

    def merge(self, response: m.OffsetFetchResponseGroup) -> m.OffsetFetchResponseGroup:
        if response.error_code:
            return response
        if self.ids is not None:
            topics = list(_with_ids(response.topics, self.ids))
            return msgspec.structs.replace(response, topics=topics)
        if self.refused:
            return msgspec.structs.replace(response, topics=[*response.topics, *self.refused])
        return response


def check_fetch(group: m.OffsetFetchRequestGroup, context: RequestContext, image: ClusterImage) -> CheckedFetch:
    """Resolve topic ids. Names are not checked, as in Kafka."""
    if context.api_version < TOPIC_IDS_SINCE:
        return CheckedFetch(group)
    if group.topics is None:
        return CheckedFetch(group, ids=image)
    refused: list[m.OffsetFetchResponseTopics] = []
    accepted: list[m.OffsetFetchRequestTopics] = []
    for topic in group.topics:
        found = topic_by_id(image, topic.topic_id)
        if found is None:
            refused.append(topic_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            indexes = topic.partition_indexes
            accepted.append(
                m.OffsetFetchRequestTopics(name=found.name, topic_id=found.topic_id, partition_indexes=indexes)
            )
    # A request that was read from a frame is no msgspec.Struct, so it is made anew.
    named = m.OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=accepted
    )
    return CheckedFetch(named, refused)


def _with_ids(
    topics: Iterable[m.OffsetFetchResponseTopics], image: ClusterImage
) -> Iterable[m.OffsetFetchResponseTopics]:
    """Add topic ids; a deleted topic has none and is left out."""
    for topic in topics:
        found = image.topic(topic.name)
        if found is not None:
            yield msgspec.structs.replace(topic, topic_id=found.topic_id)


# OffsetDelete


class CheckedDelete(msgspec.Struct, frozen=True):
    """The accepted part, for the shard, and by topic the partitions that do not exist."""

    request: m.OffsetDeleteRequest
    refused: dict[str, list[m.OffsetDeleteResponsePartition]]

    def merge(self, response: m.OffsetDeleteResponse) -> m.OffsetDeleteResponse:
        """An error of the whole request replaces everything else."""
        if response.error_code or not self.refused:
            return response
        merged = {name: list(partitions) for name, partitions in self.refused.items()}
        for topic in response.topics:
            merged.setdefault(topic.name, []).extend(topic.partitions)
        topics = [m.OffsetDeleteResponseTopic(name=name, partitions=entries) for name, entries in merged.items()]
        return m.OffsetDeleteResponse(topics=topics)


def check_delete(request: m.OffsetDeleteRequest, image: ClusterImage) -> CheckedDelete:
    """Refuse missing topics and partitions; the group is asked even if no partition is left."""
    refused: dict[str, list[m.OffsetDeleteResponsePartition]] = {}
    accepted: list[m.OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        found = image.topic(topic.name)
        count = 0 if found is None else found.partition_count
        known = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        for partition in topic.partitions:
            if not 0 <= partition.partition_index < count:
                entry = m.OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index, error_code=_UNKNOWN_PARTITION
                )
                refused.setdefault(topic.name, []).append(entry)
        if known:
            accepted.append(m.OffsetDeleteRequestTopic(name=topic.name, partitions=known))
    return CheckedDelete(m.OffsetDeleteRequest(group_id=request.group_id, topics=accepted), refused)
