"""The parts of one shard that the modules of the APIs work on."""

from collections.abc import Callable
from typing import Final, Protocol

from kohort.machine.ports import ProducerIdGenerator
from kohort.machine.timeline import TimelineDict
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.transaction.config import TransactionConfig
from kohort.transaction.metrics import TransactionCounters
from kohort.transaction.transaction import VERSION_2, Transaction

NO_COORDINATOR_EPOCH: Final = -1


class MarkerOutlet(Protocol):
    """The sender of transaction markers, as a shard sees it. Source: Kafka TransactionMarkerChannelManager."""

    def send(self, coordinator_epoch: int, transaction: Transaction, /) -> None:
        """Write the markers of a prepared transaction, then complete it."""

    def resume(self) -> None:
        """Send the markers of every prepared transaction of the shard, when its decision is committed."""

    def when_finished(self, transactional_id: str, ready: Callable[[], None], /) -> bool:
        """
        Call `ready` once: when the transaction is completed, or after a short time.

        Returns:
            False if the end of the transaction is not foreseeable; then `ready` is not called.
        """

    def drop(self) -> None:
        """Forget the markers of this shard: another coordinator, or a later load, writes them again."""


class TransactionContext:
    """
    Attributes:
        transactions: by transactional id.
        unfinished: the ids whose partitions may hold an open transaction: states ONGOING and both Prepare states.
        level: returns the finalised level of `transaction.version`.
        coordinator_epoch: the leader epoch of the shard's partition.
    """

    __slots__ = (
        "_awaits_ids",
        "config",
        "coordinator_epoch",
        "counters",
        "level",
        "markers",
        "producer_ids",
        "transactions",
        "unfinished",
    )

    def __init__(
        self,
        transactions: TimelineDict[str, Transaction],
        unfinished: TimelineDict[str, None],
        *,
        config: TransactionConfig,
        producer_ids: ProducerIdGenerator,
        markers: MarkerOutlet,
        level: Callable[[], int],
        counters: TransactionCounters,
    ) -> None:
        self.transactions = transactions
        self.unfinished = unfinished
        self.config = config
        self.producer_ids = producer_ids
        self.markers = markers
        self.level = level
        self.counters = counters
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self._awaits_ids = False

    @property
    def own_version(self) -> int:
        """The transaction version in which the coordinator itself ends transactions: that of the finalised level."""
        return VERSION_2 if self.level() >= VERSION_2 else 0

    def find(self, transactional_id: str) -> Transaction:
        """
        Raises:
            CoordinatorError: INVALID_PRODUCER_ID_MAPPING: the id is unknown.
        """
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def new_producer_id(self) -> int:
        """
        Raises:
            CoordinatorError: COORDINATOR_LOAD_IN_PROGRESS: the next block of ids is not allocated yet, and is from now on.
        """
        producer_id = self.producer_ids.take()
        if producer_id is None:
            if not self._awaits_ids:
                self._awaits_ids = True
                self.producer_ids.when_available(self._on_ids)
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id

    def _on_ids(self, _code: ErrorCode) -> None:
        """The client asks again, also after an error."""
        self._awaits_ids = False


class HasContext(Protocol):
    """A shard of transactional ids, as its service sees it."""

    @property
    def context(self) -> TransactionContext: ...
