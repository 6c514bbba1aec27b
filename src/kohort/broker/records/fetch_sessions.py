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
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from kohort.broker.topics.topic_names import NAME_LENGTH_MAX
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import FETCH_SESSION_PARTITIONS_MAX
from kohort.runtime.ports import Clock
from kohort.storage.log import NO_EPOCH
from kohort.wire import messages as m

if TYPE_CHECKING:
    from kohort.broker.partitions.partitions import Partition

    Requested = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
EPOCH_MAX = (1 << 31) - 1
AT_ONCE: Final = 250
"""Partitions of a fetch that are handled in one step."""
EVICTION_MS = 120_000
"""Idle time after which another session may take the slot. Source: MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""

_ORDER: Final = attrgetter("order")

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
        order: partitions are read by rising order.
    """

    topic: str
    topic_id: UUID | None
    requested: Requested
    name: str | None
    high_watermark: int = -1
    log_start_offset: int = -1
    error_code: int = 0
    order: int = 0
    session: FetchSession | None = None
    where: Partition | None = None
    """The partition that wakes this one; None while it has news."""

    def wake(self) -> None:
        """Something has changed in the partition. A fetch that waits for the session is tried."""
        self.where = None
        session = self.session
        if session is not None and session.news is not None:
            session.news[self] = None
            session.tell()

    def leave(self) -> None:
        """Be woken no more: the session has ended or has forgotten the partition."""
        if self.where is not None:
            self.where.quiet.pop(self, None)
            self.where = None
        self.session = None

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


def nobody_waits() -> None:
    pass


@dataclass(slots=True, eq=False)
class FetchSession:
    """
    A session. A fetch of a large one visits the partitions with news only: those that changed since the client was told, or
    that are not told completely. The others are woken by their `Partition`.

    Attributes:
        epoch: of its next fetch.
        news: partitions to visit; None in a session of up to `AT_ONCE` partitions, of which all are visited.
        tell: called when there is more news.
        has_long_name: one of its topics has a name that no topic can have. Thousands of them would take much memory, so such
            a session is not kept.
    """

    session_id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[Place, SessionPartition] = field(default_factory=dict)
    news: dict[SessionPartition, None] | None = None
    tell: Callable[[], object] = nobody_waits
    next_order: int = 0
    was_large: bool = False
    has_long_name: bool = False

    def visited(self) -> list[SessionPartition]:
        """The partitions to read, in their order."""
        if len(self.partitions) <= AT_ONCE:
            self.news = None
            return list(self.partitions.values())
        if self.news is None:
            self.news = dict.fromkeys(self.partitions.values())
            self.was_large = True
        return sorted(self.news, key=_ORDER)

    def quieten(self, wanted: SessionPartition, partition: Partition) -> None:
        """Do not visit a partition again before it has changed."""
        if self.news is not None and self.news.pop(wanted, wanted) is None:
            wanted.session, wanted.where = self, partition
            partition.quiet[wanted] = wanted.wake

    def move_to_end(self, wanted: SessionPartition) -> None:
        """Read a partition after all others, so that none of them starves."""
        place = (wanted.topic, wanted.topic_id, wanted.requested.partition)
        if self.partitions.get(place) is wanted:
            del self.partitions[place]
            self.partitions[place] = wanted
            wanted.order = self.next_order
            self.next_order += 1

    def add(self, topic: m.FetchRequestFetchTopic, partitions: Iterable[Requested]) -> None:
        """Add partitions, or take what is requested of them now."""
        if len(topic.topic) > NAME_LENGTH_MAX:
            self.has_long_name = True
        for requested in partitions:
            place = (topic.topic, topic.topic_id, requested.partition)
            known = self.partitions.get(place)
            if known is None:
                known = SessionPartition(topic.topic, topic.topic_id, requested, topic.topic or None)
                known.order = self.next_order
                self.next_order += 1
                self.partitions[place] = known
            else:
                known.requested = requested
            if self.news is not None:
                self.news[known] = None

    def remove(self, topic: m.FetchRequestForgottenTopic, partitions: Iterable[int]) -> None:
        for index in partitions:
            gone = self.partitions.pop((topic.topic, topic.topic_id, index), None)
            if gone is not None:
                gone.leave()
                if self.news is not None:
                    self.news.pop(gone, None)

    def update(self, request: m.FetchRequest) -> Generator[None, None, None]:
        """Take, in steps, what a request adds and forgets."""
        count = 0
        for topic in request.topics:
            for low in range(0, max(len(topic.partitions), 1), AT_ONCE):
                some = topic.partitions[low : low + AT_ONCE]
                if some:
                    self.add(topic, some)
                count += len(some) or 1
                if count >= AT_ONCE:
                    count = 0
                    yield
        for forgotten in request.forgotten_topics_data:
            for low in range(0, max(len(forgotten.partitions), 1), AT_ONCE):
                gone = forgotten.partitions[low : low + AT_ONCE]
                self.remove(forgotten, gone)
                count += len(gone) or 1
                if count >= AT_ONCE:
                    count = 0
                    yield


