"""
A share partition with what surrounds it at the leader: its state at the share coordinator, its locks in time, its dead letters.

It is made at the first fetch that names it, and reads its state. It is dropped with the leadership, with its topic, when
another leader or another state has fenced it, and with the last session of its group that a closed connection ends; the next
fetch then reads the state again.

Source: Kafka SharePartition, SharePartitionManager, DefaultStatePersister.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import CallLater, Cancel
from kohort.broker.records.log_reads import LogRead, LogReads
from kohort.broker.shares.acknowledgement import (
    Acknowledgement,
    AcknowledgementBatch,
    commit,
    expire,
    release,
    roll_back,
)
from kohort.broker.shares.share_partition import Change, Letter, SharePartition
from kohort.broker.shares.share_settings import LeaderSettings, LeaderSettingsOfGroups
from kohort.machine.ports import Persister, SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.runtime.metrics import Histogram
from kohort.runtime.ports import Clock
from kohort.storage.log import Log, ReadView, TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Hashable

Done: TypeAlias = Callable[[ErrorCode, str | None], None]
"""`done(code, message)`: called once, now or later."""

_log = logging.getLogger("kohort.broker")

_UNKNOWN_OFFSET: Final = -1
_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_KEPT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_DROPPING: Final = frozenset({*_KEPT, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors of a write after which the state is read anew."""


def client_code(code: ErrorCode) -> ErrorCode:
    """The error that a client gets for one of the share coordinator. Source: SharePartition.fetchPersisterError."""
    if code in _COORDINATOR:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in _KEPT else ErrorCode.UNKNOWN_SERVER_ERROR


class DeadLetters(Protocol):
    """The writer of dead letters."""

    def write(self, led: LedSharePartition, letter: Letter, done: Callable[[], None], /) -> None:
        """Write the dead letters of some records, and call `done` once, now or later, whether they could be written or not."""


class LeaderServices:
    """
    The services that all share partitions of a broker use.

    Attributes:
        loads: how long share partitions have taken to read their state.
    """

    __slots__ = ("call_later", "clock", "dead_letters", "loads", "persister", "searches", "settings", "wake")

    def __init__(
        self,
        persister: Persister,
        settings: LeaderSettingsOfGroups,
        clock: Clock,
        call_later: CallLater,
        searches: LogReads,
        wake: Callable[[Hashable], object],
        dead_letters: DeadLetters,
    ) -> None:
        self.persister = persister
        self.settings = settings
        self.clock = clock
        self.call_later = call_later
        self.searches = searches
        self.wake = wake
        self.dead_letters = dead_letters
        self.loads = Histogram()


