"""The broker of the reads of Fetch requests: partitions, leaders, bounds, and the purgatory of waiting reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions.partitions import Fetches, LocalPartitions, Partition
from kohort.broker.ports import Context, Leadership
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.fetch_answers import LEADER_ERRORS, TOPIC_IDS_SINCE
from kohort.broker.records.fetch_sessions import FetchContext, FetchSessionCache, SessionPartition
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.log_reads import LogReads
from kohort.model.errors import ErrorCode, StorageError
from kohort.model.limits import FETCH_ANSWER_BYTES_MAX, FETCH_SESSION_PARTITIONS_MAX
from kohort.runtime.ports import Clock, HoldAt
from kohort.wire import messages as m

if TYPE_CHECKING:
    Data = m.FetchResponsePartitionData

Find: TypeAlias = Callable[[SessionPartition], Partition | ErrorCode]
Permit: TypeAlias = Callable[[Find, m.FetchRequest, Context, Sequence[SessionPartition]], Find]
"""Has the partitions that a user may not read answered with an error."""

_FOLLOWERS_SINCE: Final = 11
"""The version from which on a request names the client's rack, and followers answer it."""

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only value of `replica.selector.class`. Source: KIP-392."""


class FetchBroker:
    """One broker, as the reads of its Fetch requests see it."""

    def __init__(
        self,
        catalog: Catalog,
        partitions: LocalPartitions,
        leadership: Leadership,
        cluster: Cluster,
        config: BrokerConfig,
        clock: Clock,
        waiting: Fetches,
        bytes_left: Callable[[], int],
        quotas: ClientQuotas,
        turns: FetchTurns,
        log_reads: LogReads,
        permit: Permit | None = None,
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._leadership = leadership
        self._cluster = cluster
        self.node_id = partitions.node_id
        self.is_rack_aware = config.get_str("replica.selector.class") == RACK_AWARE
        self._bytes_max = config.get_int("fetch.max.bytes")
        self._bytes_left = bytes_left
        self.quotas = quotas
        self.turns = turns
        self.log_reads = log_reads
        self._permit = permit
        self.waiting = waiting
        self.hold: HoldAt | None = None
        """Asked before a request that has waited is completed."""
        self.unknown_traffic = partitions.traffic.unknown
        slots = config.get_int("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessionCache(slots, clock, FETCH_SESSION_PARTITIONS_MAX // len(cluster.brokers))

    def bytes_max(self, request: m.FetchRequest | m.ShareFetchRequest, context: Context) -> int:
        bytes_max = max(min(request.max_bytes, self._bytes_max, self._bytes_left(), FETCH_ANSWER_BYTES_MAX), 0)
        if not self.quotas.limits_fetch:
            return bytes_max
        return int(min(bytes_max, self.quotas.fetch.value_max(context.client_id)))

    def withhold(self, session_context: FetchContext) -> int:
        """The session id of the answer to a client that is throttled: it gets nothing, and asks again for the same."""
        return self.sessions.withhold(session_context)

    def node_endpoints(self, answers: Sequence[Data], listener: str) -> list[m.FetchResponseNodeEndpoint]:
        """The addresses of the leaders that answers with errors name."""
        found = []
        for leader_id in {answer.current_leader.leader_id for answer in answers if answer.error_code in LEADER_ERRORS}:
            endpoint = self._cluster.endpoint(leader_id, listener)
            if endpoint is not None:
                rack = self._cluster.brokers[leader_id].rack
                found.append(
                    m.FetchResponseNodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=rack)
                )
        return found

    def current_leader(self, name: str, index: int) -> m.FetchResponseLeaderIdAndEpoch:
        topic = self._catalog.topic(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return m.FetchResponseLeaderIdAndEpoch()
        leader = self._leadership.leader(topic, index)
        return m.FetchResponseLeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)

    def check_follower(self, partition: Partition, api_version: int) -> None:
        """
        Check a partition that another broker leads.

        Raises:
            NotLeaderError: before v11; from v11 on, if this broker has no replica.
            StorageError: the log has failed.
        """
        self._partitions.check(partition, is_leader_asked=api_version < _FOLLOWERS_SINCE)

    def preferred_replica(self, partition: Partition, request: m.FetchRequest, api_version: int) -> int | None:
        """
        The replica from which the client is to fetch; None for this one.

        Source: Kafka ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector; all replicas have all records here.
        """
        rack = request.rack_id
        if not rack or api_version < _FOLLOWERS_SINCE or partition.leader_id != self.node_id:
            return None
        cluster = self._cluster
        near = [replica for replica in partition.replicas if cluster.is_active(replica)]
        near = [replica for replica in near if cluster.brokers[replica].rack == rack]
        return max(near) if near and partition.leader_id not in near else None

    def finder(self, request: m.FetchRequest, context: Context, partitions: Sequence[SessionPartition]) -> Find:
        """The function that finds the `Partition` of each of some requested ones, or the error."""
        find = self._finder(request, context.api_version)
        return find if self._permit is None else self._permit(find, request, context, partitions)

    def _finder(self, request: m.FetchRequest, api_version: int) -> Find:
        if is_of_replica(request, api_version):
            return self._refuse_replica
        return partial(self._find_by_id if api_version >= TOPIC_IDS_SINCE else self._find, api_version)

    def _refuse_replica(self, wanted: SessionPartition) -> ErrorCode:
        """Replicas share one log: none fetches."""
        topic = self._catalog.topic_by_id(wanted.topic_id) if wanted.topic_id else None
        if topic is not None:
            wanted.name = topic.name
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _find(self, api_version: int, wanted: SessionPartition) -> Partition | ErrorCode:
        local = self._partitions
        find = local.find_replica if api_version >= _FOLLOWERS_SINCE else local.find
        try:
            partition = find(wanted.name or "", wanted.requested.partition)
        except StorageError as error:
            return error.code
        return partition or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _find_by_id(self, api_version: int, wanted: SessionPartition) -> Partition | ErrorCode:
        """Find a partition by topic id. A session knows the name of a deleted topic, which a new topic may have by now."""
        topic = self._catalog.topic_by_id(wanted.topic_id) if wanted.topic_id else None
        if topic is not None:
            wanted.name = topic.name
            return self._find(api_version, wanted)
        if wanted.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_taken = self._catalog.topic(wanted.name) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if is_taken else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def is_of_replica(request: m.FetchRequest, api_version: int) -> bool:
    """Whether a request says that it comes from a broker."""
    return (request.replica_id if api_version < 15 else request.replica_state.replica_id) >= 0
