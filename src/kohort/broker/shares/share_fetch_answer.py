"""
The answer to a ShareFetch: the records of each partition, what came of the acknowledgements, and leaders that have changed.

Source: Kafka KafkaApis.handleShareFetchRequest, ShareSession.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kohort.broker.ports import Context
from kohort.broker.shares.share_acknowledge import Results
from kohort.broker.shares.share_broker import ShareBroker
from kohort.broker.shares.share_partition import Acquired
from kohort.broker.shares.share_sessions import INITIAL_EPOCH, ShareSession, TopicIdPartition
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Fetched(NamedTuple):
    """The records that were fetched of one partition, or the error."""

    error: ErrorCode
    records: bytes = b""
    acquired: Sequence[Acquired] = ()


NOTHING_FETCHED: Final = Fetched(ErrorCode.NONE)


class ShareFetchAnswer:
    """
    Makes the answer to one request.

    Args:
        fetched: by partition of the session.
        acknowledged: the results of the acknowledgements that came along.
    """

    __slots__ = ("_acknowledged", "_broker", "_context", "_fetched", "_leaders", "_request", "_session")

    def __init__(
        self,
        broker: ShareBroker,
        session: ShareSession,
        request: m.ShareFetchRequest,
        context: Context,
        fetched: Mapping[TopicIdPartition, Fetched],
        acknowledged: Results,
    ) -> None:
        self._broker = broker
        self._session = session
        self._request = request
        self._context = context
        self._fetched = fetched
        self._acknowledged = acknowledged
        self._leaders: set[int] = set()

    def outdated(self) -> m.ShareFetchResponse:
        """The answer to a request whose session another one has raised or ended."""
        return m.ShareFetchResponse(
            error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH, acquisition_lock_timeout_ms=self._lock_ms
        )

    @property
    def _lock_ms(self) -> int:
        return self._broker.settings.of(self._session.group_id).of_records.lock_ms

    def make(self) -> m.ShareFetchResponse:
        """The answer with records and results."""
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        results = self._acknowledged
        topics: dict[UUID, list[m.ShareFetchResponsePartitionData]] = {}
        size = 0
        for where, found in self._fetched.items():
            is_named = self._session.is_named(
                where, has_records=bool(found.records), has_error=bool(found.error), is_first=is_first
            )
            if is_named or where in results:
                size += len(found.records)
                topics.setdefault(where.topic_id, []).append(self._partition(where, found))
        for where in results:
            if where not in self._fetched:
                topics.setdefault(where.topic_id, []).append(self._partition(where, NOTHING_FETCHED))
        self._broker.fetches.turns.count(size)
        return m.ShareFetchResponse(
            throttle_time_ms=self._throttle(size),
            acquisition_lock_timeout_ms=self._lock_ms,
            responses=[
                m.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[
                m.ShareFetchResponseNodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in self._broker.endpoints(self._leaders, self._context.listener)
            ],
        )

    def _partition(self, where: TopicIdPartition, found: Fetched) -> m.ShareFetchResponsePartitionData:
        code, message = self._acknowledged.get(where, (ErrorCode.NONE, None))
        leader = m.ShareFetchResponseLeaderIdAndEpoch()
        if found.error in _LEADER_ERRORS or code in _LEADER_ERRORS:
            leader_id, leader_epoch = self._broker.current_leader(where)
            self._leaders.add(leader_id)
            leader = m.ShareFetchResponseLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return m.ShareFetchResponsePartitionData(
            partition_index=where.partition,
            error_code=found.error,
            acknowledge_error_code=code,
            acknowledge_error_message=message,
            current_leader=leader,
            records=found.records,
            acquired_records=[
                m.ShareFetchResponseAcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in found.acquired
            ],
        )

    def _throttle(self, size: int) -> int:
        quotas = self._broker.fetches.quotas
        if not quotas.limits_fetch:
            return 0
        throttle_ms = quotas.record_fetch(self._context.client_id, size)
        if throttle_ms:
            self._context.throttle(throttle_ms)
        return throttle_ms
