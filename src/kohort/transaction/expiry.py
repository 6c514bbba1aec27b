"""
Periodic work of one shard: transactions whose timeout has passed are aborted, unused transactional ids are forgotten.

Both look at a limited number of ids in one operation; a timer runs the next part.

Source: Kafka TransactionCoordinator.abortTimedOutTransactions, TransactionStateManager.removeExpiredTransactionalIds.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from kohort.machine.shard import Release, Result
from kohort.records.values import TransactionLogTombstone
from kohort.transaction.context import TransactionContext
from kohort.transaction.events import TransactionalIdExpired, TransactionTimedOut
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import ONGOING, is_unfinished
from kohort.transaction.transaction import EPOCH_MAX, Transaction

ABORT_TIMER: Final = "abort timed-out transactions"
ABORT_PART_TIMER: Final = "abort some timed-out transactions"
EXPIRE_TIMER: Final = "remove expired transactional ids"
EXPIRE_PART_TIMER: Final = "remove some expired transactional ids"

IDS_AT_ONCE: Final = 5_000
"""The number of ids that one operation looks at, which takes some milliseconds."""

INT32_MAX: Final = 2_147_483_647
"""The timeout of a transaction of two-phase commit, which never times out."""


class TransactionMaintenance:
    """The timers of one shard."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._timers = context.timers
        config = context.config
        self._abort_interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._expire_interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms

    def schedule(self) -> None:
        """Begin both intervals."""
        self._schedule_abort()
        self._schedule_expiry()

    # Timed-out transactions

    def _schedule_abort(self) -> None:
        self._timers.schedule(ABORT_TIMER, self._abort_interval_ms, self._begin_abort, retry=True)

    def _begin_abort(self, _now_ms: int) -> Result[TransactionRecord, None]:
        self._schedule_abort()
        if self._context.unfinished:
            self._schedule_abort_part(list(self._context.unfinished), 0)
        return Result()

    def _schedule_abort_part(self, ids: Sequence[str], start: int) -> None:
        if start < len(ids):
            self._timers.schedule(ABORT_PART_TIMER, 0, partial(self._abort_part, ids, start), retry=True)

    def _abort_part(self, ids: Sequence[str], start: int, now_ms: int) -> Result[TransactionRecord, None]:
        context = self._context
        aborted: list[Transaction] = []
        records: list[TransactionRecord] = []
        for transactional_id in islice(ids, start, start + IDS_AT_ONCE):
            transaction = context.transactions.get(transactional_id)
            if transaction is None or not _is_timed_out(transaction, now_ms):
                continue
            prepared = _timed_out(transaction, context.own_version, now_ms)
            aborted.append(prepared)
            records.append(prepared)
            if not prepared.partitions:
                records.append(prepared.completed(now_ms))

        def after(error: Exception | None) -> Iterable[Release]:
            if error is None:
                for prepared in aborted:
                    self._aborted(prepared)
                    self._send_markers(prepared)
                self._schedule_abort_part(ids, start + IDS_AT_ONCE)
                return ()
            # The timer runs again, and finds what was reverted. What the batches before the failed one hold was not.
            kept = [each for each in aborted if context.transactions.get(each.transactional_id) is each]
            for prepared in kept:
                self._aborted(prepared)
            if kept:
                context.markers.resume()
            return ()

        return Result(records, after=after, is_atomic=False)

    def _aborted(self, prepared: Transaction) -> None:
        """Count and tell that a transaction was aborted."""
        context = self._context
        context.counters.timed_out += 1
        context.counters.on_decided(is_commit=False)
        context.events(
            TransactionTimedOut(
                prepared.transactional_id, prepared.producer_id, prepared.producer_epoch, prepared.timeout_ms
            )
        )

    def _send_markers(self, prepared: Transaction) -> None:
        if prepared.partitions:
            self._context.markers.send(self._context.coordinator_epoch, prepared)

    # Expired transactional ids

    def _schedule_expiry(self) -> None:
        self._timers.schedule(EXPIRE_TIMER, self._expire_interval_ms, self._begin_expiry, retry=True)

    def _begin_expiry(self, _now_ms: int) -> Result[TransactionRecord, None]:
        self._schedule_expiry()
        self._schedule_expiry_part(list(self._context.transactions), 0)
        return Result()

    def _schedule_expiry_part(self, ids: Sequence[str], start: int) -> None:
        if start < len(ids):
            self._timers.schedule(EXPIRE_PART_TIMER, 0, partial(self._expire_part, ids, start), retry=True)

    def _expire_part(self, ids: Sequence[str], start: int, now_ms: int) -> Result[TransactionRecord, None]:
        context = self._context
        oldest_ms = now_ms - context.config.transactional_id_expiration_ms
        expired: list[str] = []
        for transactional_id in islice(ids, start, start + IDS_AT_ONCE):
            transaction = context.transactions.get(transactional_id)
            if (
                transaction is not None
                and not is_unfinished(transaction.state)
                and transaction.update_timestamp_ms <= oldest_ms
            ):
                expired.append(transactional_id)

        def after(error: Exception | None) -> Iterable[Release]:
            if error is None:
                context.counters.expired += len(expired)
                for transactional_id in expired:
                    context.events(TransactionalIdExpired(transactional_id))
                self._schedule_expiry_part(ids, start + IDS_AT_ONCE)
            return ()

        return Result([TransactionLogTombstone(each) for each in expired], after=after, is_atomic=False)


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the coordinator aborts the transaction."""
    return (
        transaction.state is ONGOING
        and transaction.timeout_ms != INT32_MAX
        and transaction.start_timestamp_ms + transaction.timeout_ms < now_ms
    )


def _timed_out(transaction: Transaction, version: int, now_ms: int) -> Transaction:
    """
    The abort that fences the producer. The last epoch has none after it: its transaction is aborted as one of version 1, whose
    marker has the epoch of its records. In Kafka it stays open for good.
    """
    is_last = transaction.producer_epoch >= EPOCH_MAX
    return transaction.prepared(
        committed=False, client_version=0 if is_last else version, now_ms=now_ms, is_fence=not is_last
    )