class LedSharePartition:
    """
    A share partition at its leader.

    Attributes:
        records: what is in flight; None until the state is loaded.
        error: the reason for which it is dropped, as clients are told; NONE while it is in use.
        is_busy: whether a fetch reads its records from the disk; other fetches leave it out.
        seen_offset: from which the last fetch wanted to read. A share partition that was just read comes after others.
    """

    __slots__ = (
        "_cancel",
        "_forget",
        "_leader_epoch",
        "_loading_since_ms",
        "_services",
        "_state_epoch",
        "_timer_at",
        "error",
        "expired_locks",
        "is_busy",
        "key",
        "partition",
        "records",
        "seen_offset",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        services: LeaderServices,
        forget: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.records: SharePartition | None = None
        self.error = ErrorCode.NONE
        self.is_busy = False
        self.seen_offset = _UNKNOWN_OFFSET
        self.expired_locks = 0
        self._services = services
        self._forget = forget
        self._leader_epoch = partition.leader_epoch
        self._state_epoch = 0
        self._loading_since_ms = 0
        self._timer_at = 0
        self._cancel: Cancel | None = None

    @property
    def settings(self) -> LeaderSettings:
        return self._services.settings.of(self.key.group_id)

    @property
    def is_ready(self) -> bool:
        """Whether a fetch may read it now."""
        return self.records is not None and not self.is_busy

    def is_of(self, partition: Partition) -> bool:
        """Whether it still belongs to a partition and its present leader epoch."""
        return partition is self.partition and partition.leader_epoch == self._leader_epoch

    # -- the load ----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the state. Fetches that wait are woken when it is there, or when there is an `error`."""
        self._loading_since_ms = self._services.clock.now_ms()
        self._services.persister.read(self.key, self._leader_epoch, self._on_state)

    def _on_state(self, answer: SharePartitionState | CoordinatorError) -> None:
        if self.error:
            return
        if isinstance(answer, CoordinatorError):
            self.drop(client_code(answer.code))
            return
        self._state_epoch = answer.state_epoch
        if answer.start_offset != _UNKNOWN_OFFSET:
            self._begin(answer, answer.start_offset)
            return
        reset = self.settings.reset
        log = self.partition.log
        if isinstance(reset, int):
            self._search(answer, self._services.clock.now_ms() - reset)
        else:
            self._begin(answer, log.log_start_offset if reset == "earliest" else log.high_watermark)
            if reset == "latest":
                self._write_start()

    def _search(self, state: SharePartitionState, timestamp_ms: int) -> None:
        def work(view: ReadView | Log) -> TimestampOffset | None:
            return view.offset_for_timestamp(timestamp_ms)

        read = LogRead(self.partition.log, work)
        self._services.searches.begin(read, partial(self._on_found, state, read))

    def _on_found(self, state: SharePartitionState, read: LogRead[TimestampOffset | None]) -> None:
        if self.error:
            return
        try:
            found = read.result()
        except StorageError as error:
            self.drop(error.code)
            return
        if found is None or found.offset >= self.partition.log.high_watermark:
            self.drop(ErrorCode.OFFSET_NOT_AVAILABLE)
            return
        self._begin(state, found.offset)
        self._write_start()

    def _begin(self, state: SharePartitionState, start_offset: int) -> None:
        records = SharePartition(start_offset)
        try:
            letters = records.load(state.batches)
        except ValueError as error:
            _log.error("share.state_refused key=%r reason=%s", self.key, error)
            self.drop(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self.records = records
        self._services.loads.record(self._services.clock.now_ms() - self._loading_since_ms)
        limit = self.settings.of_records.delivery_limit
        self._send([letter._replace(is_rejected=letter.deliveries < limit) for letter in letters])
        self._services.wake(self)

    def _write_start(self) -> None:
        """
        Write a start offset that the reset has chosen: another load would choose another one, and skip what was produced
        meanwhile. Kafka writes it with the first acknowledgement.
        """
        if self.records is not None:
            change = Change()
            self.records.seal(change)
            self._services.persister.write(self.key, self._state_of(change), self._on_late)

    # -- the end -----------------------------------------------------------------------------------------------

    def drop(self, code: ErrorCode) -> None:
        """Forget the records. Fetches that wait are told."""
        if self.error:
            return
        self.error = code
        self.records = None
        if self._cancel is not None:
            self._cancel()
        self._forget(self)
        self._services.wake(self)

    # -- acknowledgements --------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], done: Done) -> None:
        """Acknowledge records of a member. `done` is called when that is written."""
        records = self.records
        if records is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
            return
        settings = self.settings.of_records
        acknowledgement = Acknowledgement(records, member_id, self._services.clock.now_ms(), settings)
        try:
            change = acknowledgement.acknowledge(batches)
        except CoordinatorError as error:
            done(error.code, error.message)
            return
        if change.batches:
            self._write(records, change, done)
        else:
            done(ErrorCode.NONE, None)

    def release(self, member_id: str) -> None:
        """Release the records of a member whose session has ended."""
        if self.records is not None:
            change = release(self.records, member_id, self.settings.of_records)
            if change.batches:
                self._write(self.records, change, _nobody)

    def _write(self, records: SharePartition, change: Change, done: Done) -> None:
        self._services.persister.write(
            self.key, self._state_of(change), partial(self._on_written, records, change, done)
        )

    def _state_of(self, change: Change) -> SharePartitionState:
        return SharePartitionState(
            self._state_epoch, self._leader_epoch, change.start_offset, change.complete_count, change.batches
        )

    def _on_written(self, records: SharePartition, change: Change, done: Done, error: CoordinatorError | None) -> None:
        if error is None:
            has_news = commit(records, change)
            done(ErrorCode.NONE, None)
            if not self.error:
                self._send(change.letters)
        else:
            has_news = roll_back(records, change, self._services.clock.now_ms(), self.settings.of_records)
            code = client_code(error.code)
            if code in _DROPPING:
                self.drop(code)
            done(code, error.message)
        if not self.error:
            self.watch_locks()
            if has_news:
                self._services.wake(self)

    # -- locks -------------------------------------------------------------------------------------------------

    def watch_locks(self) -> None:
        """Have the locks end in time; called after every acquisition."""
        if self.records is None or self.error:
            return
        deadline = self.records.next_deadline
        if not deadline or (self._cancel is not None and self._timer_at <= deadline):
            return
        if self._cancel is not None:
            self._cancel()
        self._timer_at = deadline
        delay_ms = max(deadline - self._services.clock.now_ms(), 0)
        self._cancel = self._services.call_later(delay_ms, self._on_deadline)

    def _on_deadline(self) -> None:
        self._cancel = None
        if self.records is None or self.error:
            return
        change = expire(self.records, self._services.clock.now_ms(), self.settings.of_records)
        self.watch_locks()
        if change.batches:
            self.expired_locks += sum(last - first + 1 for first, last, _, _ in change.batches)
            self._write_late(change)
            self._services.wake(self)

    def _write_late(self, change: Change) -> None:
        """Write what has changed for good. A failure is only logged: the next load has what was written before."""
        self._services.persister.write(self.key, self._state_of(change), partial(self._on_late, letters=change.letters))

    def _on_late(self, error: CoordinatorError | None, letters: Sequence[Letter] = ()) -> None:
        if error is not None:
            _log.warning("share.write_failed key=%r error=%s reason=%s", self.key, error.code.name, error.message)
        elif not self.error:
            self._send(letters)

    # -- dead letters ------------------------------------------------------------------------------------------

    def _send(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._services.dead_letters.write(self, letter, partial(self._on_letter, letter))

    def _on_letter(self, letter: Letter) -> None:
        if self.records is None or self.error:
            return
        start = self.records.start_offset
        change = self.records.archive_letters(letter)
        if change.batches:
            self._write_late(change)
        if self.records.start_offset != start:
            self._services.wake(self)


NOT_HOSTED: Final = "This server does not host this topic-partition."


def _nobody(_code: ErrorCode, _message: str | None) -> None:
    """Nobody waits for the release of records."""
