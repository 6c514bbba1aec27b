"""
Fetch (1), versions 4 to 18: v5 log start offset; v6 errors of the disk; v7 sessions; v9 leader epochs; v11 racks; v12
diverging epochs; v13 topic ids; v15 replica state; v16 node endpoints; v17 directory ids; v18 a follower's high watermark.

A request that finds fewer than `min_bytes` waits in the purgatory until its partitions have more, at most `max_wait_ms`.
Batches are sent as they were appended, whole and undecoded.

Incremental fetch sessions are in `fetch_sessions`. From v11 on, consumers may fetch from every replica, and the leader names
the replica in the client's rack if a replica selector is configured. Replicas share one log: the fetch of a replica is refused.

Source: KIP-74, KIP-227, KIP-320, KIP-392, KIP-516, KIP-951; Kafka ReplicaManager.fetchMessages, DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.leadership import Leadership
from kohort.broker.partitions import Fetches, LocalPartitions, Partition
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.fetch_answers import TOPIC_IDS_SINCE, failed
from kohort.broker.records.fetch_read import LEADER_ERRORS, READ_COMMITTED, FetchRead
from kohort.broker.records.fetch_sessions import AT_ONCE, FetchContext, FetchSessionCache, SessionPartition, is_long
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.fetch_waiting import DelayedFetch, LaterFetch
from kohort.broker.records.large_batches import Steps
from kohort.broker.records.log_reads import AbandonedError, LogReads
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.limits import FETCH_ANSWER_BYTES_MAX, FETCH_SESSION_PARTITIONS_MAX
from kohort.runtime.ports import Clock
from kohort.wire import messages as m

if TYPE_CHECKING:
    Data = m.FetchResponsePartitionData
    _Answer = Steps[m.FetchResponse | None]

BYTES_MAX = (1 << 31) - 1
"""No limit of the size of a response."""

_FOLLOWERS_SINCE: Final = 11
"""The version from which on a request names the client's rack, and followers answer it."""

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only value of `replica.selector.class`. Source: KIP-392."""

_PAUSE_MS: Final = 500
"""The longest wait of a fetch whose session has an error that Kafka answers at once, and that its client knows."""


class Fetch:
    """Handler of Fetch: reads from several partitions with one limit for the size of the response."""

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
        self.waiting = waiting
        self.unknown_traffic = partitions.traffic.unknown
        slots = config.get_int("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessionCache(slots, clock, FETCH_SESSION_PARTITIONS_MAX // len(cluster.brokers))

    def fetch(self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]) -> m.FetchResponse | None:
        if self.turns.is_full:
            later = LaterFetch(self, request, context, reply)
            context.when_abandoned(later.abandon)
            self.turns.wait(later.handle)
            return None
        return self.fetch_now(request, context, reply)

    def fetch_now(
        self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]
    ) -> m.FetchResponse | None:
        """Begin to handle a request in this turn."""
        api_version = context.api_version
        if request.isolation_level not in (0, READ_COMMITTED):
            return failed(request, api_version)
        read = FetchRead(request, context, self)
        if is_long(request):
            context.when_abandoned(read.abandon)
            context.go_on(self._begin_in_steps(read, reply), reply)
            return None
        try:
            read.session_context = self.sessions.begin(request, uses_ids=api_version >= TOPIC_IDS_SINCE)
        except CoordinatorError as error:
            return m.FetchResponse(error_code=error.code)
        if len(read.session_context.partitions) > AT_ONCE:
            context.when_abandoned(read.abandon)
            context.go_on(self._in_steps(read, reply), reply)
            return None
        read.find()
        is_enough = read.collect()
        if read.missing:
            context.when_abandoned(read.abandon)
            context.go_on(self._read_in_steps(read, reply), reply)
            return None
        if is_enough or not self._may_wait(read):
            return read.respond()
        delayed = DelayedFetch(read, reply, _wait_ms(read))
        delayed.watch(read)
        context.when_abandoned(delayed.abandon)
        return None

    def _may_wait(self, read: FetchRead) -> bool:
        return read.request.max_wait_ms > 0 and (read.valid > 0 or read.session_context.has_quiet)

    def _begin_in_steps(self, read: FetchRead, reply: Reply[m.FetchResponse]) -> _Answer:
        uses_ids = read.context.api_version >= TOPIC_IDS_SINCE
        try:
            read.session_context = yield from self.sessions.begin_in_steps(read.request, uses_ids=uses_ids)
        except CoordinatorError as error:
            return m.FetchResponse(error_code=error.code)
        return (yield from self._in_steps(read, reply))

    def _in_steps(self, read: FetchRead, reply: Reply[m.FetchResponse]) -> _Answer:
        try:
            yield from read.find_in_steps()
        except AbandonedError:
            return None
        return (yield from self._read_in_steps(read, reply))

    def _read_in_steps(self, read: FetchRead, reply: Reply[m.FetchResponse]) -> _Answer:
        """Read many partitions, or from the disk. None if the request waits for more, or nobody waits for the answer."""
        try:
            is_enough = yield from read.collect_in_steps()
            if is_enough or not self._may_wait(read):
                return (yield from read.respond_in_steps())
            delayed = DelayedFetch(read, reply, _wait_ms(read))
            read.context.when_abandoned(delayed.abandon)
            yield from delayed.watch_in_steps(read)
        except AbandonedError:
            pass
        return None

    def bytes_max(self, request: m.FetchRequest, context: Context) -> int:
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

    def finder(self, request: m.FetchRequest, api_version: int) -> Callable[[SessionPartition], Partition | ErrorCode]:
        """The function that finds the `Partition` of a requested one, or the error."""
        refused = _refuse_all(request, api_version)
        if refused is not None:
            return lambda _wanted: refused
        return partial(self._find_by_id if api_version >= TOPIC_IDS_SINCE else self._find, api_version)

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


def _wait_ms(read: FetchRead) -> int:
    wait_ms = read.request.max_wait_ms
    return min(wait_ms, _PAUSE_MS) if read.has_known_error else wait_ms


def _refuse_all(request: m.FetchRequest, api_version: int) -> ErrorCode | None:
    replica_id = request.replica_id if api_version < 15 else request.replica_state.replica_id
    if replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None
