"""
Records of the coordinators one at a time: every type that has no columnar reader.

GroupMetadata (a classic group as it stood after a rebalance) and TransactionLog (a transactional id after each change) have
columns of their own. TransactionLog and all other records are shown in the JSON form of Kafka's own converters. A record of an
unknown type is kept as bytes.

Source: Apache Kafka 4.2.1, GroupMetadataKey.json, GroupMetadataValue.json, TransactionLogKey.json, TransactionLogValue.json,
TransactionState; KIP-345, KIP-211.
"""

from typing import Any

from kohort.model.errors import CorruptError, WireError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.records import Records
from kohort.records.codecs import UnknownVersionError, decode_record
from kohort.records.consumer_protocol import PROTOCOL_TYPE, read_assignment
from kohort.records.json_form import json_record
from kohort.records.schema import record_types
from kohort.records.values import GroupMetadata, GroupMetadataMember

GROUP_KEY_TYPE = 2
TRANSACTION_KEY_TYPE = 0
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of the states by id, as Kafka's tools print them."""
_ABSENT = -1
_REBALANCE_TIMEOUT_SINCE = 1
_STATE_TIMESTAMP_SINCE = 2


def decode(
    topic: str, key_type: int, records: Records, *, has_value: bool = True
) -> tuple[list[dict[str, Any]], list[Corruption]]:
    """
    Records of one key type as rows of the schema: their own columns, and `row`, the index into `records`.

    Args:
        records: with keys of `key_type` only.
        has_value: as for `json_record`; of GroupMetadata, whether there is a column `members`.
    """
    found = record_types().get((topic, key_type))

    def columns(key: bytes, value: bytes | None) -> dict[str, Any]:
        if found is None:
            return {"key_type": key_type, "tombstone": value is None, "raw_key": key, "raw_value": value}
        if (topic, key_type) == (CONSUMER_OFFSETS, GROUP_KEY_TYPE):
            return group_columns(key, value, has_members=has_value)
        told = json_record(found, key, value, has_value=has_value)
        return {"key_type": key_type, "record_type": found.name, **told}

    rows: list[dict[str, Any]] = []
    damage: list[Corruption] = []
    for row in range(len(records)):
        try:
            rows.append({"row": row, **columns(*_key_and_value(records, row))})
        except UnknownVersionError as exc:
            damage.append(records.damage_of(row, f"{exc.record_name} value of an unknown version"))
        except CorruptError:
            assert found is not None
            damage.append(records.damage_of(row, f"malformed {found.name} record"))
    return rows, damage


def _key_and_value(records: Records, row: int) -> tuple[bytes, bytes | None]:
    data, key_at, value_at = records.window.data, int(records.key_at[row]), int(records.value_at[row])
    value_bytes = int(records.value_bytes[row])
    key = data[key_at : key_at + int(records.key_bytes[row])].tobytes()
    return key, None if value_bytes < 0 else data[value_at : value_at + value_bytes].tobytes()


def group_columns(key: bytes, value: bytes | None, *, has_members: bool = True) -> dict[str, Any]:
    """
    A GroupMetadata record as a row of the schema.

    Raises:
        CorruptError: the bytes end early, or the version of the value is not known.
    """
    record = decode_record(record_types()[CONSUMER_OFFSETS, GROUP_KEY_TYPE], key, value)
    if not isinstance(record, GroupMetadata):
        return {"group": record.group_id, "tombstone": True}
    assert value is not None
    version = int.from_bytes(value[:2])
    found = {
        "group": record.group_id,
        "tombstone": False,
        "value_version": version,
        "protocol_type": record.protocol_type,
        "generation": record.generation,
        "protocol": record.protocol,
        "leader": record.leader,
        "state_timestamp_ms": record.current_state_timestamp_ms if version >= _STATE_TIMESTAMP_SINCE else None,
    }
    if has_members:
        found["members"] = [_member(member, version, record.protocol_type) for member in record.members]
    return found


def _member(member: GroupMetadataMember, version: int, protocol_type: str) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms if version >= _REBALANCE_TIMEOUT_SINCE else None,
        "session_timeout_ms": member.session_timeout_ms,
        "subscription": member.subscription,
        "assignment": member.assignment,
        "assigned": assigned(member.assignment) if protocol_type == PROTOCOL_TYPE else None,
    }


def assigned(assignment: bytes) -> list[dict[str, Any]] | None:
    """The partitions in an assignment of the consumer protocol; None if it is malformed, none if it is empty."""
    if not assignment:
        return []
    try:
        topics = read_assignment(assignment).assigned_partitions
    except WireError:
        return None
    return [{"topic": topic.topic, "partition": partition} for topic in topics for partition in topic.partitions]


def transaction_columns(key: dict[str, Any], value: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of a TransactionLog record, from its JSON form; `transaction` is null in a tombstone."""
    return {"transactional_id": key["transactionalId"], "transaction": None if value is None else _transaction(value)}


def _transaction(value: dict[str, Any]) -> dict[str, Any]:
    status = value["transactionStatus"]
    return {
        "state": STATES[status] if 0 <= status < len(STATES) else f"Unknown({status})",
        "producer_id": value["producerId"],
        "producer_epoch": value["producerEpoch"],
        "timeout_ms": value["transactionTimeoutMs"],
        "partitions": [
            {"topic": topic["topic"], "partition": partition}
            for topic in value["transactionPartitions"] or ()
            for partition in topic["partitionIds"] or ()
        ],
        "last_update_ms": value["transactionLastUpdateTimestampMs"],
        "start_ms": value["transactionStartTimestampMs"],
        "previous_producer_id": value.get("previousProducerId", _ABSENT),
        "next_producer_id": value.get("nextProducerId", _ABSENT),
        "client_transaction_version": value.get("clientTransactionVersion", 0),
    }
