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

from typing import TYPE_CHECKING, Final

from kohort.broker.ports import Context
from kohort.broker.records.fetch_answers import TOPIC_IDS_SINCE, failed
from kohort.broker.records.fetch_broker import FetchBroker
from kohort.broker.records.fetch_read import READ_COMMITTED, FetchRead
from kohort.broker.records.fetch_sessions import AT_ONCE, is_long
from kohort.broker.records.fetch_waiting import DelayedFetch, LaterFetch
from kohort.broker.records.large_batches import Steps
from kohort.broker.records.log_reads import AbandonedError
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError
from kohort.wire import messages as m
from kohort.wire.generated.gradual import drain

if TYPE_CHECKING:
    Data = m.FetchResponsePartitionData
    _Answer = Steps[m.FetchResponse | None]

BYTES_MAX = (1 << 31) - 1
"""No limit of the size of a response."""

_PAUSE_MS: Final = 500
"""The longest wait of a fetch whose session has an error that Kafka answers at once, and that its client knows."""


class Fetch:
    """Handler of Fetch: reads from several partitions with one limit for the size of the response."""

    def __init__(self, broker: FetchBroker) -> None:
        self._broker = broker
        self._turns = broker.turns
        self.sessions = broker.sessions

    def fetch(self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]) -> m.FetchResponse | None:
        if self._turns.is_full:
            later = LaterFetch(self.fetch_now, request, context, reply)
            context.when_abandoned(later.abandon)
            self._turns.wait(later.handle)
            return None
        return self.fetch_now(request, context, reply)

    def fetch_now(
        self, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]
    ) -> m.FetchResponse | None:
        """Begin to handle a request in this turn."""
        api_version = context.api_version
        if request.isolation_level not in (0, READ_COMMITTED):
            return failed(request, api_version)
        read = FetchRead(request, context, self._broker)
        if is_long(request):
            context.when_abandoned(read.abandon)
            context.go_on(self._begin_in_steps(read, reply), reply)
            return None
        try:
            read.session_context = drain(self.sessions.begin(request, uses_ids=api_version >= TOPIC_IDS_SINCE))
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
            read.session_context = yield from self.sessions.begin(read.request, uses_ids=uses_ids)
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


def _wait_ms(read: FetchRead) -> int:
    wait_ms = read.request.max_wait_ms
    return min(wait_ms, _PAUSE_MS) if read.has_known_error else wait_ms