def is_long(request: m.FetchRequest) -> bool:
    """Whether a request names more partitions than are handled at once."""
    topics: Sequence[m.FetchRequestFetchTopic | m.FetchRequestForgottenTopic] = request.topics
    if len(topics) + len(request.forgotten_topics_data) > AT_ONCE:
        return True
    if request.forgotten_topics_data:
        topics = [*topics, *request.forgotten_topics_data]
    if len(topics) == 1:
        return len(topics[0].partitions) > AT_ONCE
    return sum([max(len(topic.partitions), 1) for topic in topics]) > AT_ONCE


class FetchContext:
    """
    One fetch within a session, or without one.

    Attributes:
        partitions: the partitions to read, in this order.
    """

    __slots__ = ("_changed", "_epoch", "_is_full", "_session", "partitions")

    def __init__(self, partitions: Iterable[SessionPartition], session: FetchSession | None, *, is_full: bool) -> None:
        self.partitions = list(partitions)
        self._session = session
        self._epoch = session.epoch if session else FINAL_EPOCH
        self._is_full = is_full
        self._changed: list[m.FetchableTopicResponse] = []

    @property
    def large_session(self) -> FetchSession | None:
        """The session, if a fetch of it visits the partitions with news only."""
        session = self._session
        return session if session is not None and session.news is not None else None

    @property
    def visited_session(self) -> FetchSession | None:
        """As `large_session`, but None in the fetch that has begun the session, which visits all."""
        return None if self._is_full else self.large_session

    @property
    def has_quiet(self) -> bool:
        """Whether the session has partitions that are not visited, because nothing is new there."""
        session = self.large_session
        return session is not None and session.news is not None and len(session.news) < len(session.partitions)

    def visit_again(self) -> None:
        """Visit the partitions that have news now, some time after the fetch has begun."""
        if self._session is not None and not self._is_full:
            self.partitions = self._session.visited()

    @property
    def _has_lost_session(self) -> bool:
        """Whether another fetch has continued the session."""
        return self._session is not None and self._session.epoch != self._epoch and not self._is_full

    def take(self, answers: Sequence[Data], low: int = 0) -> None:
        """
        Take the answers for the partitions from the place `low` on: of all partitions, or of the changed ones in a session.

        Source: IncrementalFetchContext.updateAndGenerateResponseData.
        """
        if self._has_lost_session:
            return
        some = self.partitions if len(answers) == len(self.partitions) else self.partitions[low : low + len(answers)]
        pairs = list(zip(some, answers, strict=True))
        session = self._session
        if session is not None:
            changed = [pair for pair in pairs if pair[0].update(pair[1])]
            if not self._is_full:
                pairs = changed
                for partition, answer in changed:
                    if answer.records:
                        session.move_to_end(partition)
        _add_by_topic(pairs, self._changed)

    def respond(self, node_endpoints: Sequence[m.FetchResponseNodeEndpoint]) -> m.FetchResponse:
        """Build the response from the answers that were taken."""
        session = self._session
        if session is not None and self._has_lost_session:
            return m.FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                session_id=session.session_id,
                node_endpoints=node_endpoints,
            )
        return m.FetchResponse(
            responses=self._changed,
            session_id=NO_SESSION if session is None else session.session_id,
            node_endpoints=node_endpoints,
        )

    def withhold(self, end: Callable[[int], None]) -> int:
        """
        The session id of a response without data, for a client that is throttled. A session that has just begun ends.

        Source: FullFetchContext.getThrottledResponse, IncrementalFetchContext.getThrottledResponse.
        """
        session = self._session
        if session is None or not self._is_full:
            return NO_SESSION if session is None else session.session_id
        end(session.session_id)
        return NO_SESSION


