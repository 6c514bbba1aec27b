"""
The sender of transaction markers: the second phase of a commit or abort.

Every partition of a prepared transaction gets a marker. A partition that cannot take it now gets it again after a back-off.
When all have one, the transaction is completed. After a restart the markers are sent again to all partitions, so a partition
may get a marker twice.

Source: Kafka TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kohort.machine.ports import Markers
from kohort.machine.shard import EndTransaction, Result, Runner
from kohort.machine.steps import Operation
from kohort.model.errors import ErrorCode, error_code
from kohort.model.ids import TopicPartition
from kohort.model.image import ClusterImage
from kohort.transaction.context import HasContext
from kohort.transaction.end_txn import complete_transaction
from kohort.transaction.events import MarkerRefused, TransactionEvents, no_events
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import PREPARE_COMMIT, is_prepared
from kohort.transaction.transaction import VERSION_2, Transaction

_NONE: Final = ErrorCode.NONE

RETRY_BACKOFF_MS: Final = 50
"""Source: the reconnect back-off of Kafka's marker channel."""

WAIT_MS: Final = 100
"""
How long a request waits for the completion of the last transaction before it is answered CONCURRENT_TRANSACTIONS. Clients
retry after 20 to 100 ms, and markers are usually written within one. Source: add.partitions.to.txn.retry.backoff.max.ms.
"""

MAX_WAITING: Final = 64
"""How many requests of one transactional id wait at a time. Others are answered at once."""

MARKERS_AT_ONCE: Final = 250
"""Markers that are written in one turn of the event loop; they take some 5 ms."""

CallLater = Callable[[int, Callable[[], None]], object]
"""`call_later(delay_ms, function)`."""

_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""A partition whose format has no markers cannot hold a transaction either."""

_FINAL: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A later producer or coordinator epoch has written to the partition."""

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Expected for a while, and not worth a line in the log."""


_LOST: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""The shard is not active any more. Its next load sends the markers again."""


class _Ending:
    """One prepared transaction, and the partitions whose marker is not durable yet."""

    __slots__ = ("coordinator_epoch", "is_stuck", "marker", "remaining", "transaction", "waiting")

    def __init__(self, coordinator_epoch: int, transaction: Transaction) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.transaction = transaction
        self.remaining = set(transaction.partitions)
        self.waiting: list[Callable[[], None]] = []
        self.is_stuck = False
        self.marker = EndTransaction(
            transaction.producer_id,
            transaction.producer_epoch,
            coordinator_epoch,
            transaction.state is PREPARE_COMMIT,
            VERSION_2 if transaction.client_version >= VERSION_2 else 0,
        )

    def release(self) -> None:
        """Run the requests that wait for the completion."""
        waiting, self.waiting = self.waiting, []
        for ready in waiting:
            ready()

    def stop_waiting(self, ready: Callable[[], None]) -> None:
        """Run a request that still waits, although the transaction is not completed."""
        if ready in self.waiting:
            self.waiting.remove(ready)
            ready()


