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

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.leadership import Leadership
from kohort.broker.partitions import Fetches, LocalPartitions, Partition
from kohort.broker.ports import Context
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.fetch_sessions import FetchContext, FetchSessionCache, SessionPartition
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.offset_for_leader_epoch import leader_epoch_error
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.limits import FETCH_ANSWER_BYTES_MAX, FETCH_SESSION_PARTITIONS_MAX
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Delayed
from kohort.storage.log import NO_EPOCH, Log
from kohort.wire import messages as m

if TYPE_CHECKING:
    Requested = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

READ_COMMITTED = 1
BYTES_MAX = (1 << 31) - 1
"""No limit of the size of a response."""

_TOPIC_IDS_SINCE = 13
_STORAGE_ERRORS_SINCE = 6
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors that come with the current leader, and from `_LEADER_SINCE` on with its address."""
_LEADER_SINCE = 16
_FOLLOWERS_SINCE = 11
"""The version from which on a request names the client's rack, and followers answer it."""

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only value of `replica.selector.class`. Source: KIP-392."""

_NO_REPLICA = -1

_PAUSE_MS = 500
"""The longest wait of a fetch whose session has an error that Kafka answers at once, and that its client knows."""

_Target = tuple[SessionPartition, Partition | ErrorCode]


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
        self._waiting = waiting
        self.unknown_traffic = partitions.traffic.unknown
        slots = config.get_int("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessionCache(slots, clock, FETCH_SESSION_PARTITIONS_MAX // len(cluster.brokers))

    def fetch(self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]) -> m.FetchResponse | None:
        if self.turns.is_full:
            later = _LaterFetch(self, request, context, reply)
            context.when_abandoned(later.abandon)
            self.turns.wait(later.handle)
            return None
        return self.fetch_now(request, context, reply)

    def fetch_now(
        self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]
    ) -> m.FetchResponse | None:
        """Handle a request in this turn."""
        api_version = context.api_version
        if request.isolation_level not in (0, READ_COMMITTED):
            return _failed(request, api_version)
        try:
            session_context = self.sessions.begin(request, uses_ids=api_version >= _TOPIC_IDS_SINCE)
        except CoordinatorError as error:
            return m.FetchResponse(error_code=error.code)
        targets = self._targets(session_context, request, api_version)
        session_context.partitions = [wanted for wanted, _ in targets]
        read = _Read(request, context, session_context, targets, self)
        answers, is_enough = read.collect()
        if is_enough or request.max_wait_ms <= 0 or not read.has_partition:
            return read.respond(answers)
        wait_ms = min(request.max_wait_ms, _PAUSE_MS) if read.has_known_error else request.max_wait_ms
        delayed = _DelayedFetch(read, reply, answers, wait_ms)
        self._waiting.watch(delayed, read.partitions)
        context.when_abandoned(delayed.abandon)
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
        for leader_id in {answer.current_leader.leader_id for answer in answers if answer.error_code in _LEADER_ERRORS}:
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

    def _targets(self, session_context: FetchContext, request: m.FetchRequest, api_version: int) -> list[_Target]:
        """Pair each requested partition with its `Partition`, or with an error; pairs with an error come last."""
        refusal = _refuse_all(request, api_version)
        find = self._find_by_id if api_version >= _TOPIC_IDS_SINCE else self._find
        targets = [(wanted, refusal or find(wanted, api_version)) for wanted in session_context.partitions]
        return sorted(targets, key=lambda target: isinstance(target[1], ErrorCode))

    def _find(self, wanted: SessionPartition, api_version: int) -> Partition | ErrorCode:
        local = self._partitions
        find = local.find_replica if api_version >= _FOLLOWERS_SINCE else local.find
        try:
            partition = find(wanted.name or "", wanted.requested.partition)
        except StorageError as error:
            return error.code
        return partition or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _find_by_id(self, wanted: SessionPartition, api_version: int) -> Partition | ErrorCode:
        """Find a partition by topic id. A session knows the name of a deleted topic, which a new topic may have by now."""
        topic = self._catalog.topic_by_id(wanted.topic_id) if wanted.topic_id else None
        if topic is not None:
            wanted.name = topic.name
            return self._find(wanted, api_version)
        if wanted.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_taken = self._catalog.topic(wanted.name) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if is_taken else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refuse_all(request: m.FetchRequest, api_version: int) -> ErrorCode | None:
    replica_id = request.replica_id if api_version < 15 else request.replica_state.replica_id
    if replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None


def _failed(request: m.FetchRequest, api_version: int) -> m.FetchResponse:
    """The answer to an unknown isolation level. Source: FetchRequest.getErrorResponse."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    has_partitions = api_version < _TOPIC_IDS_SINCE
    responses = [
        m.FetchableTopicResponse(
            topic=topic.topic,
            partitions=[_refusal(requested, code, aborted_transactions=()) for requested in topic.partitions],
        )
        for topic in (request.topics if has_partitions else ())
    ]
    return m.FetchResponse(error_code=code, session_id=request.session_id, responses=responses)


