"""One broker, as ShareFetch and ShareAcknowledge see it: its sessions, its share partitions, leaders and permissions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.features import FEATURE_KIND
from kohort.broker.partitions.partitions import LocalPartitions, Partition
from kohort.broker.ports import Context, Leadership
from kohort.broker.records.fetch_broker import FetchBroker
from kohort.broker.shares.acknowledgement import AcknowledgementBatch
from kohort.broker.shares.led_share_partition import LeaderServices
from kohort.broker.shares.share_leader import ShareLeader
from kohort.broker.shares.share_sessions import ShareSession, ShareSessionCache, TopicIdPartition
from kohort.model.errors import ErrorCode, StorageError
from kohort.model.limits import SHARE_SESSION_PARTITIONS_MAX

Found: TypeAlias = Partition | ErrorCode
ReadableTopics: TypeAlias = Callable[[Context, Collection[str]], Collection[str]]
"""The topics, of some, that a user may read."""

_NO_LEADER: Final = (-1, -1)
_ACKNOWLEDGEMENTS: Final = 5


class EndpointOf(NamedTuple):
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ShareBroker:
    """
    What the handlers of share groups have in common.

    Args:
        fetch_broker: bounds, turns and waits of fetches.
        level: the level of `share.version`.
        readable: decides which topics a user may read; None if everybody may read everything.
    """

    def __init__(
        self,
        catalog: Catalog,
        partitions: LocalPartitions,
        leadership: Leadership,
        cluster: Cluster,
        config: BrokerConfig,
        services: LeaderServices,
        fetch_broker: FetchBroker,
        level: Callable[[], int],
        readable: ReadableTopics | None = None,
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._leadership = leadership
        self._cluster = cluster
        self._readable = readable
        self.fetches = fetch_broker
        self.settings = services.settings
        self.clock = services.clock
        self.call_later = services.call_later
        self.leader = ShareLeader(partitions, services)
        self.sessions = ShareSessionCache(
            config.get_int("group.share.max.share.sessions"),
            SHARE_SESSION_PARTITIONS_MAX // len(cluster.brokers),
            self._on_session_end,
        )
        self.acknowledged = [0] * _ACKNOWLEDGEMENTS
        """Acknowledged records by type."""
        catalog.watch(self.leader.on_change)
        catalog.watch_settings(FEATURE_KIND, self._on_features)
        self._level = level

    def _on_session_end(self, session: ShareSession, is_lost: bool) -> None:
        self.leader.release(session)
        if is_lost and not self.sessions.has_group(session.group_id):
            self.leader.drop_group(session.group_id)

    def _on_features(self, _changed: object) -> None:
        if not self._level():
            self.clear()

    def clear(self) -> None:
        """Forget what a broker does not know after a restart."""
        self.sessions.clear()
        self.leader.clear()

    def finder(self, context: Context, wanted: Iterable[TopicIdPartition]) -> Callable[[TopicIdPartition], Found]:
        """The function that finds each of some partitions that this broker leads, or the error."""
        if self._readable is None:
            return self._find
        names = {self._name(where) for where in wanted}
        allowed = self._readable(context, [name for name in names if name is not None])

        def find(where: TopicIdPartition) -> Found:
            name = self._name(where)
            return (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if name is not None and name not in allowed else self._find(where)
            )

        return find

    def _name(self, where: TopicIdPartition) -> str | None:
        topic = self._catalog.topic_by_id(where.topic_id)
        return None if topic is None else topic.name

    def _find(self, where: TopicIdPartition) -> Found:
        topic = self._catalog.topic_by_id(where.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        try:
            partition = self._partitions.find(topic.name, where.partition)
        except StorageError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition

    def current_leader(self, where: TopicIdPartition) -> tuple[int, int]:
        """The leader of a partition and its epoch."""
        topic = self._catalog.topic_by_id(where.topic_id)
        if topic is None or not 0 <= where.partition < topic.partition_count:
            return _NO_LEADER
        leader = self._leadership.leader(topic, where.partition)
        return leader.leader_id, leader.leader_epoch

    def endpoints(self, node_ids: Iterable[int], listener: str) -> list[EndpointOf]:
        """The addresses of brokers that answers name."""
        found = []
        for node_id in node_ids:
            endpoint = self._cluster.endpoint(node_id, listener)
            if endpoint is not None:
                rack = self._cluster.brokers[node_id].rack
                found.append(EndpointOf(node_id, endpoint.host, endpoint.port, rack))
        return found

    def count(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Count acknowledged records by type."""
        for first, last, types in batches:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                for kind in types:
                    self.acknowledged[kind] += 1
