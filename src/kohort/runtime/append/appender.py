"""
The appender: replays records, adds them to the open batch, and appends it to the log.

A batch is appended when it is full, and at once if it belongs to a transaction. Otherwise `linger_ms` decides: at the end of
the turn (`ADAPTIVE`: the operations that had arrived at its opening are in it), after each operation (0), or after a fixed
time. If the append fails, the state is reverted to the base offset of the batch, and exactly the operations in it fail.

Source: Kafka CoordinatorRuntime.CoordinatorContext.append, flushCurrentBatch; KIP-848.
"""

import logging
from collections.abc import Generator, Sequence, Sized
from typing import Any, TypeAlias

from kohort.machine.bulk import LongRecords, PackedRecords
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, EndTransaction, Producer, RecordSerde, Result, Shard
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, RecordTooLargeError
from kohort.runtime.append.deferred import DeferredEvent, DeferredExecution
from kohort.runtime.append.open_batch import BATCH_OVERHEAD_BYTES, OpenBatch, Pair, size_bytes
from kohort.runtime.append.position import Position
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.ports import ADAPTIVE, Clock, PartitionLog
from kohort.runtime.processors import PartitionExecutor
from kohort.wire.compression import Codec

_log = logging.getLogger("kohort.runtime")

Encoded: TypeAlias = list[Pair] | PackedRecords[Any]
"""The encoded records of one operation."""


class Owner(DeferredExecution):
    """
    The context that owns an appender: the operations of a batch wait in it, or fail. A base class and no protocol, because
    compiled code calls the methods of a class directly.
    """

    def __init__(self, partition: int, executor: PartitionExecutor, clock: Clock, metrics: ShardMetrics) -> None:
        super().__init__(partition, executor, clock, metrics)
        self.leader_epoch = -1

    def out_of_sync(self, end: int, expected: int, /) -> None:
        """Load the shard again: its records have other offsets in the log than those they were replayed with."""
        raise NotImplementedError

    def flush_later(self, batch: OpenBatch, /) -> None:
        """Call `Appender.flush(batch)` when the linger of the batch is over."""
        raise NotImplementedError

    def flush_open(self) -> None:
        """Append the open batch, after the operation in progress."""
        raise NotImplementedError