_NOT_READ = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors of partitions whose log was not read."""

_NO_FAILURES = frozenset(
    {
        *_NOT_READ,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that do not count as failed Fetch requests."""


@dataclass(slots=True)
class _Read:
    """One request with its partitions. It can be executed repeatedly, as the partitions get more data."""

    request: m.FetchRequest
    context: Context
    session_context: FetchContext
    targets: list[_Target]
    fetch: Fetch

    @property
    def partitions(self) -> list[Partition]:
        return [where for _, where in self.targets if isinstance(where, Partition)]

    @property
    def has_partition(self) -> bool:
        return any(isinstance(where, Partition) for _, where in self.targets)

    @property
    def has_known_error(self) -> bool:
        """
        Whether a topic of the session was created again, and its client knows.

        Kafka answers this error, which comes from reading, at once each time. A client that takes no notice would never rest.
        """
        changed = ErrorCode.INCONSISTENT_TOPIC_ID
        return any(where is changed and wanted.error_code == where for wanted, where in self.targets)

    @property
    def bytes_min(self) -> int:
        """So many bytes are enough to respond."""
        return min(self.request.min_bytes, self.fetch.bytes_max(self.request, self.context))

    def read_one(self, number: int, found: int) -> Data:
        """Read one of `targets`, a partition, with the room that `found` bytes of the others leave."""
        wanted, where = self.targets[number]
        assert isinstance(where, Partition)
        bytes_left = max(self.fetch.bytes_max(self.request, self.context) - found, 0)
        return self._read(wanted.requested, where, bytes_left, is_first=found == 0)

    def collect(self, number: int = -1, known: Data | None = None) -> tuple[list[Data], bool]:
        """
        Read all partitions. Return the answers, and whether to respond now: enough bytes, an error or a truncated log.

        Args:
            number, known: the place of a partition in `targets`, and what was just read of it.
        """
        bytes_left = self.fetch.bytes_max(self.request, self.context)
        bytes_min = self.bytes_min
        is_urgent = False
        found = 0
        answers = []
        for place, (wanted, where) in enumerate(self.targets):
            if isinstance(where, ErrorCode):
                answer = _refusal(wanted.requested, where, aborted_transactions=() if where in _NOT_READ else None)
                is_urgent |= where is ErrorCode.INCONSISTENT_TOPIC_ID and wanted.error_code != where
            else:
                if place == number and known is not None and _size(known) <= bytes_left:
                    answer = known
                else:
                    answer = self._read(wanted.requested, where, bytes_left, is_first=found == 0)
                size = _size(answer)
                found += size
                bytes_left = max(bytes_left - size, 0)
                is_urgent |= _is_urgent(answer)
            answers.append(self._for_version(answer, wanted) if answer.error_code else answer)
        return answers, is_urgent or found >= bytes_min

    def _for_version(self, answer: Data, wanted: SessionPartition) -> Data:
        """
        Replace an error code that old clients do not know, and tell new ones the leader.

        Source: KafkaApis.handleFetchRequest.
        """
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and self.context.api_version < _STORAGE_ERRORS_SINCE:
            return msgspec.structs.replace(answer, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if answer.error_code not in _LEADER_ERRORS or self.context.api_version < _LEADER_SINCE:
            return answer
        leader = self.fetch.current_leader(wanted.name or "", answer.partition_index)
        return msgspec.structs.replace(answer, current_leader=leader)

    def respond(self, answers: Sequence[Data]) -> m.FetchResponse:
        quotas = self.fetch.quotas
        found = sum(map(_size, answers))
        self.fetch.turns.count(found)
        if quotas.limits_fetch:
            throttle_ms = quotas.record_fetch(self.context.client_id, found)
            if throttle_ms:
                self.context.throttle(throttle_ms)
                return m.FetchResponse(
                    throttle_time_ms=throttle_ms, session_id=self.fetch.withhold(self.session_context)
                )
        self._count(answers)
        endpoints: Sequence[m.FetchResponseNodeEndpoint] = ()
        if self.context.api_version >= _LEADER_SINCE:
            endpoints = self.fetch.node_endpoints(answers, self.context.listener)
        return self.session_context.respond(answers, endpoints)

    def _count(self, answers: Sequence[Data]) -> None:
        """Source: Kafka ReplicaManager.readFromLog: errors of clients are no failures."""
        for (_, where), answer in zip(self.targets, answers, strict=True):
            traffic = where.traffic if isinstance(where, Partition) else self.fetch.unknown_traffic
            traffic.fetch_requests += 1
            if answer.records:
                traffic.bytes_out += len(answer.records)
            elif answer.error_code and answer.error_code not in _NO_FAILURES:
                traffic.failed_fetch_requests += 1

    def _read(self, requested: Requested, partition: Partition, bytes_left: int, *, is_first: bool) -> Data:
        log = partition.log
        if partition.is_deleted:
            return _refusal(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, aborted_transactions=())
        if requested.partition_max_bytes < 0:
            return _refusal(requested, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            if partition.leader_id == self.fetch.node_id:
                partition.check()
            else:
                self.fetch.check_follower(partition, self.context.api_version)
            known_epoch = requested.current_leader_epoch
            if known_epoch >= 0 and (code := leader_epoch_error(known_epoch, partition.leader_epoch)):
                return _refusal(requested, code)
            if self.fetch.is_rack_aware:
                preferred = self.fetch.preferred_replica(partition, self.request, self.context.api_version)
                if preferred is not None:
                    return _elsewhere(requested, log, preferred)
            if requested.last_fetched_epoch >= 0 and (diverging := _diverging(requested, partition)):
                return diverging
            if not log.log_start_offset <= requested.fetch_offset <= log.end_offset:
                return _refusal(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
            return self._data(requested, partition, min(bytes_left, requested.partition_max_bytes), is_first=is_first)
        except StorageError as error:
            return _refusal(requested, error.code)

    def _data(self, requested: Requested, partition: Partition, limit: int, *, is_first: bool) -> Data:
        log = partition.log
        is_committed = self.request.isolation_level == READ_COMMITTED
        bound = log.last_stable_offset if is_committed else log.high_watermark
        records = b""
        if requested.fetch_offset < bound and (is_first or limit > 0):
            records = log.read(requested.fetch_offset, bytes_max=limit, up_to=bound)
            if len(records) > limit and not is_first:
                records = b""
        return m.FetchResponsePartitionData(
            partition_index=requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=_aborted(log, requested.fetch_offset, records) if is_committed else None,
            records=records,
        )


def _size(answer: Data) -> int:
    return len(answer.records or b"")


def _is_urgent(answer: Data) -> bool:
    """Whether a request is answered at once, however few bytes there are: an error, a truncated log, another replica."""
    return (
        answer.error_code != 0
        or answer.diverging_epoch.epoch != NO_EPOCH
        or answer.preferred_read_replica != _NO_REPLICA
    )


def _elsewhere(requested: Requested, log: Log, preferred: int) -> Data:
    """The answer that sends a client to another replica."""
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


def _aborted(log: Log, offset: int, records: bytes) -> list[m.FetchResponseAbortedTransaction]:
    return [
        m.FetchResponseAbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_transactions(offset, records)
    ]


def _refusal(
    requested: Requested,
    code: ErrorCode,
    *,
    aborted_transactions: tuple[()] | None = None,
) -> Data:
    """An answer with an error. Aborted transactions are null if the log refused the read, empty if it was not read."""
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=aborted_transactions,
        records=b"",
    )


def _diverging(requested: Requested, partition: Partition) -> Data | None:
    """
    The answer to a client whose last batch is of a leader epoch that ended at a lower offset here; None if it did not.

    Source: Kafka Partition.readRecords.
    """
    log = partition.log
    epoch, end_offset = partition.end_offset_for_epoch(requested.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset < 0:
        return _refusal(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == requested.last_fetched_epoch and end_offset >= requested.fetch_offset:
        return None
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=m.FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=b"",
    )


class _LaterFetch:
    """A request that is handled in a later turn, unless its client disconnects before."""

    __slots__ = ("_request",)

    def __init__(self, fetch: Fetch, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]) -> None:
        self._request: tuple[Fetch, m.FetchRequest, Context, Reply[m.FetchResponse]] | None = (
            fetch,
            request,
            context,
            reply,
        )

    def handle(self) -> None:
        if self._request is None:
            return
        fetch, request, context, reply = self._request
        response = fetch.fetch_now(request, context, reply)
        if response is not None:
            reply(response)

    def abandon(self) -> None:
        self._request = None


class _DelayedFetch(Delayed):
    """
    A Fetch request in the purgatory of its partitions. It is answered once: when there are enough bytes, when one of its
    partitions is deleted, or after its timeout. It is dropped if its client disconnects.

    Source: Kafka DelayedFetch; Kafka keeps the requests of disconnected clients.
    """

    __slots__ = ("_answers", "_found", "_is_queued", "_numbers", "_sizes", "_waiting")

    def __init__(self, read: _Read, reply: Reply[m.FetchResponse], answers: Sequence[Data], wait_ms: int) -> None:
        super().__init__(wait_ms)
        self._waiting: tuple[_Read, Reply[m.FetchResponse]] | None = read, reply
        self._answers: Sequence[Data] | None = None
        self._numbers = {
            where: number for number, (_, where) in enumerate(read.targets) if isinstance(where, Partition)
        }
        self._sizes = list(map(_size, answers))
        self._found = sum(self._sizes)
        self._is_queued = False
        """Whether it is tried again in a later turn."""

    def try_complete(self, key: Hashable | None = None) -> bool:
        """
        Answer if there are enough bytes. A change of one partition is judged by this partition, with the sizes that the others
        had: a request that waits for many partitions does not read all of them at each append.
        """
        if self._waiting is None:
            return False
        read = self._waiting[0]
        if self._is_queued or read.fetch.turns.is_full:
            self._try_later(read.fetch.turns)
            return False
        number, known = -1, None
        if isinstance(key, Partition):
            number = self._numbers[key]
            known = read.read_one(number, self._found - self._sizes[number])
            self._found += _size(known) - self._sizes[number]
            self._sizes[number] = _size(known)
            if self._found < read.bytes_min and not _is_urgent(known):
                return False
        answers, is_enough = read.collect(number, known)
        if not is_enough:
            self._sizes = list(map(_size, answers))
            self._found = sum(self._sizes)
            return False
        self._answers = answers
        return self.force_complete()

    def _try_later(self, turns: FetchTurns) -> None:
        if not self._is_queued:
            self._is_queued = True
            turns.wait(self._try_now)

    def _try_now(self) -> None:
        self._is_queued = False
        self.try_complete()

    def on_complete(self) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None, "a delayed operation completes once"
        read, reply = waiting
        answers, self._answers = self._answers, None
        self._forget_partitions()
        reply(read.respond(read.collect()[0] if answers is None else answers))

    def abandon(self) -> None:
        """Drop the request of a disconnected client at once, not at the next purge of the watch lists."""
        if self.cancel():
            self._waiting = None
            self._forget_partitions()

    def _forget_partitions(self) -> None:
        """The connection may keep this request until its next one; a deleted partition must not stay in memory with it."""
        self._numbers = {}
