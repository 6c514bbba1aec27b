"""Work that the owner's thread gathers for the writer: appends of logs, new log starts, removals."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Defer
from kohort.storage.epochs import EpochCache
from kohort.storage.producer_states import AbortedTxn, BatchMetadata, ProducerStateEntry
from kohort.storage.producers import ProducerStateManager

STATEMENT_BYTES: Final = 1024 * 1024
"""
Bytes of batches in one statement, and one more batch set. A large Produce delays the appends of others by one such statement.
"""


class WrittenLog(Protocol):
    """A log as its writes see it."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> UUID: ...

    log_id: int
    attempt: int
    leader_epoch: int
    end_offset: int
    sealed_epoch: int
    epochs: EpochCache
    producers: ProducerStateManager
    write: "LogWrite | None"

    def advance(self, high_watermark: int) -> None: ...
    def fail(self, reason: str, *, is_led_elsewhere: bool = False) -> None: ...
    def on_start_moved(self, log_start_offset: int, base_offset: int) -> None: ...
    def on_removed(self, size_bytes: int) -> None: ...


class LogWrite:
    """
    What was appended to one log, and what depends on it: all of it is in the database, or nothing.

    Attributes:
        stored_epoch: the leader epoch that the row of the log has before this write.
        base_offset: the next offset that it has.
        batches: base offset, last offset, largest timestamp and bytes of each batch.
        producer_ids: of the batches.
        aborted: the transactions that these batches abort.
        leader_epoch, next_offset, epochs, producers: what the write leaves: set by `seal`.
        is_full: whether no more is added.
    """

    def __init__(self, log: WrittenLog) -> None:
        self.log: Final = log
        self.stored_epoch: Final = log.sealed_epoch
        self.base_offset: Final = log.end_offset
        self.batches: Final[list[tuple[int, int, int, bytes]]] = []
        self.producer_ids: Final[set[int]] = set()
        self.aborted: Final[list[AbortedTxn]] = []
        self.size_bytes = 0
        self.leader_epoch = self.stored_epoch
        self.next_offset = self.base_offset
        self.epochs: list[tuple[int, int]] = []
        self.producers: list[tuple[int, bytes]] = []
        self.is_full = False

    def add(self, base_offset: int, last_offset: int, max_timestamp_ms: int, batch: bytes) -> None:
        self.batches.append((base_offset, last_offset, max_timestamp_ms, batch))
        self.size_bytes += len(batch)

    def seal(self) -> None:
        """Take what the log has become; called on the owner's thread."""
        log = self.log
        log.write = None
        log.sealed_epoch = self.leader_epoch = log.leader_epoch
        self.next_offset = log.end_offset
        self.epochs = [entry for entry in log.epochs.entries if entry[0] > self.stored_epoch]
        states = log.producers.states
        self.producers = [
            (producer_id, pack_state(states[producer_id])) for producer_id in self.producer_ids if producer_id in states
        ]

    def reopen(self) -> None:
        """Go on with a write that nobody has taken."""
        self.log.write = self
        self.log.sealed_epoch = self.stored_epoch


class NewStart(msgspec.Struct, eq=False):
    """A log start that is to be durable; `done` is called then."""

    log: WrittenLog
    offset: int
    done: Callable[[], None]


class Removal(msgspec.Struct, eq=False):
    """A log that is removed from the store: deleted, or kept as a stray one."""

    log: WrittenLog
    is_stray: bool


Item: TypeAlias = LogWrite | NewStart | Removal


class Handover(Protocol):
    """The way to the writer."""

    def give(self, items: list[Item]) -> None:
        """Let the writer take these."""

    def take_back(self) -> list[Item]:
        """The work that the writer has not taken."""


class Gathering:
    """
    Gathers what a turn writes, and gives it to the writer at the end. While a statement is under way, several turns gather.

    Attributes:
        unwritten_bytes: what the database does not have yet.
    """

    def __init__(self, handover: Handover, defer: Defer) -> None:
        self.unwritten_bytes = 0
        self._handover: Final = handover
        self._defer: Final = defer
        self._items: list[Item] = []
        self._is_begun = False

    def _begin(self) -> None:
        self._is_begun = True
        self._items = self._handover.take_back()
        for item in self._items:
            if isinstance(item, LogWrite) and not item.is_full:
                item.reopen()
        self._defer(self.end_turn)

    def open(self, log: WrittenLog) -> LogWrite:
        """The write that appends of a log are added to."""
        if not self._is_begun:
            self._begin()
        write = log.write
        if write is None:
            write = log.write = LogWrite(log)
            self._items.append(write)
        return write

    def seal_if_large(self, write: LogWrite) -> None:
        """End a write that fills a statement."""
        if write.size_bytes >= STATEMENT_BYTES:
            write.seal()
            write.is_full = True

    def act(self, item: NewStart | Removal) -> None:
        """Add something that is not an append, behind the appends so far."""
        if not self._is_begun:
            self._begin()
        write = item.log.write
        if write is not None:
            write.seal()
            write.is_full = True
        self._items.append(item)

    def end_turn(self) -> None:
        if not self._is_begun:
            return
        self._is_begun = False
        for item in self._items:
            if isinstance(item, LogWrite) and not item.is_full:
                item.seal()
        items, self._items = self._items, []
        self._handover.give(items)


def statements(writes: Iterable[LogWrite]) -> Iterator[list[LogWrite]]:
    """
    The writes of each statement: at most one of a log, those of one log in their order, small ones first, and not many more
    bytes than `STATEMENT_BYTES`.
    """
    queues: dict[WrittenLog, deque[LogWrite]] = {}
    for write in writes:
        queues.setdefault(write.log, deque()).append(write)
    while queues:
        taken: list[LogWrite] = []
        size = 0
        for log in sorted(queues, key=lambda log: queues[log][0].size_bytes):
            queue = queues[log]
            size += queue[0].size_bytes
            if taken and size > STATEMENT_BYTES:
                break
            taken.append(queue.popleft())
            if not queue:
                del queues[log]
        yield taken


# Producer states, as the database has them.

_State: TypeAlias = tuple[int, int, int, int | None, list[tuple[int, int, int, int]]]
_decode: Final = msgspec.msgpack.Decoder(_State).decode


def pack_state(state: ProducerStateEntry) -> bytes:
    """The bytes of a producer's state: epoch, coordinator epoch, timestamp, first offset of its transaction, batches."""
    batches = [(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp_ms) for each in state.batches]
    return msgspec.msgpack.encode(
        (state.producer_epoch, state.coordinator_epoch, state.timestamp_ms, state.transaction_offset, batches)
    )


def unpack_state(producer_id: int, data: bytes) -> ProducerStateEntry:
    """Raises: msgspec.DecodeError: the bytes are no state of this version."""
    producer_epoch, coordinator_epoch, timestamp_ms, transaction_offset, batches = _decode(data)
    state = ProducerStateEntry(
        producer_id,
        producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
        transaction_offset=transaction_offset,
    )
    state.batches.extend(BatchMetadata(*each) for each in batches)
    return state
