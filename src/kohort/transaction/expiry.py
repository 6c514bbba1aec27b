"""
Periodic work of one shard: transactions whose timeout has passed are aborted, unused transactional ids are forgotten.

A deadline at the interval begins a list of ids. One operation looks at a limited number of them; the next part begins when it
is committed. A part that cannot be written runs again.

Source: Kafka TransactionCoordinator.abortTimedOutTransactions, TransactionStateManager.removeExpiredTransactionalIds.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Key, Operation
from kohort.model.errors import CoordinatorError
from kohort.records.values import TransactionLogTombstone
from kohort.transaction.context import HasContext, TransactionContext
from kohort.transaction.effects import Decided
from kohort.transaction.end_txn import fenced
from kohort.transaction.events import TransactionalIdExpired, TransactionTimedOut
from kohort.transaction.records import TransactionRecord
from kohort.transaction.states import ONGOING, is_unfinished
from kohort.transaction.transaction import Transaction

_ABORT: Final = ("abort timed-out transactions",)
_ABORT_PART: Final = ("abort some timed-out transactions",)
_EXPIRE: Final = ("remove expired transactional ids",)
_EXPIRE_PART: Final = ("remove some expired transactional ids",)

IDS_AT_ONCE: Final = 5_000
"""The number of ids that one operation looks at, which takes some milliseconds."""

INT32_MAX: Final = 2_147_483_647
"""The timeout of a transaction of two-phase commit, which never times out."""


# Timed-out transactions


def abort_deadline(context: TransactionContext) -> Deadline:
    """The deadline of the next look for timed-out transactions."""
    interval_ms = context.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    return Deadline(_ABORT, interval_ms, Operation(begin_aborts))


def begin_aborts(shard: HasContext, _now_ms: int) -> Result[TransactionRecord, None]:
    context = shard.context
    return Result(deadlines=[abort_deadline(context), _part(_ABORT_PART, abort_part, list(context.unfinished))])


def abort_part(shard: HasContext, now_ms: int, ids: Sequence[str], start: int) -> Result[TransactionRecord, None]:
    """Abort some timed-out transactions."""
    context = shard.context
    decided: list[Decided] = []
    records: list[TransactionRecord] = []
    for transactional_id in islice(ids, start, start + IDS_AT_ONCE):
        transaction = context.transactions.get(transactional_id)
        if transaction is None or not _is_timed_out(transaction, now_ms):
            continue
        try:
            prepared = fenced(context, transaction, now_ms)
        except CoordinatorError:
            # There is no producer id now for a transaction of the last epoch. The next look will find it.
            continue
        event = TransactionTimedOut(
            transactional_id, prepared.producer_id, prepared.producer_epoch, prepared.timeout_ms
        )
        decided.append(Decided(prepared, event))
        records.append(prepared)
        if not prepared.partitions:
            records.append(prepared.completed(now_ms))
    return Result(
        records,
        effects=decided,
        then=_following(_ABORT_PART, abort_part, ids, start),
        otherwise=Operation(tell_kept_decisions, decided),
        is_atomic=False,
    )


def tell_kept_decisions(
    shard: HasContext, _now_ms: int, decided: Sequence[Decided], _error: Exception
) -> Result[TransactionRecord, None]:
    """A part has failed, and runs again. The decisions in those of its batches that are written are not taken back."""
    transactions = shard.context.transactions
    return Result(
        effects=[each for each in decided if transactions.get(each.prepared.transactional_id) is each.prepared]
    )


# Expired transactional ids


def expiry_deadline(context: TransactionContext) -> Deadline:
    """The deadline of the next look for expired transactional ids."""
    interval_ms = context.config.transaction_remove_expired_transaction_cleanup_interval_ms
    return Deadline(_EXPIRE, interval_ms, Operation(begin_expiry))


def begin_expiry(shard: HasContext, _now_ms: int) -> Result[TransactionRecord, None]:
    context = shard.context
    return Result(deadlines=[expiry_deadline(context), _part(_EXPIRE_PART, expire_part, list(context.transactions))])


def expire_part(shard: HasContext, now_ms: int, ids: Sequence[str], start: int) -> Result[TransactionRecord, None]:
    """Forget some unused transactional ids."""
    context = shard.context
    oldest_ms = now_ms - context.config.transactional_id_expiration_ms
    expired: list[TransactionalIdExpired] = []
    for transactional_id in islice(ids, start, start + IDS_AT_ONCE):
        transaction = context.transactions.get(transactional_id)
        if (
            transaction is not None
            and not is_unfinished(transaction.state)
            and transaction.update_timestamp_ms <= oldest_ms
        ):
            expired.append(TransactionalIdExpired(transactional_id))
    return Result(
        [TransactionLogTombstone(each.transactional_id) for each in expired],
        effects=expired,
        then=_following(_EXPIRE_PART, expire_part, ids, start),
        otherwise=Operation(tell_kept_tombstones, expired),
        is_atomic=False,
    )


def tell_kept_tombstones(
    shard: HasContext, _now_ms: int, expired: Sequence[TransactionalIdExpired], _error: Exception
) -> Result[TransactionRecord, None]:
    """As `tell_kept_decisions`."""
    transactions = shard.context.transactions
    return Result(effects=[each for each in expired if each.transactional_id not in transactions])


# Parts


def _part(key: Key, function: Callable[..., Any], ids: Sequence[str], start: int = 0) -> Deadline:
    return Deadline(key, 0, Operation(function, ids, start))


def _following(key: Key, function: Callable[..., Any], ids: Sequence[str], start: int) -> Operation | None:
    """The operation that lets the next part begin."""
    end = start + IDS_AT_ONCE
    return Operation(begin_part, _part(key, function, ids, end)) if end < len(ids) else None


def begin_part(_shard: HasContext, _now_ms: int, part: Deadline) -> Result[TransactionRecord, None]:
    return Result(deadlines=[part])


def _is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the coordinator aborts the transaction."""
    return (
        transaction.state is ONGOING
        and transaction.timeout_ms != INT32_MAX
        and transaction.start_timestamp_ms + transaction.timeout_ms < now_ms
    )
