"""Coordinator records for histories as bytes, each with the facts it was made of."""

import base64
from collections.abc import Mapping
from typing import Any

from kohort.model.ids import uuid_from_text
from kohort.records.consumer_protocol import PROTOCOL_TYPE, write_assignment, write_subscription
from kohort.records.json_form import json_name
from kohort.records.schema import RecordType, struct_owners
from kohort.records.serde import encode_record
from kohort.records.value_classes import record_classes
from kohort.records.values import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    GroupMetadata,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)
from kohort.wire.message_classes import default_value
from kohort.wire.schema import Field
from kohort_lab.history.logs import Record

_PROTOCOL_VERSION = 1


def offset_commit(
    group: str,
    topic: str,
    partition: int,
    offset: int | None,
    *,
    at_ms: int,
    metadata: str = "",
    topic_id: str | None = None,
) -> Record:
    """An OffsetCommit of value version 4, or 3 without a topic id; without an offset a tombstone."""
    facts = {"group": group, "topic": topic, "partition": partition, "tombstone": offset is None, "offset": offset}
    if offset is None:
        facts |= dict.fromkeys(("leader_epoch", "metadata", "commit_timestamp_ms"))
        return Record(*encode_record(OffsetCommitTombstone(group, topic, partition)), facts)
    facts |= {"leader_epoch": 0, "metadata": metadata, "commit_timestamp_ms": at_ms}
    uuid = None if topic_id is None else uuid_from_text(topic_id)
    commit = OffsetCommit(group, topic, partition, offset, 0, metadata, at_ms, topic_id=uuid)
    return Record(*encode_record(commit, 3 if uuid is None else 4), facts)


def group_metadata(
    group: str, generation: int, members: list[dict[str, Any]], *, leader: str | None, state_ms: int
) -> Record:
    """A GroupMetadata; members: `names`, `topics`, `owned` (topic and partition pairs)."""
    stored = tuple(
        GroupMetadataMember(
            member_id=member["names"]["member_id"],
            group_instance_id=member["names"]["instance_id"],
            client_id=member["names"]["client_id"],
            client_host=member["names"]["client_host"],
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=_subscription(member["topics"]),
            assignment=_assignment(member["owned"]),
        )
        for member in members
    )
    protocol = "range" if members else None
    return Record(*encode_record(GroupMetadata(group, PROTOCOL_TYPE, generation, protocol, leader, state_ms, stored)))


def group_tombstone(group: str) -> Record:
    return Record(*encode_record(GroupMetadataTombstone(group)))


def _subscription(topics: list[str]) -> bytes:
    return write_subscription(ConsumerProtocolSubscription(topics=tuple(topics)), _PROTOCOL_VERSION)


def _assignment(owned: list[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    assigned = tuple(
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), _PROTOCOL_VERSION)


def record(name: str, key: Mapping[str, Any], value: Mapping[str, Any] | None, *, version: int | None = None) -> Record:
    """A record of any type from its JSON form, in the version that Kafka writes unless stated."""
    return Record(*encode_record(record_from_json(struct_owners()[name], key, value), version))


def record_from_json(record_type: RecordType, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Any:
    """
    The record with this key and value; its tombstone if `value` is None. Names that the record does not have are ignored.

    Raises:
        KeyError: a field is missing that has no default.
    """
    classes = record_classes(record_type)
    fields = {field.name: _from_json(record_type, field, key[json_name(field)]) for field in record_type.key}
    if value is None:
        return classes[record_type.tombstone_name](**fields)
    return classes[record_type.name](**fields, **_fields_from_json(record_type, record_type.name, value))


def _fields_from_json(record_type: RecordType, struct: str, value: Mapping[str, Any]) -> dict[str, Any]:
    oldest, classes = record_type.versions[0], record_classes(record_type)
    return {
        field.name: default_value(field, classes)
        if json_name(field) not in value and (field.tag is not None or not field.is_in(oldest))
        else _from_json(record_type, field, value[json_name(field)])
        for field in record_type.structs[struct]
    }


def _from_json(record_type: RecordType, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.array:
        return tuple(_element_from_json(record_type, field, element) for element in value)
    return _element_from_json(record_type, field, value)


def _element_from_json(record_type: RecordType, field: Field, value: Any) -> Any:
    if field.type in record_type.structs:
        return record_classes(record_type)[field.type](**_fields_from_json(record_type, field.type, value))
    if field.type == "uuid":
        uuid = uuid_from_text(value)
        return uuid if uuid.int else None
    return base64.b64decode(value) if field.type == "bytes" else value
