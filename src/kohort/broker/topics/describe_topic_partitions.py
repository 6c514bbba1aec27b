"""
DescribeTopicPartitions (75), version 0: topics by name, in pages of a limited number of partitions, with a cursor.

Source: KIP-966; Kafka DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from heapq import merge
from typing import TYPE_CHECKING

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import Topic
from kohort.broker.cluster import TOPIC_OPERATIONS
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context, Leadership
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.topic_names import name_error
from kohort.machine.gradual import CHUNK, LOOK_STEP, chunks, gathered
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.model.ids import INTERNAL_TOPICS
from kohort.wire import messages as m

if TYPE_CHECKING:
    TopicAnswer = m.DescribeTopicPartitionsResponseTopic


class DescribeTopicPartitions:
    """Handler of DescribeTopicPartitions."""

    def __init__(
        self, catalog: Catalog, leadership: Leadership, publication: Publication, config: BrokerConfig
    ) -> None:
        self._catalog = catalog
        self._leadership = leadership
        self._publication = publication
        self._limit = config.get_int("max.request.partition.size.limit")

    def describe_topic_partitions(
        self,
        request: m.DescribeTopicPartitionsRequest,
        _context: Context,
        _reply: Reply[m.DescribeTopicPartitionsResponse],
    ) -> Generator[None, None, m.DescribeTopicPartitionsResponse]:
        """Describe in steps."""
        requested = {topic.name for topic in request.topics}
        yield
        names: Sequence[str] = list(requested) or self._names()
        cursor = request.cursor
        first = 0
        if cursor is not None:
            if cursor.partition_index < 0 or (requested and cursor.topic_name not in requested):
                return (yield from _refuse((yield from _sorted(list(requested)))))
            first = cursor.partition_index if cursor.topic_name in names else 0
            names = [name for name in names if name >= cursor.topic_name]
        left = max(min(self._limit, request.response_partition_limit), 1)
        return (yield from self._pages((yield from _sorted(names)), first, left))

    def _names(self) -> list[str]:
        return [topic.name for topic in self._catalog.topics() if not self._publication.hides(topic)]

    def _pages(
        self, names: Iterable[str], first: int, left: int
    ) -> Generator[None, None, m.DescribeTopicPartitionsResponse]:
        answers = []
        for number, name in enumerate(names):
            if number % CHUNK == CHUNK - 1:
                yield
            topic = self._catalog.topic(name)
            if topic is None or self._publication.hides(topic):
                answers.append(_missing(name))
                continue
            if left == 0:
                return _response(answers, (name, 0))
            end = min(topic.partition_count, first + left)
            answers.append(self._describe(topic, range(first, end)))
            if end < topic.partition_count:
                return _response(answers, (name, end))
            left -= max(end - first, 0)
            first = 0
        return _response(answers, None)

    def _describe(self, topic: Topic, indexes: range) -> TopicAnswer:
        return m.DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._partition(topic, index) for index in indexes],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(self, topic: Topic, index: int) -> m.DescribeTopicPartitionsResponsePartition:
        """Describe one partition. An offline partition has no leader, no error and an eligible replica. Source: KIP-966."""
        leader = self._leadership.leader(topic, index)
        return m.DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=leader.leader_id,
            leader_epoch=leader.leader_epoch,
            replica_nodes=leader.replicas,
            isr_nodes=leader.isr,
            eligible_leader_replicas=leader.elr,
            last_known_elr=leader.last_known_elr,
            offline_replicas=leader.offline,
        )


def _missing(name: str) -> TopicAnswer:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_error(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return m.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _sorted(names: Sequence[str]) -> Generator[None, None, Iterable[str]]:
    """Sort names in steps."""
    runs = []
    for run in chunks(names, LOOK_STEP):
        runs.append(sorted(run))
        yield
    return merge(*runs)


def _refuse(names: Iterable[str]) -> Generator[None, None, m.DescribeTopicPartitionsResponse]:
    """Refuse an invalid request: every topic has the error."""
    refused = yield from gathered(
        m.DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names
    )
    return m.DescribeTopicPartitionsResponse(topics=refused, next_cursor=None)


def _response(answers: list[TopicAnswer], cursor: tuple[str, int] | None) -> m.DescribeTopicPartitionsResponse:
    following = None
    if cursor is not None:
        following = m.DescribeTopicPartitionsResponseCursor(topic_name=cursor[0], partition_index=cursor[1])
    return m.DescribeTopicPartitionsResponse(topics=answers, next_cursor=following)
