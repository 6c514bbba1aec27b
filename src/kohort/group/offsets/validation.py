"""
Validation of requests about offsets against the topics of the cluster, before the group is asked.

Refused partitions are merged into the response of the shard: one entry per topic, refused partitions before accepted ones.

Source: Kafka KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest, handleOffsetFetchRequest,
handleOffsetDeleteRequest.
"""

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.group.offsets.fetch import topic_refused
from kohort.machine.gradual import HANDLER_STEP, chunks
from kohort.machine.shard import Reply
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage, TopicImage
from kohort.wire import messages as m

TOPIC_IDS_SINCE: Final = 10

_ANY_LENGTH: Final = 1 << 31
_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# OffsetCommit


class CheckedCommit(msgspec.Struct, frozen=True):
    """
    Attributes:
        request: the accepted part, for the shard; every topic has its name.
        refused: the response for the refused part.
    """

    request: m.OffsetCommitRequest
    refused: Sequence[m.OffsetCommitResponseTopic]

    def merge(self, response: m.OffsetCommitResponse) -> m.OffsetCommitResponse:
        merged: _Merged = {}
        for topic in (*self.refused, *response.topics):
            _merge(merged, topic)
        return m.OffsetCommitResponse(topics=[_merged_topic(*found) for found in merged.values()])

    def merge_in_steps(self, response: m.OffsetCommitResponse) -> Generator[None, None, m.OffsetCommitResponse]:
        merged: _Merged = {}
        for topics in chunks((*self.refused, *response.topics), HANDLER_STEP):
            for topic in topics:
                _merge(merged, topic)
            yield
        answered: list[m.OffsetCommitResponseTopic] = []
        for some in chunks(list(merged.values()), HANDLER_STEP):
            answered += [_merged_topic(*found) for found in some]
            yield
        return m.OffsetCommitResponse(topics=answered)

    def merging(self, reply: Reply[m.OffsetCommitResponse]) -> Reply[m.OffsetCommitResponse]:
        return partial(_reply_merged, self, reply)


_Merged: TypeAlias = dict[str | UUID | None, tuple[m.OffsetCommitResponseTopic, list[m.OffsetCommitResponsePartition]]]
"""The first entry of each topic, and the partitions of all its entries."""


def _merge(merged: _Merged, topic: m.OffsetCommitResponseTopic) -> None:
    merged.setdefault(topic.name or topic.topic_id, (topic, []))[1].extend(topic.partitions)


def _merged_topic(
    topic: m.OffsetCommitResponseTopic, partitions: list[m.OffsetCommitResponsePartition]
) -> m.OffsetCommitResponseTopic:
    return m.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _reply_merged(
    checked: CheckedCommit, reply: Reply[m.OffsetCommitResponse], response: m.OffsetCommitResponse
) -> None:
    reply(checked.merge(response))


def check_commit(request: m.OffsetCommitRequest, context: RequestContext, image: ClusterImage) -> CheckedCommit:
    """Refuse missing topics and partitions: UNKNOWN_TOPIC_ID for an id, else UNKNOWN_TOPIC_OR_PARTITION."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    refused: list[m.OffsetCommitResponseTopic] = []
    accepted: list[m.OffsetCommitRequestTopic] = []
    for topic in request.topics:
        _check_topic(topic, _topic_of(topic, image, by_id=by_id), accepted, refused, by_id=by_id)
    return CheckedCommit(_with_topics(request, accepted), refused)


def check_commit_in_steps(
    request: m.OffsetCommitRequest, context: RequestContext, image: ClusterImage
) -> Generator[None, None, CheckedCommit]:
    """As `check_commit`. The caller looks whether topics have changed meanwhile."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    refused: list[m.OffsetCommitResponseTopic] = []
    accepted: list[m.OffsetCommitRequestTopic] = []
    for topics in chunks(request.topics, HANDLER_STEP):
        for topic in topics:
            _check_topic(topic, _topic_of(topic, image, by_id=by_id), accepted, refused, by_id=by_id)
        yield
    return CheckedCommit(_with_topics(request, accepted), refused)


def _topic_of(topic: m.OffsetCommitRequestTopic, image: ClusterImage, *, by_id: bool) -> TopicImage | None:
    return topic_by_id(image, topic.topic_id) if by_id else image.topic(topic.name)


