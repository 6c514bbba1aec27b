"""
Incremental fetch sessions: requests and responses list only the partitions that have changed.

| request (id, epoch) | meaning |
|---|---|
| (0, -1) | a full fetch without a session |
| (0, 0) | a full fetch that begins a session, if there is room for one |
| (id, 0) | a full fetch that begins a session; the session of that id ends |
| (id, -1) | a full fetch without a session; the session of that id ends |
| (id, n) | an incremental fetch: listed partitions are added or changed, forgotten partitions are removed |

The epoch of a session rises by one with each fetch, from 1 to 2^31 - 1 and then from 1 again. A fetch with a wrong epoch, or
with topic names in a session of topic ids, changes nothing. A session is not bound to a connection. If a fetch continues a
session in which another fetch still waits, the waiting fetch is answered INVALID_FETCH_SESSION_EPOCH.

Source: KIP-227, KIP-516; Kafka FetchSession, FetchManager, FetchSessionCache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import FETCH_SESSION_PARTITIONS_MAX
from kohort.runtime.ports import Clock
from kohort.storage.log import NO_EPOCH
from kohort.wire import messages as m

if TYPE_CHECKING:
    Requested = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EPOCH_MAX = (1 << 31) - 1
EVICTION_MS = 120_000
"""Idle time after which another session may take the slot. Source: MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""

Place: TypeAlias = tuple[str, UUID | None, int]
"""Topic name (empty in sessions of topic ids), topic id (None in sessions of names), partition."""


@dataclass(slots=True, eq=False)
class SessionPartition:
    """
    One partition of a session, as it was requested last.

    Attributes:
        name: of the topic, once it is known; it stays after the topic of that id was deleted.
        high_watermark, log_start_offset: as the client knows them; -1 to send them in any case.
        error_code: of the last answer.
    """

    topic: str
    topic_id: UUID | None
    requested: Requested
    name: str | None
    high_watermark: int = -1
    log_start_offset: int = -1
    error_code: int = 0

    def update(self, answer: Data) -> bool:
        """
        Remember what the client knows after an answer. Return whether the answer has to be in the response.

        Source: Kafka CachedPartition.maybeUpdateResponseData.
        """
        has_changed = (
            bool(answer.records)
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.error_code != 0
            or answer.diverging_epoch.epoch != NO_EPOCH
            or answer.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        self.error_code = answer.error_code
        return has_changed


@dataclass(slots=True)
class FetchSession:
    """A session. `epoch` is the epoch of its next fetch."""

    session_id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[Place, SessionPartition] = field(default_factory=dict)

    def update(self, request: m.FetchRequest) -> None:
        for topic in request.topics:
            for requested in topic.partitions:
                place = (topic.topic, topic.topic_id, requested.partition)
                known = self.partitions.get(place)
                if known is None:
                    self.partitions[place] = _partition(topic, requested)
                else:
                    known.requested = requested
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)


def _partition(topic: m.FetchRequestFetchTopic, requested: Requested) -> SessionPartition:
    return SessionPartition(topic.topic, topic.topic_id, requested, topic.topic or None)


