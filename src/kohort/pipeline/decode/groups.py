"""
GroupMetadata records (key type 2), one at a time: a classic group as it stood after a rebalance.

Source: Apache Kafka 4.2.1, GroupMetadataKey.json, GroupMetadataValue.json; KIP-345, KIP-211.
"""

from typing import Any

from kohort.model.errors import CorruptError, WireError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.coordinator_records import key_and_value, problem
from kohort.pipeline.decode.records import Records
from kohort.records.codecs import decode_record
from kohort.records.consumer_protocol import PROTOCOL_TYPE, read_assignment
from kohort.records.schema import record_types
from kohort.records.values import GroupMetadata, GroupMetadataMember

KEY_TYPE = 2
_REBALANCE_TIMEOUT_SINCE = 1
_STATE_TIMESTAMP_SINCE = 2


def decode(records: Records, *, has_members: bool = True) -> tuple[list[dict[str, Any]], list[Corruption]]:
    """
    GroupMetadata records as rows of the schema: their own columns, and `row`, the index into `records`.

    Args:
        records: with keys of type 2 only.
        has_members: without it, there is no column `members`.
    """
    rows: list[dict[str, Any]] = []
    damage: list[Corruption] = []
    for row in range(len(records)):
        key, value = key_and_value(records, row)
        try:
            rows.append({"row": row, **columns(key, value, has_members=has_members)})
        except CorruptError as exc:
            damage.append(records.damage_of(row, problem(record_types()[CONSUMER_OFFSETS, KEY_TYPE], exc)))
    return rows, damage


def columns(key: bytes, value: bytes | None, *, has_members: bool = True) -> dict[str, Any]:
    """
    One record as a row of the schema.

    Raises:
        CorruptError: the bytes end early, or the version of the value is not known.
    """
    record = decode_record(record_types()[CONSUMER_OFFSETS, KEY_TYPE], key, value)
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