def _check_topic(
    topic: m.OffsetCommitRequestTopic,
    found: TopicImage | None,
    accepted: list[m.OffsetCommitRequestTopic],
    refused: list[m.OffsetCommitResponseTopic],
    *,
    by_id: bool,
) -> None:
    if by_id and found is None:
        refused.append(_commit_refused(topic, topic.name, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
        return
    name = found.name if found is not None else topic.name
    known, unknown = _split(topic.partitions, found)
    if unknown:
        refused.append(_commit_refused(topic, name, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if known:
        accepted.append(m.OffsetCommitRequestTopic(name=name, topic_id=topic.topic_id, partitions=known))


def _with_topics(request: m.OffsetCommitRequest, topics: Sequence[m.OffsetCommitRequestTopic]) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        retention_time_ms=request.retention_time_ms,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def is_plain_commit(request: m.OffsetCommitRequest, context: RequestContext, image: ClusterImage) -> bool:
    """Whether nothing can be refused or merged: topics by name, each once, and every partition exists."""
    topics = request.topics
    if context.api_version >= TOPIC_IDS_SINCE:
        return False
    if len(topics) > 1 and len({topic.name for topic in topics}) != len(topics):
        return False
    for topic in topics:
        found = image.topic(topic.name)
        if found is None or not topic.partitions:
            return False
        count = found.partition_count
        for partition in topic.partitions:
            if not 0 <= partition.partition_index < count:
                return False
    return bool(topics)


def _split(
    partitions: Iterable[m.OffsetCommitRequestPartition], topic: TopicImage | None
) -> tuple[list[m.OffsetCommitRequestPartition], list[m.OffsetCommitRequestPartition]]:
    """The partitions that exist, and the partitions that do not."""
    known: list[m.OffsetCommitRequestPartition] = []
    unknown: list[m.OffsetCommitRequestPartition] = []
    count = 0 if topic is None else topic.partition_count
    for partition in partitions:
        (known if 0 <= partition.partition_index < count else unknown).append(partition)
    return known, unknown


def _commit_refused(
    topic: m.OffsetCommitRequestTopic,
    name: str,
    partitions: Iterable[m.OffsetCommitRequestPartition],
    code: ErrorCode,
) -> m.OffsetCommitResponseTopic:
    return m.OffsetCommitResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        partitions=[
            m.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=int(code))
            for partition in partitions
        ],
    )


def topic_by_id(image: ClusterImage, topic_id: UUID | None) -> TopicImage | None:
    return None if topic_id is None else image.topic_by_id(topic_id)


# TxnOffsetCommit


class CheckedTxnCommit(msgspec.Struct, frozen=True):
    """The accepted part, for the shard, and by topic the partitions that do not exist."""

    request: m.TxnOffsetCommitRequest
    refused: dict[str, list[m.TxnOffsetCommitResponsePartition]]

    def merge(self, response: m.TxnOffsetCommitResponse) -> m.TxnOffsetCommitResponse:
        if not self.refused:
            return response
        merged = {name: list(partitions) for name, partitions in self.refused.items()}
        for topic in response.topics:
            merged.setdefault(topic.name, []).extend(topic.partitions)
        topics = [m.TxnOffsetCommitResponseTopic(name=name, partitions=entries) for name, entries in merged.items()]
        return m.TxnOffsetCommitResponse(topics=topics)

    def merge_in_steps(self, response: m.TxnOffsetCommitResponse) -> Generator[None, None, m.TxnOffsetCommitResponse]:
        if not self.refused:
            return response
        merged: dict[str, list[m.TxnOffsetCommitResponsePartition]] = {}
        for refused in chunks(list(self.refused.items()), HANDLER_STEP):
            merged.update((name, list(partitions)) for name, partitions in refused)
            yield
        for topics in chunks(response.topics, HANDLER_STEP):
            for topic in topics:
                merged.setdefault(topic.name, []).extend(topic.partitions)
            yield
        answered: list[m.TxnOffsetCommitResponseTopic] = []
        for some in chunks(list(merged.items()), HANDLER_STEP):
            answered += [m.TxnOffsetCommitResponseTopic(name=name, partitions=entries) for name, entries in some]
            yield
        return m.TxnOffsetCommitResponse(topics=answered)


_Refused: TypeAlias = dict[str, list[m.TxnOffsetCommitResponsePartition]]


def check_txn_commit(request: m.TxnOffsetCommitRequest, image: ClusterImage) -> CheckedTxnCommit:
    """Refuse missing topics and partitions with UNKNOWN_TOPIC_OR_PARTITION."""
    refused: _Refused = {}
    accepted: list[m.TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        _check_txn_topic(topic, image, accepted, refused)
    return CheckedTxnCommit(_with_txn_topics(request, accepted), refused)


def check_txn_commit_in_steps(
    request: m.TxnOffsetCommitRequest, image: ClusterImage
) -> Generator[None, None, CheckedTxnCommit]:
    """As `check_txn_commit`. The caller looks whether topics have changed meanwhile."""
    refused: _Refused = {}
    accepted: list[m.TxnOffsetCommitRequestTopic] = []
    for topics in chunks(request.topics, HANDLER_STEP):
        for topic in topics:
            _check_txn_topic(topic, image, accepted, refused)
        yield
    return CheckedTxnCommit(_with_txn_topics(request, accepted), refused)


def _check_txn_topic(
    topic: m.TxnOffsetCommitRequestTopic,
    image: ClusterImage,
    accepted: list[m.TxnOffsetCommitRequestTopic],
    refused: _Refused,
) -> None:
    found = image.topic(topic.name)
    count = 0 if found is None else found.partition_count
    known: list[m.TxnOffsetCommitRequestPartition] = []
    for partition in topic.partitions:
        index = partition.partition_index
        if 0 <= index < count:
            known.append(partition)
        else:
            entry = m.TxnOffsetCommitResponsePartition(partition_index=index, error_code=_UNKNOWN_PARTITION)
            refused.setdefault(topic.name, []).append(entry)
    if known:
        accepted.append(m.TxnOffsetCommitRequestTopic(name=topic.name, partitions=known))


def _with_txn_topics(
    request: m.TxnOffsetCommitRequest, topics: Sequence[m.TxnOffsetCommitRequestTopic]
) -> m.TxnOffsetCommitRequest:
    # A request that was read from a frame is no msgspec.Struct, so it is made anew.
    return m.TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


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
                m.OffsetFetchRequestTopics(name=found.name, topic_id=topic.topic_id, partition_indexes=indexes)
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
