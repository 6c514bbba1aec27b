"""Fetch requests that wait: for a later turn, or for records."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import Context, wait_at
from kohort.broker.records.fetch_answers import is_urgent, size
from kohort.broker.records.fetch_read import FetchRead
from kohort.broker.records.fetch_sessions import AT_ONCE, FetchSession, nobody_waits
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.large_batches import Steps
from kohort.broker.records.log_reads import AbandonedError
from kohort.machine.shard import Reply
from kohort.runtime.purgatory import Delayed
from kohort.wire import messages as m

FetchNow = Callable[[m.FetchRequest, Context, Reply[m.FetchResponse]], m.FetchResponse | None]


class LaterFetch:
    """A request that is handled in a later turn, unless its client disconnects before."""

    __slots__ = ("_request",)

    def __init__(
        self, handle: FetchNow, request: m.FetchRequest, context: Context, reply: Reply[m.FetchResponse]
    ) -> None:
        self._request: tuple[FetchNow, m.FetchRequest, Context, Reply[m.FetchResponse]] | None = (
            handle,
            request,
            context,
            reply,
        )

    def handle(self) -> None:
        if self._request is None:
            return
        handle, request, context, reply = self._request
        response = handle(request, context, reply)
        if response is not None:
            reply(response)

    def abandon(self) -> None:
        self._request = None


class DelayedFetch(Delayed):
    """
    A Fetch request in the purgatory of its partitions. It is answered once: when there are enough bytes, when one of its
    partitions is deleted, or after its timeout. It is dropped if its client disconnects.

    While it reads in steps or from the disk it is busy: changes are noted, and judged afterwards.

    Source: Kafka DelayedFetch; Kafka keeps the requests of disconnected clients.
    """

    __slots__ = (
        "_changed",
        "_found",
        "_has_answers",
        "_has_news",
        "_is_busy",
        "_is_queued",
        "_numbers",
        "_session",
        "_sizes",
        "_tell",
        "_waiting",
    )

    def __init__(self, read: FetchRead, reply: Reply[m.FetchResponse], wait_ms: int) -> None:
        super().__init__(wait_ms)
        self._waiting: tuple[FetchRead, Reply[m.FetchResponse]] | None = read, reply
        self._numbers: dict[Partition, int] = {}
        self._sizes: list[int] = []
        self._found = 0
        self._has_answers = False
        self._is_queued = False
        """Whether it is tried again in a later turn."""
        self._is_busy = False
        self._changed: dict[Partition, None] = {}
        self._tell: Callable[[], object] = nobody_waits
        self._session: FetchSession | None = None
        """A large one, whose partitions with news are looked up again at each change."""
        self._has_news = False

    def watch(self, read: FetchRead) -> None:
        """Wait after a read that has not found enough."""
        purgatory = read.broker.waiting
        purgatory.put(self, self._number(read, 0, read.valid))
        self._watch_session(read)
        purgatory.arm(self)
        self._note(read)

    def watch_in_steps(self, read: FetchRead) -> Steps[None]:
        """As `watch`. Raises: AbandonedError."""
        purgatory = read.broker.waiting
        self._is_busy = True
        for low in range(0, read.valid, AT_ONCE):
            high = min(low + AT_ONCE, read.valid)
            purgatory.put(self, self._number(read, low, high))
            self._changed.update(dict.fromkeys(read.changed(low, high)))
            yield from read.rest()
        self._watch_session(read)
        purgatory.arm(self)
        self._go_idle(read)

    def _watch_session(self, read: FetchRead) -> None:
        """Wait for news of the partitions that a large session does not visit."""
        session = read.session_context.visited_session
        if session is not None:
            self._session = session
            read.broker.waiting.put(self, (session,))
            self._tell = session.tell = partial(read.broker.waiting.check_and_complete, session)

    def _number(self, read: FetchRead, low: int, high: int) -> list[Partition]:
        partitions = [where for _, where in read.targets[low:high] if isinstance(where, Partition)]
        for number, partition in enumerate(partitions, low):
            self._numbers[partition] = number
        return partitions

    def _note(self, read: FetchRead) -> None:
        """Keep the sizes of the answers alone."""
        self._sizes = list(map(size, read.answers))
        self._found = read.found
        read.answers = []

    def try_complete(self, key: Hashable | None = None) -> bool:
        """
        Answer if there are enough bytes. A change of one partition is judged by this partition, with the sizes that the others
        had: a request that waits for many partitions does not read all of them at each append.
        """
        if self._waiting is None or self.has_ended:
            return False
        read = self._waiting[0]
        if self._is_busy:
            if isinstance(key, Partition):
                self._changed[key] = None
            elif key is not None:
                self._has_news = True
            return False
        if self._is_queued or read.broker.turns.is_full:
            self._try_later(read.broker.turns)
            return False
        if self._session is not None:
            self._go_on()
            return False
        number, known = -1, None
        if isinstance(key, Partition):
            number = self._numbers[key]
            known = read.read_one(number, self._found - self._sizes[number])
            if not read.missing:
                self._found += size(known) - self._sizes[number]
                self._sizes[number] = size(known)
                if self._found < read.bytes_min and not is_urgent(known):
                    return False
        if read.is_long or read.missing:
            self._go_on()
            return False
        is_enough = read.collect(number, known)
        if read.missing:
            self._go_on()
            return False
        if not is_enough:
            self._note(read)
            return False
        self._has_answers = True
        return self.force_complete()

    def _try_later(self, turns: FetchTurns) -> None:
        if not self._is_queued:
            self._is_queued = True
            turns.wait(self._try_now)

    def _try_now(self) -> None:
        self._is_queued = False
        self.try_complete()

    def _go_on(self) -> None:
        """Read in later turns."""
        assert self._waiting is not None, "the request is not answered"
        read, reply = self._waiting
        self._is_busy = True
        read.context.go_on(self._in_steps(read), reply)

    def _in_steps(self, read: FetchRead) -> Steps[m.FetchResponse | None]:
        """Read, and answer if there are enough bytes or the time is over; else wait on."""
        try:
            refused, is_gone = read.refused, False
            if self._session is not None:
                self._has_news = False
                read.session_context.visit_again()
                yield from read.find_in_steps()
                is_gone = read.refused > refused
            is_enough = yield from read.collect_in_steps()
            if is_enough or is_gone or self.has_ended:
                if read.broker.hold is not None:
                    yield partial(wait_at, read.broker.hold, read.places)
                    yield from read.collect_in_steps()
                self.cancel()
                self._forget()
                return (yield from read.respond_in_steps())
            if self._session is not None:
                for low in range(0, read.valid, AT_ONCE):
                    self._watch_more(read, low)
                    yield from read.rest()
        except AbandonedError:
            return None
        self._go_idle(read)
        return None

    def _watch_more(self, read: FetchRead, low: int) -> None:
        """Watch partitions of a session that had nothing new before."""
        known = self._numbers.keys()
        high = min(low + AT_ONCE, read.valid)
        new = [where for _, where in read.targets[low:high] if isinstance(where, Partition) and where not in known]
        read.broker.waiting.put(self, new)
        self._changed.update(dict.fromkeys(read.changed(low, high)))
        self._numbers.update(dict.fromkeys(new, 0))

    def _go_idle(self, read: FetchRead) -> None:
        """Wait for changes again, and judge those that came meanwhile."""
        self._note(read)
        self._is_busy = False
        changed, self._changed = self._changed, {}
        if self._has_news or len(changed) > AT_ONCE or self.has_ended:
            self._go_on()
            return
        for partition in changed:
            if self._is_busy or self.try_complete(partition):
                break

    def on_complete(self) -> None:
        if self._is_busy:
            return
        assert self._waiting is not None, "a delayed operation completes once"
        read, reply = self._waiting
        is_long = read.is_long or self._session is not None or read.broker.hold is not None
        if not self._has_answers and not is_long:
            read.collect()
        if is_long or read.missing:
            self._go_on()
            return
        self._forget()
        reply(read.respond())

    def abandon(self) -> None:
        """Drop the request of a disconnected client at once, not at the next purge of the watch lists."""
        if self._waiting is not None:
            read = self._waiting[0]
            self._forget()
            self.cancel()
            read.abandon()

    def _forget(self) -> None:
        """The connection may keep this request until its next one; a deleted partition must not stay in memory with it."""
        self._waiting = None
        self._numbers = {}
        if self._session is not None:
            if self._session.tell is self._tell:
                self._session.tell = nobody_waits
            self._session = None
