"""
Metadata (3), versions 0 to 13: v1 null for all topics, controller and internal flag; v2 cluster id; v4 may forbid
auto-creation; v5 offline replicas; v7 leader epoch; v8 authorized operations; v10 topic ids; v12 requests by topic id; v13 an
error of the whole response. DescribeTopicPartitions (75), version 0: topics by name, in pages of a limited number of
partitions, with a cursor.

Brokers have the addresses of the listener on which the request arrived. A partition whose disk failed has no leader.

Source: KIP-516, KIP-951, KIP-966; Kafka KafkaApis.handleTopicMetadataRequest, KRaftMetadataCache,
DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Topic
from kohort.broker.cluster import (
    CLUSTER_OPERATIONS,
    NO_AUTHORIZED_OPERATIONS,
    NO_NODE_ID,
    TOPIC_OPERATIONS,
    Cluster,
)
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context, Leadership
from kohort.broker.topics.creation import TopicCreation
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.topic_names import name_error
from kohort.machine.gradual import CHUNK, HANDLER_STEP, LOOK_STEP, chunks, gathered
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.model.ids import INTERNAL_TOPICS
from kohort.wire import messages as m

if TYPE_CHECKING:
    Answer = m.MetadataResponseTopic
    TopicAnswer = m.DescribeTopicPartitionsResponseTopic
    Steps = Generator[None, None, list[Answer]]

K = TypeVar("K")

_ALL_REPLICAS_SINCE = 1
"""Before, replicas of stopped brokers are left out, with an error."""


class Metadata:
    """Handlers of both APIs, which work in steps: a cluster may have many topics, and a topic many partitions."""

    def __init__(
        self,
        catalog: Catalog,
        leadership: Leadership,
        cluster: Cluster,
        creation: TopicCreation,
        publication: Publication,
        config: BrokerConfig,
    ) -> None:
        self._catalog = catalog
        self._leadership = leadership
        self._cluster = cluster
        self._creation = creation
        self._publication = publication
        self._described = 0
        """Partitions described since the last step of any request."""
        self._partitions_max = config.get_int("max.request.partition.size.limit")
        self._may_create = config.get_bool("auto.create.topics.enable")

    def metadata(
        self, request: m.MetadataRequest, context: Context, _reply: Reply[m.MetadataResponse]
    ) -> Generator[None, None, m.MetadataResponse]:
        refusal = yield from _refuse(request, context.api_version)
        if refusal:
            refused = [_refused(topic, refusal) for topic in request.topics or ()]
            return m.MetadataResponse(topics=refused, error_code=refusal)
        topics = yield from self._topics(request, context)
        return self._response(request, topics, context.listener)

    def _response(self, request: m.MetadataRequest, topics: Sequence[Answer], listener: str) -> m.MetadataResponse:
        cluster = self._cluster
        return m.MetadataResponse(
            brokers=[
                m.MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
                for broker, (host, port) in cluster.live(listener)
            ],
            cluster_id=cluster.cluster_id,
            controller_id=cluster.node_id,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else NO_AUTHORIZED_OPERATIONS,
        )

    def _topics(self, request: m.MetadataRequest, context: Context) -> Steps:
        api_version = context.api_version
        look = _Look(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_AUTHORIZED_OPERATIONS,
            frozenset(broker.node_id for broker, _ in self._cluster.live(context.listener)),
            api_version >= _ALL_REPLICAS_SINCE,
            context,
        )
        wanted = request.topics
        if wanted is None or (not wanted and api_version == 0):
            return (yield from self._by_name(self._names(), look, may_create=False))
        ids: dict[UUID, None] = {}
        names: dict[str, None] = {}
        for number, topic in enumerate(wanted):
            if number % LOOK_STEP == LOOK_STEP - 1:
                yield
            if topic.topic_id is not None:
                ids[topic.topic_id] = None
            else:
                names[topic.name or ""] = None
        if ids:
            return (
                yield from self._find_all(ids, self._catalog.topic_by_id, partial(_unknown_id, look.operations), look)
            )
        may_create = self._may_create and (request.allow_auto_topic_creation or api_version < 4)
        return (yield from self._by_name(names, look, may_create=may_create))

    def _names(self) -> list[str]:
        return [topic.name for topic in self._catalog.topics() if not self._publication.hides(topic)]

    def _find_all(
        self, wanted: Iterable[K], find: Callable[[K], Topic | None], missing: Callable[[K], Answer], look: _Look
    ) -> Steps:
        """Describe topics; existing ones come first."""
        known, unknown = [], []
        for number, each in enumerate(wanted):
            if number % HANDLER_STEP == HANDLER_STEP - 1:
                yield
            topic = find(each)
            if topic is not None and not self._publication.hides(topic):
                known.append((yield from self._known(topic, look)))
            else:
                unknown.append(missing(each))
        return known + unknown

    def _by_name(self, names: Iterable[str], look: _Look, *, may_create: bool) -> Steps:
        return self._find_all(
            names, self._catalog.topic, lambda name: self._missing(name, look, may_create=may_create), look
        )

    def _missing(self, name: str, look: _Look, *, may_create: bool) -> Answer:
        if name_error(name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif may_create:
            code = self._creation.auto_create(name, look.context)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return m.MetadataResponseTopic(
            error_code=code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=look.operations,
        )

    def _known(self, topic: Topic, look: _Look) -> Generator[None, None, Answer]:
        partitions: list[m.MetadataResponsePartition] = []
        for low in range(0, topic.partition_count, HANDLER_STEP):
            if self._described >= HANDLER_STEP:
                self._described = 0
                yield
            high = min(low + HANDLER_STEP, topic.partition_count)
            self._described += high - low
            partitions += [self._partition(topic, index, look) for index in range(low, high)]
        return m.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=look.operations,
        )

    def _partition(self, topic: Topic, index: int, look: _Look) -> m.MetadataResponsePartition:
        """Source: KRaftMetadataCache.partitionMetadata; a 4.2.1 of which one log directory failed."""
        leader = self._leadership.leader(topic, index)
        leader_id, code = leader.leader_id, ErrorCode.NONE
        replicas, isr = leader.replicas, leader.isr
        if not look.has_all_replicas:
            replicas = [replica for replica in replicas if replica in look.live]
            isr = [replica for replica in isr if replica in look.live]
        if leader_id not in look.live:
            code = ErrorCode.LEADER_NOT_AVAILABLE if leader.is_offline else ErrorCode.LISTENER_NOT_FOUND
            leader_id = NO_NODE_ID
        elif len(replicas) < len(leader.replicas) or len(isr) < len(leader.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return m.MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader_id,
            leader_epoch=leader.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=leader.offline,
        )

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
                return (yield from _refuse_cursor((yield from _sorted(list(requested)))))
            first = cursor.partition_index if cursor.topic_name in names else 0
            names = [name for name in names if name >= cursor.topic_name]
        left = max(min(self._partitions_max, request.response_partition_limit), 1)
        return (yield from self._pages((yield from _sorted(names)), first, left))

    def _pages(
        self, names: Iterable[str], first: int, left: int
    ) -> Generator[None, None, m.DescribeTopicPartitionsResponse]:
        answers = []
        for number, name in enumerate(names):
            if number % CHUNK == CHUNK - 1:
                yield
            topic = self._catalog.topic(name)
            if topic is None or self._publication.hides(topic):
                answers.append(_missing_topic(name))
                continue
            if left == 0:
                return _page(answers, (name, 0))
            end = min(topic.partition_count, first + left)
            answers.append(self._describe_topic(topic, range(first, end)))
            if end < topic.partition_count:
                return _page(answers, (name, end))
            left -= max(end - first, 0)
            first = 0
        return _page(answers, None)

    def _describe_topic(self, topic: Topic, indexes: range) -> TopicAnswer:
        return m.DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._described_partition(topic, index) for index in indexes],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _described_partition(self, topic: Topic, index: int) -> m.DescribeTopicPartitionsResponsePartition:
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


def _unknown_id(operations: int, topic_id: UUID) -> Answer:
    return m.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, topic_authorized_operations=operations
    )


class _Look(NamedTuple):
    """
    How one request sees the cluster.

    Attributes:
        operations: the authorized operations to answer.
        live: the brokers with an address on the listener of the request.
        has_all_replicas: whether replicas of stopped brokers are named.
        context: of the request.
    """

    operations: int
    live: frozenset[int]
    has_all_replicas: bool
    context: Context


def _refuse(request: m.MetadataRequest, api_version: int) -> Generator[None, None, ErrorCode | None]:
    """The error of an invalid request: before v12 an entry with an id or without a name, from v12 an entry with neither."""
    for number, topic in enumerate(request.topics or ()):
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
        if api_version < 12 and (topic.name is None or topic.topic_id is not None):
            return ErrorCode.INVALID_REQUEST
        if topic.name is None and topic.topic_id is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _refused(topic: m.MetadataRequestTopic, code: ErrorCode) -> Answer:
    return m.MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)


def _missing_topic(name: str) -> TopicAnswer:
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


def _refuse_cursor(names: Iterable[str]) -> Generator[None, None, m.DescribeTopicPartitionsResponse]:
    """Refuse an invalid request: every topic has the error."""
    refused = yield from gathered(
        m.DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names
    )
    return m.DescribeTopicPartitionsResponse(topics=refused, next_cursor=None)


def _page(answers: list[TopicAnswer], cursor: tuple[str, int] | None) -> m.DescribeTopicPartitionsResponse:
    following = None
    if cursor is not None:
        following = m.DescribeTopicPartitionsResponseCursor(topic_name=cursor[0], partition_index=cursor[1])
    return m.DescribeTopicPartitionsResponse(topics=answers, next_cursor=following)
