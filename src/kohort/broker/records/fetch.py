"""
Fetch (1), versions 4 to 18: v5 log start offset; v6 errors of the disk; v7 sessions; v9 leader epochs; v11 racks; v12
diverging epochs; v13 topic ids; v15 replica state; v16 node endpoints; v17 directory ids; v18 a follower's high watermark.

A request that finds too little waits, at most `max_wait_ms`, until a partition it asks for has more. Batches are sent as
they were written, whole and undecoded.

Sessions, in which clients ask for and are told what has changed only, are in `fetch_sessions`. There are no followers:
a replica's fetch is refused.

Source: KIP-74, KIP-227, KIP-320, KIP-516; Kafka ReplicaManager.fetchMessages, DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions import Fetches, Partition, Partitions
from kohort.broker.ports import Context
from kohort.broker.records.fetch_sessions import FetchContext, FetchSessionCache, SessionPartition
from kohort.broker.records.offset_for_leader_epoch import leader_epoch_problem
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Delayed
from kohort.storage.log import NO_EPOCH, Log
from kohort.wire import messages as m

if TYPE_CHECKING:
    Asked = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

READ_COMMITTED = 1

_TOPIC_IDS_SINCE = 13
_STORAGE_ERRORS_SINCE = 6
_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_TELLS_LEADER_SINCE = 16

_Target = tuple[SessionPartition, Partition | ErrorCode]


class Fetch:
    """Reads from many partitions under one limit of bytes."""

    def __init__(
        self,
        catalog: Catalog,
        partitions: Partitions,
        cluster: Cluster,
        config: BrokerConfig,
        clock: Clock,
        waiting: Fetches,
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._cluster = cluster
        self._bytes_max = config.get_int("fetch.max.bytes")
        self._waiting = waiting
        self._sessions = FetchSessionCache(config.get_int("max.incremental.fetch.session.cache.slots"), clock)

    def fetch(self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]) -> m.FetchResponse | None:
        api_version = context.api_version
        try:
            fetched = self._sessions.begin(request, uses_ids=api_version >= _TOPIC_IDS_SINCE)
        except CoordinatorError as error:
            return m.FetchResponse(error_code=error.code)
        targets = self._targets(fetched, request, api_version)
        fetched.partitions = [wanted for wanted, _ in targets]
        read = _Read(request, api_version, fetched, targets, self)
        answers, is_enough = read.collect()
        if is_enough or request.max_wait_ms <= 0 or not read.has_partition:
            return read.respond(answers)
        delayed = _DelayedFetch(read, reply)
        self._waiting.watch(delayed, read.partitions)
        context.when_abandoned(delayed.abandon)
        return None

    def bytes_max(self, request: m.FetchRequest) -> int:
        return max(min(request.max_bytes, self._bytes_max), 0)

    def node_endpoint(self) -> m.FetchResponseNodeEndpoint:
        cluster = self._cluster
        return m.FetchResponseNodeEndpoint(
            node_id=cluster.node_id, host=cluster.host, port=cluster.port, rack=cluster.rack
        )

    @property
    def leader_id(self) -> int:
        return self._cluster.node_id

    def _targets(self, fetched: FetchContext, request: m.FetchRequest, api_version: int) -> list[_Target]:
        """What is to be read, each with its partition or why it cannot be read; the latter come last."""
        refusal = _refuse_all(request, api_version)
        find = self._find_by_id if api_version >= _TOPIC_IDS_SINCE else self._find
        targets = [(wanted, refusal or find(wanted)) for wanted in fetched.partitions]
        return sorted(targets, key=lambda target: isinstance(target[1], ErrorCode))

    def _find(self, wanted: SessionPartition) -> Partition | ErrorCode:
        try:
            partition = self._partitions.find(wanted.name or "", wanted.asked.partition)
        except StorageError as error:
            return error.code
        return partition or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _find_by_id(self, wanted: SessionPartition) -> Partition | ErrorCode:
        """In a session the name of a topic that is gone by now is known: another one may have taken it."""
        topic = self._catalog.topic_by_id(wanted.topic_id) if wanted.topic_id else None
        if topic is not None:
            wanted.name = topic.name
            return self._find(wanted)
        if wanted.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_taken = self._catalog.topic(wanted.name) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if is_taken else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refuse_all(request: m.FetchRequest, api_version: int) -> ErrorCode | None:
    replica_id = request.replica_id if api_version < 15 else request.replica_state.replica_id
    if replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.isolation_level not in (0, READ_COMMITTED):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


_NOT_ASKED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors of partitions whose log was never asked."""


