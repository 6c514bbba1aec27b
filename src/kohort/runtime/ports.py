"""The ports of the runtime: logs, clock and verification. `storage` and `server` provide them; `kohort.testing` has fakes."""

from collections.abc import Callable
from typing import Final, Protocol

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.ids import TopicPartition

NO_SEQUENCE: Final = -1
ADAPTIVE: Final = -1
"""A batch stays open as long as operations wait. Source: the default of group.coordinator.append.linger.ms."""

HighWatermarkListener = Callable[[int], None]

Defer = Callable[[Callable[[], None]], None]
"""
Run a callback at the end of the current turn, before the event loop waits for input and output: first in, first out, until
none is left. Requests that arrive in one turn thus share one batch, one append, one flush and one write of replies.
"""


HoldAt = Callable[[TopicPartition, Callable[[], None]], bool]
"""
`hold(place, go_on)` at a point inside the broker, for tests of clients: whether the caller has to wait until `go_on` is called.
Points have None in its place while no test holds anything there.
"""

Verify = Callable[[int, Producer, Callable[[Exception | None], None]], None]
"""
Verify that a producer's transaction is ongoing in a partition: `verify(partition, producer, verified)` calls `verified` once,
now or later, with None or with the error for the writer. With an `InlineProcessor` it calls on the owner's thread.

Source: Kafka PartitionWriter.maybeStartTransactionVerification.
"""


class Clock(Protocol):
    """Milliseconds since the Unix epoch."""

    def now_ms(self) -> int: ...


class LogView(Protocol):
    """A log as it was when the view was made, for reads on any one thread."""

    def read_on(self, offset: int, bytes_max: int, up_to: int) -> tuple[bytes, int]:
        """As `PartitionLog.read`, and the offset behind the batches. Raises OSError if it fails."""


class PartitionLog(Protocol):
    """
    The log of one partition, for its leader.

    Not thread-safe: all methods and listeners are called on the thread that owns the node.
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
        """The offset below which records are on stable storage, as the flush mode of the store defines it."""

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the log accepts (topic configuration `max.message.bytes`)."""

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        """
        Append whole record batches (magic 2, right CRC) and return the new `end_offset`.

        The log sets base offset and partition leader epoch, which the CRC does not cover. On return the records can be read;
        they are durable when the high watermark has passed them. The high watermark never moves inside `append`.

        Raises:
            FencedError: `leader_epoch` is below the newest epoch of this log.
            RecordTooLargeError: a batch is larger than `batch_bytes_max`.
            UnavailableError: the log is closed, or its directory is offline.
        """

    def start_verification(self, producer: Producer, now_ms: int, first_sequence: int = NO_SEQUENCE) -> object | None:
        """
        Begin the verification of a producer's transaction, and return the guard that its records are appended with; None if
        the transaction is open in this partition, so that nothing has to be verified.

        Args:
            first_sequence: of a client's batch; NO_SEQUENCE for the records of a coordinator.

        Raises:
            CoordinatorError: INVALID_PRODUCER_EPOCH: the log has seen a later epoch of the producer.

        Source: Kafka UnifiedLog.maybeStartTransactionVerification; KIP-890, KAFKA-19690.
        """

    def is_verifying(self, producer_id: int, guard: object) -> bool:
        """Whether a guard is valid: neither a transactional batch nor a marker of the producer has come since it was issued."""

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
        Return whole batches, beginning with the one that holds `offset`: as many as fit, and at least one if there is one.

        Args:
            up_to: return no batch at or above this offset; default: the end offset.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start offset or above the end offset.
            CorruptError: a batch cannot be read.
        """

    def load_view(self) -> LogView | None:
        """
        A view for the reads of a load on another thread; None if `read` waits for no other machine.

        Raises:
            UnavailableError: the log is closed or offline.
        """

    def add_listener(self, listener: HighWatermarkListener) -> None:
        """Call `listener(high_watermark)` each time the high watermark has moved."""

    def remove_listener(self, listener: HighWatermarkListener) -> None: ...
