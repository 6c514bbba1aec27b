"""The effects of the operations of transaction shards: decisions, whose markers are sent, and events, which are passed on."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kohort.transaction.context import TransactionContext
from kohort.transaction.events import TransactionalIdExpired, TransactionEvents, TransactionFenced, TransactionTimedOut
from kohort.transaction.states import PREPARE_COMMIT
from kohort.transaction.transaction import Transaction


class Decided:
    """
    A decision about the end of a transaction.

    Attributes:
        prepared: the transaction in its Prepare state.
        event: the reason of a decision by the coordinator; None after a request to end the transaction.
    """

    __slots__ = ("event", "prepared")

    def __init__(self, prepared: Transaction, event: TransactionFenced | TransactionTimedOut | None = None) -> None:
        self.prepared: Final = prepared
        self.event: Final = event


TransactionEffect: TypeAlias = Decided | TransactionalIdExpired


class TransactionEffects:
    """
    The `on_effects` of a runtime of transaction shards: it hears of a decision when its record is committed.

    Args:
        contexts: of the newest shard of each partition; whoever makes a shard adds its context.
        events: the sink.
    """

    def __init__(self, contexts: Mapping[int, TransactionContext], events: TransactionEvents) -> None:
        self._contexts = contexts
        self._events = events

    def __call__(self, partition: int, effects: Sequence[TransactionEffect], /) -> None:
        context = self._contexts[partition]
        for effect in effects:
            if isinstance(effect, Decided):
                self._decided(context, effect)
            else:
                context.counters.expired += 1
                self._events(effect)

    def _decided(self, context: TransactionContext, decided: Decided) -> None:
        prepared, event = decided.prepared, decided.event
        counters = context.counters
        if prepared.state is PREPARE_COMMIT:
            counters.committed += 1
        else:
            counters.aborted += 1
        if event is not None:
            if isinstance(event, TransactionFenced):
                counters.fenced += 1
            else:
                counters.timed_out += 1
            self._events(event)
        # A transaction without partitions is completed at once, and a new leader epoch may have sent the markers already. That
        # epoch counts, not the one of the decision, whose markers would complete nothing.
        if context.transactions.get(prepared.transactional_id) is prepared:
            context.markers.send(context.coordinator_epoch, prepared)
