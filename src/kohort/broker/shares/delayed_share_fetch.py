"""
One ShareFetch request: the partitions of its session are read until there is enough, and their records acquired.

A request waits for records of a partition, for records that are released, and for share partitions whose state is being read.
It is answered when its acknowledgements are written, too.

Source: Kafka DelayedShareFetch, ShareFetchUtils.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from functools import partial
from typing import Any

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import Context
from kohort.broker.records.log_reads import LogRead
from kohort.broker.shares.acquisition import Acquisition, archive_aborted
from kohort.broker.shares.led_share_partition import LedSharePartition
from kohort.broker.shares.log_batches import ReadBatches
from kohort.broker.shares.record_states import ShareSettings
from kohort.broker.shares.share_acknowledge import Acknowledging, Asked, Results
from kohort.broker.shares.share_broker import ShareBroker
from kohort.broker.shares.share_fetch_answer import NOTHING_FETCHED, Fetched, ShareFetchAnswer
from kohort.broker.shares.share_partition import Acquired
from kohort.broker.shares.share_reads import FEW_BYTES, ReadData, ShareRead, may_have
from kohort.broker.shares.share_sessions import FINAL_EPOCH, ShareSession, TopicIdPartition
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.runtime.purgatory import Delayed
from kohort.storage.producer_states import AbortedTxn
from kohort.wire import messages as m


class DelayedShareFetch(Delayed):
    """A request between its arrival and its answer."""

    __slots__ = (
        "_acknowledged",
        "_broker",
        "_by_partition",
        "_context",
        "_epoch",
        "_found",
        "_has_fetched",
        "_is_acknowledged",
        "_is_busy",
        "_is_queued",
        "_reading",
        "_reply",
        "_request",
        "_session",
        "_targets",
    )

    def __init__(
        self,
        broker: ShareBroker,
        session: ShareSession,
        request: m.ShareFetchRequest,
        context: Context,
        reply: Reply[m.ShareFetchResponse],
    ) -> None:
        super().__init__(max(request.max_wait_ms, 0))
        self._broker = broker
        self._session = session
        self._request = request
        self._context = context
        self._reply: Reply[m.ShareFetchResponse] | None = reply
        self._epoch = session.epoch
        self._targets: dict[TopicIdPartition, LedSharePartition] = {}
        self._by_partition: dict[Hashable, LedSharePartition] = {}
        self._found: dict[TopicIdPartition, Fetched] = {}
        self._acknowledged: Results = {}
        self._is_acknowledged = False
        self._has_fetched = False
        self._is_busy = False
        """Whether records are read from the disk."""
        self._is_queued = False
        """Whether it is tried again in a later turn."""
        self._reading: LogRead[ReadData] | None = None

    def begin(self, asked: Asked) -> None:
        """Acknowledge, then fetch."""
        request, session = self._request, self._session
        is_final = request.share_session_epoch == FINAL_EPOCH
        if asked:
            # Not an attribute: both would refer to each other.
            acknowledging = Acknowledging(self._broker, self._on_acknowledged)
            self._acknowledged = acknowledging.results
            acknowledging.begin(
                session.group_id, session.member_id, asked, self._context, is_renewal=request.is_renew_ack
            )
        else:
            self._is_acknowledged = True
        if is_final or request.is_renew_ack:
            self._end_fetch()
            return
        self._find_targets()
        if request.max_bytes < 0:
            self._found.update(dict.fromkeys(self._targets, Fetched(ErrorCode.UNKNOWN_SERVER_ERROR)))
        if not self._targets or not request.max_records or request.max_bytes <= 0:
            self._end_fetch()
            return
        self._context.when_abandoned(self.abandon)
        if self._broker.fetches.turns.is_full:
            self._try_later()
        elif self.try_complete() or self._is_busy:
            return
        if self.delay_ms <= 0:
            self.force_complete()
            return
        self._watch()

    def _watch(self) -> None:
        """Wait for the partitions and the share partitions."""
        purgatory = self._broker.fetches.waiting
        keys: list[Hashable] = list(self._targets.values())
        purgatory.put(self, keys)
        self._by_partition = {led.partition: led for led in self._targets.values()}
        purgatory.put(self, list(self._by_partition))
        purgatory.arm(self)

    def _find_targets(self) -> None:
        """Find the partitions of the session, from another one on at each request."""
        broker, session = self._broker, self._session
        wanted = session.rotated(self._request.share_session_epoch)
        find = broker.finder(self._context, wanted)
        for where in wanted:
            found = find(where)
            if isinstance(found, Partition):
                session.known.add(where.topic_id)
                led = broker.leader.of(session.group_id, where.topic_id, found)
                self._targets[where] = led
                continue
            if found is ErrorCode.UNKNOWN_TOPIC_ID and where.topic_id in session.known:
                found = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._found[where] = Fetched(found)

    # -- tries -------------------------------------------------------------------------------------------------

    @property
    def _is_outdated(self) -> bool:
        """Whether another request has raised or ended the session meanwhile: nobody would get what is acquired."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def try_complete(self, key: Hashable | None = None) -> bool:
        if self.has_ended or self._is_busy or self._is_queued:
            return False
        if self._is_outdated:
            return self.force_complete()
        if key is not None and not self._is_news(key):
            return False
        if self._broker.fetches.turns.is_full:
            self._try_later()
            return False
        if key is None:
            self._check_targets()
        if self._found:
            return self.force_complete()
        if self._request.max_records < 0 or not any(map(may_have, self._targets.values())):
            return self._request.min_bytes < 1 and self._has_ready and self.force_complete()
        return self._read_all(is_over=False)

    def _is_news(self, key: Hashable) -> bool:
        """Whether a change may end the wait: records, or a share partition that is gone."""
        led = key if isinstance(key, LedSharePartition) else self._by_partition.get(key)
        if led is None:
            return False
        if not led.error:
            self._broker.leader.check(led)
        if led.error:
            self._check_targets()
            return True
        return may_have(led) or (self._request.min_bytes < 1 and led.is_ready)

    @property
    def _settings(self) -> ShareSettings:
        return self._broker.settings.of(self._session.group_id).of_records

    @property
    def _has_ready(self) -> bool:
        return any(led.is_ready for led in self._targets.values())

    def _try_later(self) -> None:
        self._is_queued = True
        self._broker.fetches.turns.wait(self._try_now)

    def _try_now(self) -> None:
        self._is_queued = False
        self.try_complete()

    def _check_targets(self) -> None:
        """Note the share partitions that were dropped: deleted, or led by another broker."""
        gone = []
        for where, led in self._targets.items():
            if not led.error:
                self._broker.leader.check(led)
            if led.error:
                self._found[where] = Fetched(led.error)
                gone.append(where)
        for where in gone:
            del self._targets[where]

    def on_complete(self) -> None:
        """Take what there is: enough was found, or the time is over."""
        if self._is_busy:
            return
        if not self._is_outdated:
            self._check_targets()
            if self._read_all(is_over=True) or self._is_busy:
                return
        self._end_fetch()

    # -- reading -----------------------------------------------------------------------------------------------

    def _wanted(self) -> list[ShareRead]:
        """The possible reads. A share partition that was just read comes last. Source: DelayedShareFetch.readFromLog."""
        before: list[tuple[TopicIdPartition, LedSharePartition, int]] = []
        behind: list[tuple[TopicIdPartition, LedSharePartition, int]] = []
        settings = self._settings
        for where, led in self._targets.items():
            records = led.records
            if not led.is_ready or records is None or not records.may_fetch(settings.locks_max):
                continue
            offset = records.next_offset()
            (before if offset == led.seen_offset else behind).append((where, led, offset))
            led.seen_offset = offset
        total = self._broker.fetches.bytes_max(self._request, self._context)
        share = max(total // max(len(before) + len(behind), 1), 1)
        few = min(share, max(FEW_BYTES, self._request.min_bytes))
        return [
            ShareRead(
                where,
                led,
                offset,
                share,
                few,
                max(offset, _end_of(led) + 1) + self._request.max_records,
                settings.is_committed,
            )
            for where, led, offset in before + behind
        ]

    def _read_all(self, *, is_over: bool) -> bool:
        """
        Read and acquire. Returns whether the request is answered, or will be when its records are read from the disk.

        Args:
            is_over: whether to take what there is, however little.
        """
        wanted = self._wanted()
        data: dict[TopicIdPartition, ReadData] = {}
        size = 0
        room = self._broker.fetches.bytes_max(self._request, self._context)
        has_moved = False
        for each in wanted:
            if size and size >= room:
                break
            try:
                found = each.cached()
            except StorageError as error:
                self._found[each.where] = Fetched(error.code)
                continue
            if found is None:
                self._load(wanted, is_over=is_over)
                return False
            log = each.led.partition.log
            has_moved |= each.offset < log.log_start_offset
            data[each.where] = found
            size += len(found[0])
        is_enough = has_moved or bool(self._found) or size >= self._request.min_bytes
        if not is_over and not is_enough:
            return False
        if not is_over and not self._end_wait():
            return False
        self._take(wanted, data)
        return True

    def _end_wait(self) -> bool:
        """End the wait without `on_complete`: the records are here."""
        return self.cancel()

    def _load(self, wanted: Sequence[ShareRead], *, is_over: bool) -> None:
        """Read from the disk, with the share partitions held: other fetches leave them out meanwhile."""
        self._is_busy = True
        for each in wanted:
            each.led.is_busy = True
        if not is_over:
            self._end_wait()
        self._context.go_on(self._load_in_steps(wanted), self._answer_nothing)

    def _answer_nothing(self, _response: object) -> None:
        """The answer is given by `_end_fetch`."""

    def _load_in_steps(self, wanted: Sequence[ShareRead]) -> Generator[Any, None, None]:
        data: dict[TopicIdPartition, ReadData] = {}
        try:
            room = self._broker.fetches.bytes_max(self._request, self._context)
            size = 0
            for each in wanted:
                if (size and size >= room) or self._reply is None:
                    break
                found = None
                try:
                    found = each.cached()
                    if found is None:
                        read = self._reading = each.log_read()
                        yield partial(self._broker.fetches.log_reads.begin, read)
                        self._reading = None
                        if not read.is_done:
                            break
                        found = read.result()
                except StorageError as error:
                    self._found[each.where] = Fetched(error.code)
                    continue
                data[each.where] = found
                size += len(found[0])
                yield None
        finally:
            for each in wanted:
                each.led.is_busy = False
            self._is_busy = False
        if self._reply is not None:
            self._take(wanted, {} if self._is_outdated else data)
        self._wake(wanted)

    def _wake(self, wanted: Sequence[ShareRead]) -> None:
        """Wake the requests that have left out what this one held."""
        for each in wanted:
            self._broker.fetches.waiting.check_and_complete(each.led)

    # -- acquisition -------------------------------------------------------------------------------------------

    def _take(self, wanted: Sequence[ShareRead], data: dict[TopicIdPartition, ReadData]) -> None:
        """Acquire records of what was read, and answer."""
        left = self._request.max_records
        for each in wanted:
            if each.where in data and not each.led.error:
                records, transactions = data[each.where]
                found = self._acquire(each, records, transactions, left)
                self._found[each.where] = found
                left -= sum(last - first + 1 for first, last, _ in found.acquired)
        self._end_fetch()

    def _acquire(self, each: ShareRead, data: bytes, transactions: Sequence[AbortedTxn], left: int) -> Fetched:
        led, request = each.led, self._request
        records = led.records
        if records is None:
            return NOTHING_FETCHED
        log_start = led.partition.log.log_start_offset
        if each.offset < log_start:
            records.on_log_start(log_start)
            return NOTHING_FETCHED
        if not data or left <= 0:
            return NOTHING_FETCHED
        settings = self._settings
        is_new = records.is_drained or each.offset > records.end_offset
        batches = ReadBatches(data, each.offset, left if is_new else 0)
        acquisition = Acquisition(
            records,
            self._session.member_id,
            request.share_acquire_mode,
            request.batch_size,
            self._broker.clock.now_ms(),
            settings,
        )
        acquired: Sequence[Acquired] = acquisition.acquire(left, each.offset, batches.offsets)
        if settings.is_committed and acquired and transactions:
            acquired = archive_aborted(records, acquired, batches.aborted(transactions))
        led.watch_locks()
        if not acquired:
            return NOTHING_FETCHED
        return Fetched(ErrorCode.NONE, batches.between(acquired[0].first, acquired[-1].last), acquired)

    # -- the answer --------------------------------------------------------------------------------------------

    def _end_fetch(self) -> None:
        self._has_fetched = True
        self._answer_if_done()

    def _on_acknowledged(self) -> None:
        self._is_acknowledged = True
        self._answer_if_done()

    def _answer_if_done(self) -> None:
        if not self._has_fetched or not self._is_acknowledged or self._reply is None:
            return
        reply, self._reply = self._reply, None
        is_final = self._request.share_session_epoch == FINAL_EPOCH
        answer = ShareFetchAnswer(
            self._broker, self._session, self._request, self._context, self._found, self._acknowledged
        )
        response = answer.outdated() if self._is_outdated and not is_final else answer.make()
        if is_final:
            self._broker.sessions.close(self._session)
        self._targets = {}
        self._by_partition = {}
        reply(response)

    def abandon(self) -> None:
        """The client has disconnected. A read that another thread has begun ends by itself."""
        self._reply = None
        self.cancel()
        if self._reading is not None:
            self._broker.fetches.log_reads.drop(self._reading)


def _end_of(led: LedSharePartition) -> int:
    assert led.records is not None, "it is ready"
    return led.records.end_offset
