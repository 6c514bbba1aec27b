"""
The records of `__transaction_state`: a `Transaction`, or the tombstone of an expired transactional id.

The record has no last producer epoch. From version 1 on it has the previous producer id and, while a producer id is rotated,
the next one: so a coordinator that is loaded during the rotation ends it, and knows repeated requests afterwards. Kafka 4.2.1
reads both and writes none (KAFKA-20310).

Source: Kafka TransactionLog; KIP-98, KIP-890, KIP-915.
"""

from collections import defaultdict
from collections.abc import Callable
from struct import error
from typing import Final, TypeAlias

from kohort.machine.shard import NO_PRODUCER_EPOCH
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.ids import TRANSACTION_STATE, TopicPartition
from kohort.records.serde import CoordinatorRecordSerde, encode_record
from kohort.records.transaction_logs import decode_transaction_log, encode_transaction, other_tags
from kohort.records.values import TransactionLog, TransactionLogPartitionsSchema, TransactionLogTombstone
from kohort.transaction.states import EMPTY, TransactionState
from kohort.transaction.transaction import NO_PARTITIONS, Transaction

TransactionRecord: TypeAlias = Transaction | TransactionLogTombstone

NEWEST_LEVEL: Final = 2
"""The newest level of the feature `transaction.version`."""


class TransactionRecordSerde:
    """
    A `kohort.machine.shard.RecordSerde`.

    Args:
        level: returns the finalised level of `transaction.version`. Below 1 the value has version 0, which has no place for a
            client's transaction version.
    """

    def __init__(self, level: Callable[[], int] = lambda: NEWEST_LEVEL) -> None:
        self._level = level
        self._serde = CoordinatorRecordSerde(TRANSACTION_STATE)

    def encode(self, record: TransactionRecord, /) -> tuple[bytes, bytes | None]:
        """
        Raises:
            CoordinatorError: UNSUPPORTED_VERSION: the client speaks transaction version 2, and the finalised level is 0.
        """
        if not isinstance(record, Transaction):
            return encode_record(record)
        version = 1 if self._level() >= 1 else 0
        if version == 0 and record.client_version:
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The finalized level of transaction.version is 0; transactions of version 2 need level 1 or above.",
            )
        if version == 0:
            return encode_record(to_record(record), version)
        return encode_transaction(
            record.transactional_id,
            record.producer_id,
            record.producer_epoch,
            record.timeout_ms,
            record.state,
            None if record.state is EMPTY else record.partitions,
            record.update_timestamp_ms,
            record.start_timestamp_ms,
            record.client_version,
            record.previous_producer_id,
            record.next_producer_id,
            record.other_tags,
        )

    def decode(self, key: bytes, value: bytes | None, /) -> TransactionRecord:
        """
        Raises:
            UnknownRecordTypeError: the key type is not that of a transactional id.
            CorruptError: the bytes are no record, the status is unknown, or the partitions are null outside of state EMPTY.
        """
        if value is not None:
            try:
                found = decode_transaction_log(key, value)
                if found is not None:
                    return from_record(found)
            except (IndexError, error, UnicodeDecodeError):
                """The compiled decoder decides about damaged records."""
        record = self._serde.decode(key, value)
        return record if value is None else from_record(record, other_tags(value))


def to_record(transaction: Transaction) -> TransactionLog:
    """The value of a transactional id in version 0; see `from_record`."""
    partitions = None
    if transaction.state is not EMPTY:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(transaction.partitions):
            by_topic[topic].append(index)
        partitions = tuple(TransactionLogPartitionsSchema(topic, tuple(indexes)) for topic, indexes in by_topic.items())
    return TransactionLog(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        int(transaction.state),
        partitions,
        transaction.update_timestamp_ms,
        transaction.start_timestamp_ms,
    )


def from_record(record: TransactionLog, tags: tuple[bytes, ...] = ()) -> Transaction:
    """
    The transactional id in a value of the log.

    Args:
        tags: `Transaction.other_tags`.

    Raises:
        CorruptError: the status is unknown, or the partitions are null outside of state EMPTY.
    """
    try:
        state = TransactionState(record.transaction_status)
    except ValueError:
        raise CorruptError(f"unknown transaction status {record.transaction_status}") from None
    partitions = NO_PARTITIONS
    if state is not EMPTY:
        if record.transaction_partitions is None:
            raise CorruptError(f"the partitions of a transaction in state {state.wire_name} are null")
        partitions = frozenset(
            TopicPartition(topic.topic, index)
            for topic in record.transaction_partitions
            for index in topic.partition_ids
        )
    return Transaction(
        record.transactional_id,
        record.producer_id,
        record.producer_epoch,
        record.transaction_timeout_ms,
        state,
        partitions,
        record.transaction_start_timestamp_ms,
        record.transaction_last_update_timestamp_ms,
        record.client_transaction_version,
        record.previous_producer_id,
        record.next_producer_id,
        NO_PRODUCER_EPOCH,
        tags,
    )
