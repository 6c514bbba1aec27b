"""
The reading of one Fetch request: its partitions one after the other, with one limit for the size of the response.

What is in memory is read within the call: up to `AT_ONCE` partitions, and records that were appended lately. Further partitions
are read in steps, and records on the disk by another thread (`log_reads`), so that a disk that hangs delays this request alone.

A generator of this module yields None between two steps, and a function `wait(resume)` when it has to wait
(`kohort.server.requests.slices`). It raises AbandonedError when the client has disconnected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import Context
from kohort.broker.records.fetch_answers import (
    LEADER_ERRORS,
    LEADER_SINCE,
    NO_FAILURES,
    NOT_READ,
    aborted,
    diverging,
    is_urgent,
    other_replica,
    refusal,
    size,
)
from kohort.broker.records.fetch_broker import FetchBroker, is_of_replica
from kohort.broker.records.fetch_sessions import AT_ONCE, NO_PARTITIONS, SessionPartition
from kohort.broker.records.large_batches import Steps
from kohort.broker.records.log_reads import AbandonedError, LogRead
from kohort.broker.records.offset_for_leader_epoch import leader_epoch_error
from kohort.model.errors import ErrorCode, StorageError
from kohort.model.ids import TopicPartition
from kohort.storage.log import Log, ReadView
from kohort.storage.producer_states import AbortedTxn
from kohort.wire import messages as m

if TYPE_CHECKING:
    Requested = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

READ_COMMITTED: Final = 1
_STORAGE_ERRORS_SINCE: Final = 6
_ROUNDS_MAX: Final = 4
"""How often a request reads from the disk what it lacks. A partition that lacks records even then is answered without any."""

Target = tuple[SessionPartition, Partition | ErrorCode]
Found = tuple[bytes, Sequence[AbortedTxn]]
"""Records, and the aborted transactions among them."""


class _Missing(NamedTuple):
    """Records that are not in memory. `room` is the number of bytes that the partitions before leave."""

    wanted: SessionPartition
    partition: Partition
    room: int
    up_to: int
    is_first: bool


class FetchRead:
    """
    One request with its partitions. It can be executed repeatedly, as the partitions get more data.

    Attributes:
        targets: the requested partitions, each with its `Partition` or an error; those with an error come last.
        valid: how many of them have no error.
        answers: of the targets, by the last `collect`.
        found: bytes of records in these answers.
        missing: partitions whose records are on the disk; their answers have none.
    """

    # Values of most requests, which cost a request nothing.
    session_context = NO_PARTITIONS
    """Set when the session has begun."""
    valid = 0
    found = 0
    has_known_error = False
    """
    Whether a topic of the session was created again, and its client knows. Kafka answers this error, which comes from reading,
    at once each time. A client that takes no notice would never rest.
    """
    _bytes_left = 0
    _is_urgent = False
    _loaded: Mapping[SessionPartition, LogRead[Found]] = MappingProxyType({})
    """The reads from the disk, by partition."""
    _loading: LogRead[Found] | None = None
    _is_abandoned = False

    def __init__(self, request: m.FetchRequest, context: Context, broker: FetchBroker) -> None:
        self.request = request
        self.context = context
        self.broker = broker
        self.targets: list[Target] = []
        self.answers: list[Data] = []
        self.missing: list[_Missing] = []

    @property
    def refused(self) -> int:
        """How many of the targets have an error."""
        return len(self.targets) - self.valid

    @property
    def is_long(self) -> bool:
        return len(self.targets) > AT_ONCE

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions without an error."""
        return [where.topic_partition for _, where in self.targets if isinstance(where, Partition)]

    # -- partitions --------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Pair each requested partition with its `Partition`, or with an error."""
        refused: list[Target] = []
        self._find(self.session_context.partitions, refused)
        self._set(refused)

    def find_in_steps(self) -> Steps[None]:
        """As `find`, possibly again. Raises: AbandonedError."""
        refused: list[Target] = []
        self.targets = []
        partitions = self.session_context.partitions
        for low in range(0, len(partitions), AT_ONCE):
            self._find(partitions[low : low + AT_ONCE], refused)
            yield from self.rest()
        self._set(refused)
        if refused:
            yield from self.rest()

    def _find(self, partitions: Sequence[SessionPartition], refused: list[Target]) -> None:
        find = self.broker.finder(self.request, self.context, partitions)
        for wanted in partitions:
            where = find(wanted)
            (refused if isinstance(where, ErrorCode) else self.targets).append((wanted, where))

    def _set(self, refused: list[Target]) -> None:
        self.valid = len(self.targets)
        if refused:
            self.targets += refused
            self.session_context.partitions = [wanted for wanted, _ in self.targets]

    def abandon(self) -> None:
        """The client has disconnected. A read that another thread has begun ends by itself; one that waits is dropped."""
        self._is_abandoned = True
        self._forget()
        if self._loading is not None:
            self.broker.log_reads.drop(self._loading)

    def rest(self) -> Steps[None]:
        """End a step. Raises: AbandonedError."""
        yield None
        if self._is_abandoned:
            raise AbandonedError

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def bytes_min(self) -> int:
        """So many bytes are enough to respond."""
        return min(self.request.min_bytes, self.broker.bytes_max(self.request, self.context))

    @property
    def is_enough(self) -> bool:
        """Whether to respond now: enough bytes, an error or a truncated log."""
        return self._is_urgent or self.found >= self.bytes_min

    def read_one(self, number: int, others: int) -> Data:
        """Read one of `targets`, a partition, with the room that so many bytes of the others leave."""
        wanted, where = self.targets[number]
        assert isinstance(where, Partition)
        self.missing = []
        self._bytes_left = max(self.broker.bytes_max(self.request, self.context) - others, 0)
        return self._read(wanted, where, self._bytes_left, is_first=others == 0)

    def collect(self, number: int = -1, known: Data | None = None) -> bool:
        """
        Read all partitions. Return `is_enough`; if records are `missing` they have to be read from the disk first.

        Args:
            number, known: the place of a partition in `targets`, and what was just read of it.
        """
        self._begin()
        self._collect(0, len(self.targets), number, known)
        return self.is_enough

    def collect_in_steps(self) -> Steps[bool]:
        """As `collect`, with the records that are on the disk. Raises: AbandonedError."""
        for _ in range(_ROUNDS_MAX):
            self._begin()
            for low in range(0, len(self.targets), AT_ONCE):
                if low:
                    yield from self.rest()
                self._collect(low, min(low + AT_ONCE, len(self.targets)))
            if not self.missing:
                break
            yield from self._load()
        self.missing = []
        self._loaded = MappingProxyType({})
        return self.is_enough

    def changed(self, low: int, high: int) -> list[Partition]:
        """The partitions, of those in some places, that have changed since they were read."""
        return [
            where
            for (_, where), answer in zip(self.targets[low:high], self.answers[low:high], strict=True)
            if isinstance(where, Partition)
            and (where.topic.is_deleted or where.log.refusal or where.log.high_watermark != answer.high_watermark)
        ]

    def _begin(self) -> None:
        self._bytes_left = self.broker.bytes_max(self.request, self.context)
        self._is_urgent = self.has_known_error = False
        self.found = 0
        self.answers = []
        self.missing = []

    def _collect(self, low: int, high: int, number: int = -1, known: Data | None = None) -> None:
        found, bytes_left = self.found, self._bytes_left
        answers = self.answers
        for place, (wanted, where) in enumerate(self.targets[low:high], low):
            if isinstance(where, ErrorCode):
                answer = refusal(wanted.requested, where, aborted_transactions=() if where in NOT_READ else None)
                if where is ErrorCode.INCONSISTENT_TOPIC_ID:
                    is_known = wanted.error_code == where
                    self._is_urgent |= not is_known
                    self.has_known_error |= is_known
            else:
                if place == number and known is not None and size(known) <= bytes_left:
                    answer = known
                else:
                    answer = self._read(wanted, where, bytes_left, is_first=found == 0)
                added = size(answer)
                found += added
                bytes_left = max(bytes_left - added, 0)
                if is_urgent(answer):
                    self._is_urgent = True
            answers.append(self._for_version(answer, wanted) if answer.error_code else answer)
        self.found, self._bytes_left = found, bytes_left

    def _for_version(self, answer: Data, wanted: SessionPartition) -> Data:
        """
        Replace an error code that old clients do not know, and tell new ones the leader.

        Source: KafkaApis.handleFetchRequest.
        """
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and self.context.api_version < _STORAGE_ERRORS_SINCE:
            return msgspec.structs.replace(answer, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if answer.error_code not in LEADER_ERRORS or self.context.api_version < LEADER_SINCE:
            return answer
        leader = self.broker.current_leader(wanted.name or "", answer.partition_index)
        return msgspec.structs.replace(answer, current_leader=leader)

    def _read(self, wanted: SessionPartition, partition: Partition, bytes_left: int, *, is_first: bool) -> Data:
        log, requested = partition.log, wanted.requested
        if partition.topic.is_deleted:
            return refusal(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, aborted_transactions=())
        if requested.partition_max_bytes < 0:
            return refusal(requested, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            if partition.leader_id == self.broker.node_id:
                partition.check()
            else:
                self.broker.check_follower(partition, self.context.api_version)
            known_epoch = requested.current_leader_epoch
            if known_epoch >= 0 and (code := leader_epoch_error(known_epoch, partition.leader_epoch)):
                return refusal(requested, code)
            if self.broker.is_rack_aware:
                preferred = self.broker.preferred_replica(partition, self.request, self.context.api_version)
                if preferred is not None:
                    return other_replica(requested, log, preferred)
            if requested.last_fetched_epoch >= 0 and (branch := diverging(requested, partition)):
                return branch
            if not log.log_start_offset <= requested.fetch_offset <= log.end_offset:
                return refusal(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
            return self._data(wanted, partition, bytes_left, is_first=is_first)
        except StorageError as error:
            return refusal(requested, error.code)

    def _data(self, wanted: SessionPartition, partition: Partition, bytes_left: int, *, is_first: bool) -> Data:
        log, requested = partition.log, wanted.requested
        is_committed = self.request.isolation_level == READ_COMMITTED
        limit = min(bytes_left, requested.partition_max_bytes)
        up_to = log.last_stable_offset if is_committed else log.high_watermark
        records: bytes | None = b""
        transactions: Sequence[AbortedTxn] = ()
        if requested.fetch_offset < up_to and (is_first or limit > 0):
            records = log.read_cached(requested.fetch_offset, bytes_max=limit, up_to=up_to)
            known = log.aborted_cached(requested.fetch_offset, records) if records and is_committed else ()
            if records is None or known is None:
                missing = _Missing(wanted, partition, bytes_left, up_to, is_first)
                records, transactions = self._from_disk(missing)
            else:
                transactions = known
            if len(records) > limit and not is_first:
                records, transactions = b"", ()
        return m.FetchResponsePartitionData(
            partition_index=requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted(transactions) if is_committed else None,
            records=records,
        )

    # -- the disk ----------------------------------------------------------------------------------------------

    def _from_disk(self, missing: _Missing) -> Found:
        """
        What another thread has read. Nothing if it has not: the partition is `missing`.

        Raises:
            StorageError: the read has failed.
        """
        read = self._loaded.get(missing.wanted)
        if read is None or read.log is not missing.partition.log:
            self.missing.append(missing)
            return b"", ()
        return read.result()

    def _load(self) -> Steps[None]:
        """
        Read the missing records, as many as the response has room for: one partition after the other, since the size of
        each decides how much is read of the next one.
        """
        taken = 0
        loaded = self._loaded = dict(self._loaded)
        for missing in self.missing:
            is_first = missing.is_first and not taken
            room = max(missing.room - taken, 0)
            if not room and not is_first:
                break
            limit = min(room, missing.wanted.requested.partition_max_bytes)
            read = self._loading = self._log_read(missing, limit)
            yield partial(self.broker.log_reads.begin, read)
            self._loading = None
            if self._is_abandoned:
                raise AbandonedError
            loaded[missing.wanted] = read
            taken += 0 if read.is_failed else len(read.result()[0])

    def _log_read(self, missing: _Missing, limit: int) -> LogRead[Found]:
        offset, up_to = missing.wanted.requested.fetch_offset, missing.up_to
        is_committed = self.request.isolation_level == READ_COMMITTED

        def work(view: ReadView | Log) -> Found:
            records = view.read(offset, bytes_max=limit, up_to=up_to)
            return records, view.aborted_transactions(offset, records) if is_committed else ()

        return LogRead(missing.partition.log, work)

    # -- the response ------------------------------------------------------------------------------------------

    def respond(self) -> m.FetchResponse:
        if self.broker.quotas.limits_fetch and (throttled := self._throttled()):
            return throttled
        self.broker.turns.count(self.found)
        self._count(0, len(self.targets))
        context = self.session_context
        context.take(self.answers)
        if context.large_session is not None:
            self._quieten(0, len(self.targets))
        return context.respond(() if self.context.api_version < LEADER_SINCE else self._endpoints())

    def _forget(self) -> None:
        """The connection may keep this request until its next one; a deleted partition must not stay in memory with it."""
        self.targets, self.answers, self.missing, self._loaded = [], [], [], MappingProxyType({})

    def respond_in_steps(self) -> Steps[m.FetchResponse]:
        """As `respond`. Raises: AbandonedError."""
        response = self._throttled() if self.broker.quotas.limits_fetch else None
        if response is None:
            self.broker.turns.count(self.found)
            for low in range(0, len(self.targets), AT_ONCE):
                high = min(low + AT_ONCE, len(self.targets))
                self._count(low, high)
                self.session_context.take(self.answers[low:high], low)
                self._quieten(low, high)
                yield from self.rest()
            response = self.session_context.respond(self._endpoints())
        self._forget()
        return response

    def _quieten(self, low: int, high: int) -> None:
        """Have a large session visit no more, for the time being, what is as its client knows it."""
        session = self.session_context.large_session
        if session is None or self.broker.is_rack_aware:
            return
        is_committed = self.request.isolation_level == READ_COMMITTED
        for place in range(low, high):
            wanted, where = self.targets[place]
            answer = self.answers[place]
            if isinstance(where, ErrorCode) or where.topic.is_deleted or is_urgent(answer):
                continue
            log = where.log
            up_to = log.last_stable_offset if is_committed else log.high_watermark
            if (
                wanted.requested.fetch_offset >= up_to
                and wanted.high_watermark == log.high_watermark
                and wanted.log_start_offset == log.log_start_offset
            ):
                session.quieten(wanted, where)

    def _throttled(self) -> m.FetchResponse | None:
        """The response to a client that exceeds its quota; None for others."""
        throttle_ms = self.broker.quotas.record_fetch(self.context.client_id, self.found)
        if not throttle_ms:
            return None
        self.broker.turns.count(self.found)
        self.context.throttle(throttle_ms)
        return m.FetchResponse(throttle_time_ms=throttle_ms, session_id=self.broker.withhold(self.session_context))

    def _endpoints(self) -> Sequence[m.FetchResponseNodeEndpoint]:
        api_version = self.context.api_version
        if api_version < LEADER_SINCE or is_of_replica(self.request, api_version):
            return ()
        return self.broker.node_endpoints(self.answers, self.context.listener)

    def _count(self, low: int, high: int) -> None:
        """Source: Kafka ReplicaManager.readFromLog: errors of clients are no failures."""
        for (_, where), answer in zip(self.targets[low:high], self.answers[low:high], strict=True):
            traffic = where.traffic if isinstance(where, Partition) else self.broker.unknown_traffic
            traffic.fetch_requests += 1
            if answer.records:
                traffic.bytes_out += len(answer.records)
            elif answer.error_code and answer.error_code not in NO_FAILURES:
                traffic.failed_fetch_requests += 1