class MarkerSender:
    """
    The markers of the transactions of one shard; a `kohort.transaction.context.MarkerOutlet`.

    Not thread-safe: every method, and every answer of `markers`, is on the thread of the event loop.

    Args:
        runner: writes the completions.
        partition: of `__transaction_state`.
        image: the topics of the cluster; a partition that does not exist any more needs no marker.
    """

    def __init__(
        self,
        runner: Runner[HasContext],
        partition: int,
        markers: Markers,
        image: ClusterImage,
        call_later: CallLater,
        events: TransactionEvents = no_events,
    ) -> None:
        self._runner = runner
        self._partition = partition
        self._markers = markers
        self._image = image
        self._call_later = call_later
        self._events = events
        self._endings: dict[str, _Ending] = {}
        """By transactional id."""
        self._retries: list[tuple[_Ending, TopicPartition]] = []
        """Markers that wait for the end of the back-off."""

    @property
    def waiting(self) -> int:
        """The number of markers that are not durable yet."""
        return sum(len(ending.remaining) for ending in self._endings.values())

    @property
    def retrying(self) -> int:
        """The number of markers that wait for another attempt."""
        return len(self._retries)

    def remaining(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions without a durable marker; None if no markers of the id are under way."""
        ending = self._endings.get(transactional_id)
        return None if ending is None else frozenset(ending.remaining)

    def send(self, coordinator_epoch: int, transaction: Transaction, /) -> None:
        ending = self._endings[transaction.transactional_id] = _Ending(coordinator_epoch, transaction)
        if not ending.remaining:
            self._finish(ending)
        self._write_some([(ending, topic_partition) for topic_partition in sorted(transaction.partitions)])

    def resume(self) -> None:
        """
        Send the markers of every prepared transaction to all of its partitions; some may have one already.

        A decision that is in the log and not committed may be lost, and its markers would contradict the next one. So they are
        found by an operation whose next one waits for the decisions that it has seen.
        """
        done = partial(self._on_done, self.resume)
        code = self._runner.write(self._partition, Operation(self._find_prepared), done, error_code)
        if code is not None:
            done(code)

    def _find_prepared(self, shard: HasContext, _now_ms: int) -> Result[TransactionRecord, ErrorCode]:
        transactions = shard.context.transactions
        found = [transactions[transactional_id] for transactional_id in shard.context.unfinished]
        prepared = [transaction for transaction in found if is_prepared(transaction.state)]
        return Result((), _NONE, then=Operation(self._send_present, prepared) if prepared else None)

    def _send_present(
        self, shard: HasContext, _now_ms: int, prepared: Sequence[Transaction]
    ) -> Result[TransactionRecord, None]:
        """Send the markers of transactions that were not completed or sent meanwhile."""
        context = shard.context
        for transaction in prepared:
            transactional_id = transaction.transactional_id
            is_present = context.transactions.get(transactional_id) is transaction
            if is_present and transactional_id not in self._endings:
                self.send(context.coordinator_epoch, transaction)
        return Result()

    def when_finished(self, transactional_id: str, ready: Callable[[], None], /) -> bool:
        ending = self._endings.get(transactional_id)
        if ending is None or ending.is_stuck or len(ending.waiting) >= MAX_WAITING:
            return False
        ending.waiting.append(ready)
        self._call_later(WAIT_MS, partial(ending.stop_waiting, ready))
        return True

    def drop(self) -> None:
        dropped, self._endings = self._endings, {}
        self._retries.clear()
        for ending in dropped.values():
            ending.release()

    def _write_some(self, unwritten: list[tuple[_Ending, TopicPartition]], begin: int = 0) -> None:
        """Write markers from a place in a list on, and the next ones in a later turn of the event loop."""
        end = begin + MARKERS_AT_ONCE
        for ending, topic_partition in unwritten[begin:end]:
            if self._is_current(ending):
                self._write(ending, topic_partition)
        if end < len(unwritten):
            self._call_later(1, partial(self._write_some, unwritten, end))

    def _write(self, ending: _Ending, topic_partition: TopicPartition) -> None:
        self._markers.write(topic_partition, ending.marker, partial(self._on_written, ending, topic_partition))

    def _is_current(self, ending: _Ending) -> bool:
        return self._endings.get(ending.transaction.transactional_id) is ending

    def _on_written(self, ending: _Ending, topic_partition: TopicPartition, code: ErrorCode) -> None:
        if not self._is_current(ending):
            return
        if code in _DONE or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._exists(topic_partition)):
            ending.remaining.discard(topic_partition)
            if not ending.remaining:
                self._finish(ending)
            return
        if code not in _UNAVAILABLE:
            self._events(MarkerRefused(ending.transaction.transactional_id, str(topic_partition), code, code in _FINAL))
        if code in _FINAL:
            ending.is_stuck = True
            return
        if not self._retries:
            self._call_later(RETRY_BACKOFF_MS, self._retry)
        self._retries.append((ending, topic_partition))

    def _exists(self, topic_partition: TopicPartition) -> bool:
        topic = self._image.topic(topic_partition.topic)
        return topic is not None and topic_partition.partition < topic.partition_count

    def _retry(self) -> None:
        retries, self._retries = self._retries, []
        self._write_some(retries)

    def _finish(self, ending: _Ending) -> None:
        del self._endings[ending.transaction.transactional_id]
        self._complete(ending)
        ending.release()

    def _complete(self, ending: _Ending) -> None:
        """Write the completion. It is written again after an error, unless the shard is gone."""
        done = partial(self._on_completed, ending)
        completion = Operation(complete_transaction, ending.transaction, ending.coordinator_epoch)
        code = self._runner.write(self._partition, completion, done, error_code)
        if code is not None:
            self._on_completed(ending, code)

    def _on_completed(self, ending: _Ending, code: ErrorCode) -> None:
        if code is not _NONE:
            self._on_done(partial(self._complete, ending), code)

    def _on_done(self, again: Callable[[], None], code: ErrorCode) -> None:
        """
        Call `again` after an error, unless the shard is gone. The codes are not translated as for clients: an append that
        failed does not mean that the shard is gone.
        """
        if code is not _NONE and code not in _LOST:
            self._call_later(RETRY_BACKOFF_MS, again)
