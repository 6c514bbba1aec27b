"""Coordinator records for histories as bytes, each with the facts it was made of."""

from collections.abc import Mapping
from typing import Any

from kohort.model.ids import uuid_from_text
from kohort.records.consumer_protocol import PROTOCOL_TYPE, write_assignment, write_subscription
from kohort.records.json_form import record_from_json
from kohort.records.schema import struct_owners
from kohort.records.serde import encode_record
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
