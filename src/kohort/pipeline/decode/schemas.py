"""
The columns of the decoder's rows: one schema for every kind of row.

| kind             | one row for                                                     | columns of its own                |
|------------------|-----------------------------------------------------------------|-----------------------------------|
| `offset_commit`  | an OffsetCommit record (key types 0 and 1), tombstones included | `group` to `topic_id`             |
| `group_metadata` | a GroupMetadata record (key type 2), tombstones included        | `group`, `protocol_type` to `members` |
| `transaction`    | a TransactionLog record of `__transaction_state`, tombstones included | `transactional_id`, `transaction` |
| `coordinator`    | any other record of a coordinator, see `coordinator_records`    | `record_type` to `raw_value`      |
| `marker`         | an end-of-transaction marker                                    | `control`, `coordinator_epoch`    |
| `batch`          | a record batch of any topic                                     | `next_offset` to `record_count`   |
| `segment`        | a segment file of any topic, empty ones too                     | `next_offset` to `size_bytes`     |
| `damage`         | a range of a segment file that cannot be read                   | `segment` to `problem`            |

The `log_offset` of a batch or a segment is its base offset, its `timestamp_ms` the greatest of its records;
`first_timestamp_ms` is that of a batch's first record. A batch that ends a transaction has `control` too.
`transaction` and `coordinator` rows hold their key and value in Kafka's JSON form too; records of an unknown type are kept in
`raw_key` and `raw_value`. `group` and `member_id` are filled wherever the key names them.

A column that does not belong to a row's kind is null. Ids that are absent in Kafka's sense keep Kafka's -1 (`producer_id`,
`leader_epoch`); null means that the record has no such field. All times are milliseconds since the epoch.

Source: Apache Kafka 4.2.1, OffsetCommitKey/Value, GroupMetadataKey/Value,
TransactionLogKey/Value, EndTransactionMarker, DefaultRecordBatch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

OFFSET_COMMIT = "offset_commit"
GROUP_METADATA = "group_metadata"
TRANSACTION = "transaction"
COORDINATOR = "coordinator"
MARKER = "marker"
BATCH = "batch"
SEGMENT = "segment"
DAMAGE = "damage"

KINDS = (OFFSET_COMMIT, GROUP_METADATA, TRANSACTION, COORDINATOR, MARKER, BATCH, SEGMENT, DAMAGE)
RECORD_KINDS = frozenset({OFFSET_COMMIT, GROUP_METADATA, TRANSACTION, COORDINATOR, MARKER})
"""The kinds that need records; the others need only batch headers."""
DEFAULT_KINDS = (OFFSET_COMMIT, GROUP_METADATA, TRANSACTION, COORDINATOR, MARKER, DAMAGE)

COMMIT = "COMMIT"
ABORT = "ABORT"

TOPIC_PARTITION = pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())])
MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("subscription", pa.binary()),
        pa.field("assignment", pa.binary()),
        # The partitions of the assignment; null if it is not of the consumer protocol, or malformed.
        pa.field("assigned", pa.list_(TOPIC_PARTITION)),
    ]
)

TRANSACTION_VALUE = pa.struct(
    [
        pa.field("state", pa.string()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("timeout_ms", pa.int32()),
        pa.field("partitions", pa.list_(TOPIC_PARTITION)),
        pa.field("last_update_ms", pa.int64()),
        pa.field("start_ms", pa.int64()),
        pa.field("previous_producer_id", pa.int64()),
        pa.field("next_producer_id", pa.int64()),
        pa.field("client_transaction_version", pa.int16()),
    ]
)

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        # The position in the log.
        pa.field("log_topic", pa.string()),
        pa.field("log_partition", pa.int32()),
        pa.field("log_offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("transactional", pa.bool_()),
        # Records of groups; a tombstone has no value and no version.
        pa.field("group", pa.string()),
        pa.field("tombstone", pa.bool_()),
        pa.field("value_version", pa.int16()),
        # OffsetCommit.
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp_ms", pa.int64()),
        pa.field("expire_timestamp_ms", pa.int64()),
        pa.field("topic_id", pa.string()),
        # GroupMetadata.
        pa.field("protocol_type", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("protocol", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("state_timestamp_ms", pa.int64()),
        pa.field("members", pa.list_(MEMBER)),
        # TransactionLog.
        pa.field("transactional_id", pa.string()),
        pa.field("transaction", TRANSACTION_VALUE),
        # Any other record of a coordinator; key and value are JSON.
        pa.field("record_type", pa.string()),
        pa.field("key_type", pa.int16()),
        pa.field("member_id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("raw_key", pa.binary()),
        pa.field("raw_value", pa.binary()),
        # Markers; batches that hold a marker have the first column, too.
        pa.field("control", pa.string()),
        pa.field("coordinator_epoch", pa.int32()),
        # Batches, segments and damage: a range of a file.
        pa.field("next_offset", pa.int64()),
        pa.field("is_control", pa.bool_()),
        pa.field("segment", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("size_bytes", pa.int64()),
        # The records in a batch, after compaction.
        pa.field("first_timestamp_ms", pa.int64()),
        pa.field("record_count", pa.int32()),
        pa.field("problem", pa.string()),
    ]
)


def subset(columns: Sequence[str] | None) -> pa.Schema:
    """
    The schema of some columns, in the given order; None means all.

    Raises:
        KeyError: there is no such column.
    """
    if columns is None:
        return SCHEMA
    for column in columns:
        if SCHEMA.get_field_index(column) < 0:
            raise KeyError(column)
    return pa.schema([SCHEMA.field(column) for column in columns])


def record_batch(schema: pa.Schema, rows: int, columns: Mapping[str, Callable[[], Any]]) -> pa.RecordBatch:
    """
    A record batch of `schema`; an Arrow array is built only if its column is in the schema, and a missing column is null.
    """
    arrays = [columns[one.name]() if one.name in columns else pa.nulls(rows, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_rows(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """A record batch of `schema` from dicts, for small numbers of rows."""
    listed = list(rows)
    arrays = [pa.array([row.get(field.name) for row in listed], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
