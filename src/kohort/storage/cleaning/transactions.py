"""
Transactions in the part of a log that a pass reads: aborted data, and markers without data before them.

A marker is needed while a batch of its transaction is left, even an empty one: without it the transaction would count as open.
So a marker may be removed only after a whole pass found no batch of its transaction.

Source: Kafka CleanedTransactionMetadata; KAFKA-8351, KAFKA-13727.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop

from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batches import BatchHeader, LogRecord, read_marker


class CleanedTransactions:
    """
    Batches are shown in the order of the log.

    Args:
        aborted: the aborted transactions that reach into the part that is read.

    Attributes:
        keep_aborted: called with each transaction that has to stay in the transaction index, in the order of the markers.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.keep_aborted: Callable[[AbortedTxn], None] = lambda _aborted: None
        self._coming = [(entry.first_offset, entry.last_offset, entry) for entry in aborted]
        heapify(self._coming)
        self._aborted: dict[int, AbortedTxn] = {}
        """Aborted transactions that have begun and not ended, by producer id."""
        self._observed: set[int] = set()
        """Producers of aborted transactions of which a batch was read."""
        self._committed: set[int] = set()
        """Producers of transactional data that was not aborted, and whose marker was not read yet."""

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, records: Iterable[LogRecord]) -> bool:
        """
        Whether the marker may be discarded.

        Raises:
            CorruptError: the control record is damaged.
        """
        self._begin(header.last_offset)
        record = next(iter(records), None)
        if record is None:  # an earlier pass removed the record
            return True
        marker = read_marker(record)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.committed:
            was_read = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_read
        aborted = self._aborted.pop(producer_id, None)
        if producer_id not in self._observed or aborted is None:
            return True
        self._observed.discard(producer_id)
        self.keep_aborted(aborted)
        return False

    def _begin(self, offset: int) -> None:
        """Begin the aborted transactions whose first offset is not above this offset."""
        while self._coming and self._coming[0][0] <= offset:
            aborted = heappop(self._coming)[2]
            self._aborted.setdefault(aborted.producer_id, aborted)
