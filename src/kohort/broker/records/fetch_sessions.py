"""
Fetch sessions: a client names its partitions once, and from then on what has changed; it is told what has changed, too.

| request (id, epoch) | meaning |
|---|---|
| (0, -1) | a full fetch without a session |
| (0, 0) | a full fetch that begins a session, if there is room for one |
| (id, 0) | the same, and the session of that id ends |
| (id, -1) | a full fetch without a session, and the session of that id ends |
| (id, n) | in a session: partitions that are named come in or change, forgotten ones go |

The epoch of a session's next fetch rises by one, from 1 to 2^31 - 1 and then from 1 again. A wrong one, or names in a
session of ids, changes nothing. A session belongs to nobody: any connection may go on with it; a fetch that still waits when
another one goes on is answered INVALID_FETCH_SESSION_EPOCH.

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
from kohort.runtime.ports import Clock
from kohort.storage.log import NO_EPOCH
from kohort.wire import messages as m

if TYPE_CHECKING:
    Asked = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EPOCH_MAX = (1 << 31) - 1
EVICTION_MS = 120_000
"""A session that was idle for so long may be given up for another. Source: MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""

Place: TypeAlias = tuple[str, UUID | None, int]
"""Topic name (empty where there are ids), topic id (None where there are names), partition."""


@dataclass(slots=True, eq=False)
class SessionPartition:
    """
    One partition as it was last asked for.

    Attributes:
        name: the topic, once it is known; it stays when the topic of that id is gone.
        high_watermark: what the client was told last, -1 to tell it in any case; `log_start_offset` alike.
    """

    topic: str
    topic_id: UUID | None
    asked: Asked
    name: str | None
    high_watermark: int = -1
    log_start_offset: int = -1

    def tell(self, answer: Data) -> bool:
        """Whether there is news for the client; what it knows then. Source: CachedPartition.maybeUpdateResponseData."""
        is_news = (
            bool(answer.records)
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.error_code != 0
            or answer.diverging_epoch.epoch != NO_EPOCH
        )
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_news


@dataclass(slots=True)
class FetchSession:
    """A session. `epoch` is the one that its next fetch has to carry."""

    session_id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[Place, SessionPartition] = field(default_factory=dict)

    def update(self, request: m.FetchRequest) -> None:
        for topic in request.topics:
            for asked in topic.partitions:
                place = (topic.topic, topic.topic_id, asked.partition)
                known = self.partitions.get(place)
                if known is None:
                    self.partitions[place] = _partition(topic, asked)
                else:
                    known.asked = asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)


def _partition(topic: m.FetchRequestFetchTopic, asked: Asked) -> SessionPartition:
    return SessionPartition(topic.topic, topic.topic_id, asked, topic.topic or None)


class FetchContext:
    """
    One fetch as its session sees it.

    Attributes:
        partitions: all that are to be read, in the order of reading.
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
        The response of these answers, one per partition: all of them, or what is new to the session.

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
            told = [pair for pair in pairs if pair[0].tell(pair[1])]
            if not self._is_full:
                pairs = told
                self._put_last(session, pairs)
        return m.FetchResponse(
            responses=_by_topic(pairs),
            session_id=NO_SESSION if session is None else session.session_id,
            node_endpoints=node_endpoints,
        )

    def _put_last(self, session: FetchSession, told: Sequence[tuple[SessionPartition, Data]]) -> None:
        """Whoever had data is read last the next time, so that nobody starves."""
        for partition, answer in told:
            place = (partition.topic, partition.topic_id, answer.partition_index)
            if answer.records and session.partitions.get(place) is partition:
                del session.partitions[place]
                session.partitions[place] = partition


def _by_topic(pairs: Sequence[tuple[SessionPartition, Data]]) -> list[m.FetchableTopicResponse]:
    """A topic is named again where partitions of another one lie between."""
    return [
        m.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[answer for _, answer in group])
        for (name, topic_id), group in groupby(pairs, key=lambda pair: (pair[0].topic, pair[0].topic_id))
    ]


class FetchSessionCache:
    """
    The sessions of all clients.

    Args:
        slots: how many there can be.
    """

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchContext:
        """
        Take up a fetch.

        Raises:
            CoordinatorError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR; nothing has
                changed then.
        """
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._go_on(request, uses_ids=uses_ids)
        self._sessions.pop(request.session_id, None)
        partitions = {
            (topic.topic, topic.topic_id, asked.partition): _partition(topic, asked)
            for topic in request.topics
            for asked in topic.partitions
        }
        session = None
        if request.session_epoch == INITIAL_EPOCH and (session := self._make(len(partitions), uses_ids=uses_ids)):
            session.partitions = partitions
        return FetchContext(partitions.values(), session, is_full=True)

    def _go_on(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise CoordinatorError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchContext((), None, is_full=True)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_ms = self._clock.now_ms()
        return FetchContext(session.partitions.values(), session, is_full=False)

    def _make(self, size: int, *, uses_ids: bool) -> FetchSession | None:
        """None when there is no room."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(os.urandom(4), "big") & EPOCH_MAX
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now_ms, now_ms)
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        """
        Make room: the one that was idle longest, or one that was old when it was last used and is smaller than the one to come.

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
