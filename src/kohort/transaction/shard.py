"""
The transaction coordinator of one partition of `__transaction_state`.

Handlers are in the modules beside this one; they work on `TransactionShard.context`.

Source: Kafka TransactionStateManager, TransactionCoordinator.
"""

from collections.abc import Callable

from kohort.machine.ports import ProducerIdGenerator
from kohort.machine.shard import PlainShard, Result
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.image import ClusterImage
from kohort.transaction.config import TransactionConfig
from kohort.transaction.context import MarkerOutlet, TransactionContext
from kohort.transaction.expiry import abort_deadline, expiry_deadline
from kohort.transaction.metrics import TransactionCounters
from kohort.transaction.records import NEWEST_LEVEL, TransactionRecord
from kohort.transaction.states import is_unfinished
from kohort.transaction.transaction import Transaction


class TransactionShard(PlainShard[TransactionRecord]):
    """
    Implements `kohort.machine.shard.Shard` for `TransactionRecord`.

    Args:
        snapshots: the shard's; the runtime takes them.
        level: returns the finalised level of `transaction.version`.
        counters: those of the partition, which outlive the shard; new ones by default.
    """

    def __init__(
        self,
        snapshots: SnapshotRegistry,
        config: TransactionConfig,
        producer_ids: ProducerIdGenerator,
        markers: MarkerOutlet,
        level: Callable[[], int] = lambda: NEWEST_LEVEL,
        counters: TransactionCounters | None = None,
    ) -> None:
        self.transactions: TimelineDict[str, Transaction] = TimelineDict(snapshots)
        self._unfinished: TimelineDict[str, None] = TimelineDict(snapshots)
        self.context = TransactionContext(
            self.transactions,
            self._unfinished,
            config=config,
            producer_ids=producer_ids,
            markers=markers,
            level=level,
            counters=TransactionCounters() if counters is None else counters,
        )
        self._is_loaded = False

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: TransactionRecord, /) -> None:
        transactional_id = record.transactional_id
        if isinstance(record, Transaction):
            self.transactions.put(transactional_id, record)
            if is_unfinished(record.state):
                if transactional_id not in self._unfinished:
                    self._unfinished.put(transactional_id, None)
                return
        else:
            self.transactions.remove(transactional_id)
        if transactional_id in self._unfinished:
            del self._unfinished[transactional_id]

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """Ignore a marker: a client may have named a partition of this topic in a transaction, and cannot write to it."""

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        """Markers that are under way carry the earlier epoch: they are sent again if the shard is active."""
        self.context.coordinator_epoch = coordinator_epoch
        if self._is_loaded:
            self.context.markers.drop()
            self.context.markers.resume()

    def on_loaded(self, _image: ClusterImage, _now_ms: int, /) -> Result[TransactionRecord, None]:
        self._is_loaded = True
        self.context.markers.resume()
        return Result(deadlines=[abort_deadline(self.context), expiry_deadline(self.context)])

    def on_unloaded(self) -> None:
        self.context.markers.drop()