class OpenBatches:
    """The open batches of a thread's partitions, which are appended at the end of the turn in one deferred call."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: list[Owner] = []

    def add(self, owner: Owner) -> None:
        if not self._owners:
            owner._executor.defer(self._flush)
        self._owners.append(owner)

    def _flush(self) -> None:
        owners, self._owners = self._owners, []
        for owner in owners:
            try:
                owner.flush_open()
            except Exception:  # noqa: BLE001 -- the failure of one partition must not stop the others
                _log.exception("shard.flush_failed partition=%s", owner.name)


class Appender:
    """
    The open batch of one loaded shard. It belongs to one load, and is closed with it.

    Not thread-safe: every method is called under the shard's exclusivity.
    """

    __slots__ = (
        "_codec",
        "_encode",
        "_linger_ms",
        "_log",
        "_metrics",
        "_now_ms",
        "_owner",
        "_position",
        "_shard",
        "batch",
    )

    def __init__(
        self,
        owner: Owner,
        log: PartitionLog,
        shard: Shard[Any],
        position: Position,
        *,
        serde: RecordSerde[Any],
        clock: Clock,
        linger_ms: int,
        codec: Codec,
        metrics: ShardMetrics,
    ) -> None:
        self._owner = owner
        self._log = log
        self._shard = shard
        self._position = position
        self._encode = serde.encode
        self._now_ms = clock.now_ms
        self._codec = codec
        self._linger_ms = linger_ms
        self._metrics = metrics
        self.batch: OpenBatch | None = None
        """Holds records whenever no method of this class runs."""

    def close(self) -> list[DeferredEvent]:
        """Drop the open batch, and return its operations."""
        batch = self._release()
        return [] if batch is None else batch.events

    # -- adding ------------------------------------------------------------------------------------------------

    def append(self, result: Result[Any, Any], event: DeferredEvent, now_ms: int, producer: Producer | None) -> None:
        """
        Replay records, add them to the open batch, and append the batch if it is due.

        Raises:
            CoordinatorError: no records were kept, or only whole batches of a result that is not atomic; the caller fails the
                event.
            StorageError: likewise. The earlier batch could not be appended, so the operation has read state that was reverted.
        """
        records: Encoded = self._encoded(result)
        if producer is not None:
            self._flush_or_raise()
        if result.is_atomic or producer is not None:
            batch = self._add_whole(result, records, now_ms, producer)
        else:
            batch = self._add_pieces(result, records, now_ms)
        batch.events.append(event)
        linger_ms = self._linger_ms
        if (
            producer is not None
            or batch.bytes_left <= 0
            or (linger_ms != ADAPTIVE and now_ms - batch.opened_ms >= linger_ms)
        ):
            self.flush(batch)

    def append_in_steps(
        self, records: LongRecords[Any], now_ms: int, producer: Producer | None
    ) -> Generator[None, None, OpenBatch]:
        """
        Append the earlier batch, and return steps that encode and replay the records of a long operation, into a batch of their
        own. A step raises a CoordinatorError if no records were kept.

        The owner runs nothing else of the shard between the steps. It adds the event of the operation to the returned batch,
        and flushes it.

        Raises:
            CoordinatorError: the earlier batch could not be appended, so the operation has read state that was reverted.
            StorageError: likewise.
        """
        # Not in a step: an append that is out of sync unloads the shard, and closes the steps.
        self._flush_or_raise()
        return self._steps(records, now_ms, producer)

    def _steps(
        self, records: LongRecords[Any], now_ms: int, producer: Producer | None
    ) -> Generator[None, None, OpenBatch]:
        encode = self._encode
        made: list[tuple[list[Any], list[Pair], int]] = []
        needed = 0
        for some in records.slices():
            pairs = [encode(record) for record in some]
            made.append((some, pairs, size_bytes(pairs)))
            needed += made[-1][2]
            yield
        # Nothing is replayed unless all records fit.
        bytes_max = self._check_size(needed, records)
        batch = self.batch = self._open(now_ms, producer, bytes_max)
        for some, pairs, size in made:
            self._replay_into(batch, some, pairs, size)
            yield
        return batch

    def _check_size(self, needed: int, records: Sized) -> int:
        """
        Return the limit of the log for one batch.

        Raises:
            CoordinatorError: MESSAGE_TOO_LARGE. With compression the size is known after the encoding: the log decides.
        """
        bytes_max = self._log.batch_bytes_max
        if needed > bytes_max - BATCH_OVERHEAD_BYTES and self._codec is Codec.NONE:
            raise CoordinatorError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{len(records)} records need {needed} bytes; a batch holds {bytes_max}"
            )
        return bytes_max

    def _encoded(self, result: Result[Any, Any]) -> Encoded:
        records = result.records
        if type(records) is not list and isinstance(records, PackedRecords):
            return records if result.is_atomic else records.pairs()
        encode = self._encode
        return [encode(record) for record in records]

    def _add_whole(
        self, result: Result[Any, Any], records: Encoded, now_ms: int, producer: Producer | None
    ) -> OpenBatch:
        needed = size_bytes(records) if isinstance(records, list) else records.size_bytes
        batch = self.batch
        if batch is None or batch.bytes_left < needed:
            bytes_max = self._check_size(needed, records)
            batch = self._room_for(needed, now_ms, producer, bytes_max)
        self._replay_into(batch, result.records, records, needed)
        return batch

    def _add_pieces(self, result: Result[Any, Any], records: Encoded, now_ms: int) -> OpenBatch:
        """Add records one by one, and return the batch of the last one."""
        for index, pair in enumerate(records):
            needed = size_bytes([pair])
            piece = result.records[index : index + 1]
            room = self._room_for(needed, now_ms, None, self._log.batch_bytes_max)
            self._replay_into(room, piece, [pair], needed)
        batch = self.batch
        assert batch is not None, "the last record is in the open batch"
        return batch

    def _room_for(self, needed: int, now_ms: int, producer: Producer | None, bytes_max: int) -> OpenBatch:
        """
        Return the open batch if it has room, else a new one. A batch takes a first record of any size.

        Args:
            bytes_max: the limit of the log for one batch.
        """
        batch = self.batch
        if batch is not None:
            if batch.bytes_left >= needed:
                return batch
            self._flush_or_raise()
        batch = self.batch = self._open(now_ms, producer, bytes_max)
        if producer is None and self._linger_ms != 0:
            self._owner.flush_later(batch)
        return batch

    def _open(self, now_ms: int, producer: Producer | None, bytes_max: int) -> OpenBatch:
        self._position.open_batch()
        return OpenBatch(
            base_offset=self._position.last_written_offset,
            bytes_max=bytes_max,
            opened_ms=now_ms,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            guard=None if producer is None else producer.guard,
        )

    def _replay_into(self, batch: OpenBatch, records: Sequence[Any], encoded: Encoded, needed: int) -> None:
        self._position.registry.end()
        offset, producer_id, producer_epoch = batch.next_offset, batch.producer_id, batch.producer_epoch
        try:
            if type(records) is list and len(records) == 1:
                self._shard.replay(offset, producer_id, producer_epoch, records[0])
            else:
                self._shard.replay_all(offset, producer_id, producer_epoch, records)
        except Exception as error:
            # The state may be half changed: everything since the opening of the batch is reverted.
            _log.exception("shard.replay_failed partition=%s", self._log.topic_partition)
            self._fail(batch, InvariantError(f"replaying a record of {self._log.topic_partition} failed: {error}"))
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if isinstance(encoded, list):
            batch.add(encoded, needed)
        else:
            batch.add_packed(encoded)

    # -- appending ---------------------------------------------------------------------------------------------

    def flush(self, batch: OpenBatch | None = None) -> Exception | None:
        """
        Append the open batch; no effect if it is not `batch`. A failure reverts the state to the base offset of the batch.

        Returns:
            The error of the append, with which the operations of the batch have failed; None on success.
        """
        opened = self.batch
        if opened is None or (batch is not None and batch is not opened):
            return None
        started_ms = self._now_ms()
        try:
            end = self._write(opened.encode(self._codec, self._owner.leader_epoch), opened)
        except Exception as error:  # noqa: BLE001 -- the shard loop: every caller is answered
            _log.warning("shard.append_failed partition=%s error=%s", self._log.topic_partition, error)
            self._fail(opened, error)
            return error
        self._metrics.batch_linger_time.record(started_ms - opened.opened_ms)
        now_ms = self._now_ms()
        self._metrics.batch_flush_time.record(now_ms - started_ms)
        self._release()
        return self._written(end, opened.next_offset, opened.events, now_ms)

    def end_transaction(self, end: EndTransaction, event: DeferredEvent, now_ms: int) -> None:
        """
        Append the marker of a transaction, after the open batch.

        Raises:
            Exception: the marker was not written, and the transaction is still pending; the caller fails the event.
        """
        self._flush_or_raise()
        written = self._position.last_written_offset
        self._position.open_batch()
        try:
            self._shard.replay_end_transaction_marker(end.producer_id, end.producer_epoch, committed=end.committed)
            log_end = self._log.append_marker(end, leader_epoch=self._owner.leader_epoch, timestamp_ms=now_ms)
        except Exception:
            self._position.revert_last_written_offset(written)
            raise
        self._written(log_end, written + 1, [event], now_ms)

    def _write(self, data: bytes, batch: OpenBatch) -> int:
        if len(data) > batch.bytes_max:
            raise RecordTooLargeError(f"a batch of {len(data)} bytes; the partition takes {batch.bytes_max}")
        leader_epoch = self._owner.leader_epoch
        if batch.producer_id != NO_PRODUCER_ID:
            return self._log.append_transactional(
                data,
                leader_epoch=leader_epoch,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                guard=batch.guard,
            )
        return self._log.append(data, leader_epoch=leader_epoch)

    def _written(self, end: int, expected: int, events: list[DeferredEvent], now_ms: int) -> Exception | None:
        if end != expected:
            # Another writer has appended to this partition.
            error = CoordinatorError(ErrorCode.NOT_COORDINATOR)
            self._owner.fail(events, error)
            self._owner.out_of_sync(end, expected)
            return error
        self._position.update_last_written_offset(end)
        self._owner.wait(end, events, now_ms)
        return None

    def _flush_or_raise(self) -> None:
        error = self.flush()
        if error is not None:
            raise error

    def _fail(self, batch: OpenBatch, error: Exception) -> None:
        self._release()
        self._position.revert_last_written_offset(batch.base_offset)
        self._owner.fail(batch.events, error)

    def _release(self) -> OpenBatch | None:
        batch, self.batch = self.batch, None
        if batch is not None and batch.linger is not None:
            batch.linger.cancel()
        return batch