class FetchContext:
    """
    One fetch within a session, or without one.

    Attributes:
        partitions: the partitions to read, in this order.
    """

    __slots__ = ("_epoch", "_is_full", "_session", "partitions")

    def __init__(self, partitions: Iterable[SessionPartition], session: FetchSession | None, *, is_full: bool) -> None:
        self.partitions = list(partitions)
        self._session = session
        self._epoch = session.epoch if session else FINAL_EPOCH
        self._is_full = is_full

    def respond(
        self, answers: Sequence[Data], node_endpoints: Sequence[m.FetchResponseNodeEndpoint]
    ) -> m.FetchResponse:
        """
        Build the response from the answers, one for each partition: of all partitions, or of the changed ones in a session.

        Source: IncrementalFetchContext.updateAndGenerateResponseData.
        """
        session = self._session
        if session is not None and session.epoch != self._epoch and not self._is_full:
            return m.FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                session_id=session.session_id,
                node_endpoints=node_endpoints,
            )
        pairs = list(zip(self.partitions, answers, strict=True))
        if session is not None:
            changed = [pair for pair in pairs if pair[0].update(pair[1])]
            if not self._is_full:
                pairs = changed
                self._move_to_end(session, pairs)
        return m.FetchResponse(
            responses=_by_topic(pairs),
            session_id=NO_SESSION if session is None else session.session_id,
            node_endpoints=node_endpoints,
        )

    def withhold(self, sessions: dict[int, FetchSession]) -> int:
        """
        The session id of a response without data, for a client that is throttled. A session that has just begun ends.

        Source: FullFetchContext.getThrottledResponse, IncrementalFetchContext.getThrottledResponse.
        """
        session = self._session
        if session is None or not self._is_full:
            return NO_SESSION if session is None else session.session_id
        sessions.pop(session.session_id, None)
        return NO_SESSION

    def _move_to_end(self, session: FetchSession, answered: Sequence[tuple[SessionPartition, Data]]) -> None:
        """Move partitions with data to the end of the reading order, so that no partition starves."""
        for partition, answer in answered:
            place = (partition.topic, partition.topic_id, answer.partition_index)
            if answer.records and session.partitions.get(place) is partition:
                del session.partitions[place]
                session.partitions[place] = partition


def _by_topic(pairs: Sequence[tuple[SessionPartition, Data]]) -> list[m.FetchableTopicResponse]:
    """Group neighbouring answers of one topic. A topic is listed again if another topic's partitions lie between."""
    return [
        m.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[answer for _, answer in group])
        for (name, topic_id), group in groupby(pairs, key=lambda pair: (pair[0].topic, pair[0].topic_id))
    ]


class FetchSessionCache:
    """
    The sessions of all clients.

    Args:
        slots: the maximum number of sessions.
        partitions_max: of all sessions together.
    """

    def __init__(self, slots: int, clock: Clock, partitions_max: int = FETCH_SESSION_PARTITIONS_MAX) -> None:
        self._partitions_max = partitions_max
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()

    def begin(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchContext:
        """
        Begin or continue a session with a fetch.

        Raises:
            CoordinatorError: nothing was changed. FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._continue(request, uses_ids=uses_ids)
        self._sessions.pop(request.session_id, None)
        partitions = {
            (topic.topic, topic.topic_id, requested.partition): _partition(topic, requested)
            for topic in request.topics
            for requested in topic.partitions
        }
        session = None
        if request.session_epoch == INITIAL_EPOCH and (session := self._make(len(partitions), uses_ids=uses_ids)):
            session.partitions = partitions
        return FetchContext(partitions.values(), session, is_full=True)

    def withhold(self, context: FetchContext) -> int:
        """The session id of a response that has no data because the client is throttled."""
        return context.withhold(self._sessions)

    def _continue(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise CoordinatorError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        size = len(session.partitions)
        session.update(request)
        if len(session.partitions) > size and self.partition_count > self._partitions_max:
            # The client begins again, with a full fetch.
            del self._sessions[session.session_id]
            raise CoordinatorError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchContext((), None, is_full=True)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_ms = self._clock.now_ms()
        return FetchContext(session.partitions.values(), session, is_full=False)

    def _make(self, size: int, *, uses_ids: bool) -> FetchSession | None:
        """Create a session; None if there is no room."""
        now_ms = self._clock.now_ms()
        if self.partition_count + size > self._partitions_max:
            return None
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(os.urandom(4), "big") & EPOCH_MAX
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now_ms, now_ms)
        return session

    @property
    def partition_count(self) -> int:
        """Partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def _evict(self, size: int, now_ms: int) -> bool:
        """
        Make room for a session of `size` partitions.

        The longest idle session goes if it was idle long enough; else the smallest of the old sessions, if it is smaller.

        Source: FetchSessionCacheShard.tryEvict, touch.
        """
        if not self._sessions:
            return False
        idle = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - idle.used_ms > EVICTION_MS:
            del self._sessions[idle.session_id]
            return True
        old = (session for session in self._sessions.values() if session.used_ms - session.created_ms > EVICTION_MS)
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        del self._sessions[smallest.session_id]
        return True