def _add_by_topic(pairs: Iterable[tuple[SessionPartition, Data]], topics: list[m.FetchableTopicResponse]) -> None:
    """Add answers, neighbours of one topic together. A topic is listed again if another topic's partitions lie between."""
    for (name, topic_id), group in groupby(pairs, key=lambda pair: (pair[0].topic, pair[0].topic_id)):
        partitions = [answer for _, answer in group]
        last = topics[-1] if topics else None
        if last is not None and (last.topic, last.topic_id) == (name, topic_id) and isinstance(last.partitions, list):
            last.partitions.extend(partitions)
        else:
            topics.append(m.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions))


NO_PARTITIONS: Final = FetchContext((), None, is_full=True)


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
        self._ended: deque[FetchSession] = deque()
        """Large sessions that ended, and whose partitions still wake them."""

    def __len__(self) -> int:
        return len(self._sessions)

    def places(self, session_id: int) -> list[Place]:
        """The partitions of a session, in the order in which they are read; none if there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def clear(self) -> None:
        """Forget all sessions."""
        for session_id in list(self._sessions):
            self._end(session_id)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.was_large:
            self._ended.append(session)

    def _sweep(self) -> None:
        """Have some partitions of large sessions that ended woken no more: twice as many as a step of a fetch adds."""
        left = 2 * AT_ONCE
        while self._ended and left:
            partitions = self._ended[0].partitions
            while partitions and left:
                partitions.popitem()[1].leave()
                left -= 1
            if not partitions:
                self._ended.popleft()

    def begin(self, request: m.FetchRequest, *, uses_ids: bool) -> Generator[None, None, FetchContext]:
        """
        Begin or continue a session with a fetch, in steps.

        Raises:
            CoordinatorError: nothing was changed. FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if self._ended:
            self._sweep()
        is_new = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        session = self._new(request, uses_ids=uses_ids) if is_new else self._next(request, uses_ids=uses_ids)
        size = len(session.partitions)
        for _ in session.update(request):
            self._sweep()
            yield
        return self._begun(request, session) if is_new else self._continued(session, size)

    def _new(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchSession:
        """A session that is not kept yet, in the place of the one that the request ends."""
        self._end(request.session_id)
        now_ms = self._clock.now_ms()
        return FetchSession(NO_SESSION, uses_ids, now_ms, now_ms)

    def _begun(self, request: m.FetchRequest, new: FetchSession) -> FetchContext:
        is_kept = request.session_epoch == INITIAL_EPOCH and self._keep(new)
        return FetchContext(new.visited(), new if is_kept else None, is_full=True)

    def withhold(self, context: FetchContext) -> int:
        """The session id of a response that has no data because the client is throttled."""
        return context.withhold(self._end)

    def _next(self, request: m.FetchRequest, *, uses_ids: bool) -> FetchSession:
        """The session that a fetch continues, at its next epoch."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise CoordinatorError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise CoordinatorError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_ms = self._clock.now_ms()
        return session

    def _continued(self, session: FetchSession, size: int) -> FetchContext:
        """The fetch of a session that had `size` partitions before it."""
        if len(session.partitions) > size and (self.partition_count > self._partitions_max or session.has_long_name):
            # The client begins again, with a full fetch.
            self._end(session.session_id)
            raise CoordinatorError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._end(session.session_id)
            return FetchContext((), None, is_full=True)
        return FetchContext(session.visited(), session, is_full=False)

    def _keep(self, session: FetchSession) -> bool:
        """Give a session its id; False if there is no room."""
        size = len(session.partitions)
        if self.partition_count + size > self._partitions_max or session.has_long_name:
            return False
        if len(self._sessions) >= self._slots and not self._evict(size, self._clock.now_ms()):
            return False
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(os.urandom(4), "big") & EPOCH_MAX
        session.session_id = session_id
        self._sessions[session_id] = session
        return True

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
            self._end(idle.session_id)
            return True
        old = (session for session in self._sessions.values() if session.used_ms - session.created_ms > EVICTION_MS)
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        self._end(smallest.session_id)
        return True