@dataclass(slots=True)
class _Read:
    """One request with the partitions it means; it can be done again when there is more."""

    request: m.FetchRequest
    api_version: int
    fetched: FetchContext
    targets: list[_Target]
    fetch: Fetch

    @property
    def partitions(self) -> list[Partition]:
        return [where for _, where in self.targets if isinstance(where, Partition)]

    @property
    def has_partition(self) -> bool:
        return any(isinstance(where, Partition) for _, where in self.targets)

    def collect(self) -> tuple[list[Data], bool]:
        """What there is now, and whether it is to be sent at once: enough bytes, an error of reading, or a cut log."""
        bytes_max = bytes_left = self.fetch.bytes_max(self.request)
        bytes_min = min(self.request.min_bytes, bytes_max)
        is_urgent = False
        found = 0
        answers = []
        for wanted, where in self.targets:
            if isinstance(where, ErrorCode):
                answer = _refusal(wanted.asked, where, aborted_transactions=() if where in _NOT_ASKED else None)
            else:
                answer = self._read(wanted.asked, where, bytes_left, is_first=found == 0)
                size = len(answer.records or b"")
                found += size
                bytes_left = max(bytes_left - size, 0)
                is_urgent |= answer.error_code != 0 or answer.diverging_epoch.epoch != NO_EPOCH
            answers.append(self._as_known(answer))
        return answers, is_urgent or found >= bytes_min

    def _as_known(self, answer: Data) -> Data:
        """Old clients would give up on what they do not know. Source: KafkaApis.handleFetchRequest."""
        if answer.error_code != ErrorCode.KAFKA_STORAGE_ERROR or self.api_version >= _STORAGE_ERRORS_SINCE:
            return answer
        return msgspec.structs.replace(answer, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def respond(self, answers: Sequence[Data]) -> m.FetchResponse:
        tells_leader = self.api_version >= _TELLS_LEADER_SINCE and any(
            answer.error_code in _TELLS_LEADER for answer in answers
        )
        return self.fetched.respond(answers, (self.fetch.node_endpoint(),) if tells_leader else ())

    def _read(self, asked: Asked, partition: Partition, bytes_left: int, *, is_first: bool) -> Data:
        log = partition.log
        if partition.is_deleted:
            return _refusal(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, aborted_transactions=())
        if asked.partition_max_bytes < 0:
            return _refusal(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            partition.check()
            if problem := leader_epoch_problem(asked.current_leader_epoch, log.leader_epoch):
                return self._refuse_epoch(asked, problem, log.leader_epoch)
            if asked.last_fetched_epoch != NO_EPOCH and (diverging := _diverging(asked, partition)):
                return diverging
            if not log.log_start_offset <= asked.fetch_offset <= log.end_offset:
                return _refusal(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
            return self._data(asked, partition, min(bytes_left, asked.partition_max_bytes), is_first=is_first)
        except StorageError as error:
            return _refusal(asked, error.code)

    def _data(self, asked: Asked, partition: Partition, limit: int, *, is_first: bool) -> Data:
        log = partition.log
        is_committed = self.request.isolation_level == READ_COMMITTED
        bound = log.last_stable_offset if is_committed else log.high_watermark
        records = b""
        if asked.fetch_offset < bound and (is_first or limit > 0):
            records = log.read(asked.fetch_offset, bytes_max=limit, up_to=bound)
            if len(records) > limit and not is_first:
                records = b""
        return m.FetchResponsePartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=_aborted(log, asked.fetch_offset, records) if is_committed else None,
            records=records,
        )

    def _refuse_epoch(self, asked: Asked, code: ErrorCode, leader_epoch: int) -> Data:
        if code not in _TELLS_LEADER or self.api_version < _TELLS_LEADER_SINCE:
            return _refusal(asked, code)
        leader = m.FetchResponseLeaderIdAndEpoch(leader_id=self.fetch.leader_id, leader_epoch=leader_epoch)
        return _refusal(asked, code, current_leader=leader)


def _aborted(log: Log, offset: int, records: bytes) -> list[m.FetchResponseAbortedTransaction]:
    return [
        m.FetchResponseAbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_transactions(offset, records)
    ]


def _refusal(
    asked: Asked,
    code: ErrorCode,
    *,
    current_leader: m.FetchResponseLeaderIdAndEpoch | None = None,
    aborted_transactions: tuple[()] | None = None,
) -> Data:
    """The list of aborted transactions is null when the log refused, and empty when it was not asked."""
    return m.FetchResponsePartitionData(
        partition_index=asked.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=aborted_transactions,
        current_leader=current_leader or m.FetchResponseLeaderIdAndEpoch(),
        records=b"",
    )


def _diverging(asked: Asked, partition: Partition) -> Data | None:
    """The client's last batch is of an epoch that ended earlier here: it is told where. Source: Partition.readRecords."""
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset < 0:
        return _refusal(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
        return None
    return m.FetchResponsePartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=m.FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=b"",
    )


class _DelayedFetch(Delayed):
    """
    A fetch that waits for more, in the purgatory of its partitions. It is answered once: when there is enough, when a partition
    of it is gone, or when its time is up; and not at all when its client is gone.

    Source: Kafka DelayedFetch, except that Kafka answers a client that is gone into the void.
    """

    __slots__ = ("_answers", "_waits")

    def __init__(self, read: _Read, reply: Reply[m.FetchResponse]) -> None:
        super().__init__(read.request.max_wait_ms)
        self._waits: tuple[_Read, Reply[m.FetchResponse]] | None = read, reply
        self._answers: Sequence[Data] | None = None

    def try_complete(self) -> bool:
        if self._waits is None:
            return False
        answers, is_enough = self._waits[0].collect()
        if not is_enough:
            return False
        self._answers = answers
        return self.force_complete()

    def on_complete(self) -> None:
        waits, self._waits = self._waits, None
        assert waits is not None, "it ends once"
        read, reply = waits
        answers, self._answers = self._answers, None
        reply(read.respond(read.collect()[0] if answers is None else answers))

    def abandon(self) -> None:
        """The client is gone. What it asked for need not be kept until the lists are swept."""
        if self.cancel():
            self._waits = None
