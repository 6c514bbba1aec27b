"""
What the runtime needs of the outside, said once. `storage` and `server` provide it; `kohort.testing` ships fakes.
"""

from collections.abc import Callable
from typing import Protocol

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.ids import TopicPartition

HighWatermarkListener = Callable[[int], None]

Defer = Callable[[Callable[[], None]], None]
"""
Run something when what is being handled now is done, before waiting for input or output again: first in, first out, until
none is left. How everything that arrives in one turn shares one batch, one append, one flush and one write of replies.
"""


Verify = Callable[[int, Producer, Callable[[Exception | None], None]], None]
"""
Ask whether a producer's transaction is open in a partition: `verify(partition, producer, verified)` calls `verified` once,
now or later, with None or with the error that the writer is answered.

Source: Kafka PartitionWriter.maybeStartTransactionVerification.
"""


class Clock(Protocol):
    """Milliseconds since the epoch, and the means to be called later."""

    def now_ms(self) -> int: ...


class PartitionLog(Protocol):
    """
    The log of one partition, as a leader sees it.

    Not safe for threads: everything here is called, and every listener is called, on the thread that owns the node.
    """

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets (Kafka: log end offset)."""

    @property
    def high_watermark(self) -> int:
        """Records below are on stable storage; at most `end_offset`. What it promises depends on the store's flush mode."""

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch taken (topic configuration `max.message.bytes`)."""

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        """
        Write one or more whole record batches (magic 2, CRC right) and return the new `end_offset`.

        Base offset and partition leader epoch, which lie outside the CRC, are set here. On return the data can be read; it
        is durable when the high watermark has passed it. The high watermark never moves inside `append`: a listener may be
        called at the earliest from `Defer`.

        Raises:
            FencedError: `leader_epoch` is older than the newest one this log has seen.
            RecordTooLargeError: a batch is larger than `batch_bytes_max`.
            UnavailableError: the log is closed, or its directory went offline.
        """

    def start_verification(self, producer_id: int) -> object:
        """
        A producer's transaction is about to be verified: the guard that its records are to be appended with.

        Source: Kafka UnifiedLog.maybeStartTransactionVerification; KIP-890.
        """

    def append_transactional(
        self,
        batch: bytes | bytearray,
        *,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        guard: object | None,
    ) -> int:
        """
        Append a coordinator's records to a producer's transaction; otherwise as `append`.

        Args:
            guard: from `start_verification`.

        Raises:
            CoordinatorError: nothing was written. INVALID_PRODUCER_EPOCH: the log has seen a later epoch of the producer.
                INVALID_TXN_STATE: the transaction has ended here since its verification began.
        """

    def append_marker(self, end: EndTransaction, *, leader_epoch: int, timestamp_ms: int) -> int:
        """
        Append the marker that ends a producer's transaction; otherwise as `append`.

        Raises:
            CoordinatorError: nothing was written. INVALID_PRODUCER_EPOCH: the log has seen a later epoch of the producer, or,
                from transaction version 2 on, the epoch is not above that of the open transaction's records.
                TRANSACTION_COORDINATOR_FENCED: it has seen a later epoch of the transaction coordinator.
        """

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        """
        Whole batches from the one that holds `offset` on, at least one if there is any, else as many as fit.

        Args:
            up_to: read nothing at or beyond this offset; default the end offset.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start or above the end.
            CorruptError: a batch that was acknowledged can no longer be read.
        """

    def add_listener(self, listener: HighWatermarkListener) -> None:
        """Call `listener(high_watermark)` each time it has moved."""

    def remove_listener(self, listener: HighWatermarkListener) -> None: ...
