"""
The records of groups in `__consumer_offsets`.

Kafka writes the records of several members of a consumer group, and their partitions, in the order of hash tables. So
neighbouring records of one kind are sorted by member; those of one member stay in their order. The tombstones of members that
leave together are sorted, too, three for each member.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records import values
from kohort_lab.conformance.brokers.coordinator_log import LogFormat, Records
from kohort_lab.conformance.canon import Names, plain

_BY_MEMBER: Final = (
    values.ConsumerGroupMemberMetadata,
    values.ConsumerGroupMemberMetadataTombstone,
    values.ConsumerGroupTargetAssignmentMember,
    values.ConsumerGroupTargetAssignmentMemberTombstone,
    values.ConsumerGroupCurrentMemberAssignment,
    values.ConsumerGroupCurrentMemberAssignmentTombstone,
    values.ShareGroupMemberMetadata,
    values.ShareGroupTargetAssignmentMember,
)
_LEAVING: Final = (
    values.ConsumerGroupCurrentMemberAssignmentTombstone,
    values.ConsumerGroupTargetAssignmentMemberTombstone,
    values.ConsumerGroupMemberMetadataTombstone,
)
"""The tombstones of one member, in their order."""
_BY_EXPRESSION: Final = (values.ConsumerGroupRegularExpression, values.ConsumerGroupRegularExpressionTombstone)
_WHERE_WRITTEN: Final = frozenset({"assignment_timestamp_ms", "assignment_epochs"})
"""Tagged fields of Apache Kafka 4.4.0. A broker of an earlier release does not write them."""
_BY_TOPIC: Final = frozenset(
    {
        *("topic_partitions", "assigned_partitions", "partitions_pending_revocation"),
        *("initializing_topics", "initialized_topics", "deleting_topics"),
    }
)
"""Fields with partitions by topic id."""


def _canonical(record: Any, _version: int, names: Names) -> dict[str, Any]:
    match record:
        case values.OffsetCommit():
            expire_ms = record.expire_timestamp_ms
            return {
                "record": "offset",
                "topic": names.text(record.topic),
                "partition": record.partition,
                "offset": record.offset,
                "leader_epoch": record.leader_epoch,
                "metadata": names.text(record.metadata),
                "commit_timestamp": names.number(record.commit_timestamp_ms),
                "retained_ms": expire_ms - record.commit_timestamp_ms if expire_ms >= 0 else expire_ms,
                "topic_id": None if record.topic_id is None else names.name("topic", record.topic_id),
            }
        case values.OffsetCommitTombstone():
            return {"record": "offset tombstone", "topic": names.text(record.topic), "partition": record.partition}
        case values.GroupMetadata():
            members = sorted(
                record.members, key=lambda member: names.peek(lambda: str(sorted(_member(member, names).items())))
            )
            return {
                "record": "group",
                "protocol_type": record.protocol_type,
                "generation": record.generation,
                "protocol": record.protocol,
                "leader": None if record.leader is None else names.text(record.leader),
                "since": names.number(record.current_state_timestamp_ms),
                "members": [_member(member, names) for member in members],
            }
        case values.GroupMetadataTombstone():
            return {"record": "group tombstone"}
        case _:
            return {"record": type(record).__name__, **_fields(record, names)}


def _member(member: values.GroupMetadataMember, names: Names) -> dict[str, Any]:
    return {
        "member_id": names.text(member.member_id),
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "session_timeout_ms": member.session_timeout_ms,
        "subscription": plain(member.subscription, names),
        "assignment": plain(member.assignment, names),
    }


def _arranged(records: Records, names: Names) -> Records:
    """The records of one group. Neighbours of the same kind are sorted by member, or by regular expression."""

    def member(pair: tuple[Any, int]) -> str:
        return str(names.peek(lambda: names.member_id(pair[0].member_id)))

    found: list[tuple[Any, int]] = []
    for kind, neighbours in groupby(_leavers_sorted(records, member), key=lambda pair: type(pair[0])):
        if kind in _BY_MEMBER:
            found += sorted(neighbours, key=member)
        elif kind in _BY_EXPRESSION:
            found += sorted(neighbours, key=lambda pair: names.text(pair[0].regular_expression))
        else:
            found += neighbours
    return found


def _leavers_sorted(records: Records, member: Callable[[tuple[Any, int]], str]) -> Records:
    """The records with neighbouring triples of tombstones sorted by member."""
    found: list[tuple[Any, int]] = []
    position = 0
    while position < len(records):
        leaving = []
        while tuple(type(record) for record, _ in records[position : position + len(_LEAVING)]) == _LEAVING:
            leaving.append(records[position : position + len(_LEAVING)])
            position += len(_LEAVING)
        for triple in sorted(leaving, key=lambda each: member(each[0])):
            found += triple
        found += records[position : position + 1]
        position += 1
    return found


def _fields(struct: msgspec.Struct, names: Names) -> dict[str, Any]:
    return {
        field: _field(struct, field, getattr(struct, field), names)
        for field in struct.__struct_fields__
        if field != "group_id" and not (field in _WHERE_WRITTEN and not getattr(struct, field))
    }


def _field(struct: msgspec.Struct, field: str, value: Any, names: Names) -> Any:
    if field in _BY_TOPIC:
        value = tuple(sorted(value, key=lambda each: names.peek(lambda: names.name("topic", each.topic_id))))
    elif field == "partitions":
        return sorted(value)
    elif field == "assignment_epochs":  # one for each of the partitions
        return [epoch for _, epoch in sorted(zip(struct.partitions, value, strict=True))]  # type: ignore[attr-defined]
    elif field == "member_id":
        return names.member_id(value)
    elif field == "metadata_hash" and value:
        return names.name("hash", value)
    elif isinstance(struct, values.ConsumerGroupRegularExpression):
        if field == "version":
            return "<any>"  # the offset of the metadata log
        if field == "topics":
            value = tuple(sorted(value))
    return _value(value, names)


def _value(value: Any, names: Names) -> Any:
    match value:
        case str():
            return names.text(value)
        case bytes():
            return plain(value, names)
        case UUID():
            return names.name("topic", value)
        case tuple():
            return [_value(element, names) for element in value]
        case msgspec.Struct():
            return _fields(value, names)
        case int():
            return names.number(value)
        case _:
            return value


OFFSETS_LOG = LogFormat(CONSUMER_OFFSETS, "group_id", _canonical, _arranged)
