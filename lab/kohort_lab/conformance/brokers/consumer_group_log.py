"""
The records of consumer groups in `__consumer_offsets`.

Kafka writes the records of several members, and their partitions, in the order of hash tables. So neighbouring records of one
kind are sorted by member; those of one member stay in their order. The tombstones of members that leave together are
sorted, too, three for each member.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.records import values
from kohort_lab.conformance.brokers.coordinator_log import Records
from kohort_lab.conformance.canon import Names, plain

_BY_MEMBER: Final = (
    values.ConsumerGroupMemberMetadata,
    values.ConsumerGroupMemberMetadataTombstone,
    values.ConsumerGroupTargetAssignmentMember,
    values.ConsumerGroupTargetAssignmentMemberTombstone,
    values.ConsumerGroupCurrentMemberAssignment,
    values.ConsumerGroupCurrentMemberAssignmentTombstone,
)
_LEAVING: Final = (
    values.ConsumerGroupCurrentMemberAssignmentTombstone,
    values.ConsumerGroupTargetAssignmentMemberTombstone,
    values.ConsumerGroupMemberMetadataTombstone,
)
"""The tombstones of one member, in their order."""
_BY_EXPRESSION: Final = (values.ConsumerGroupRegularExpression, values.ConsumerGroupRegularExpressionTombstone)
_BY_TOPIC: Final = frozenset({"topic_partitions", "assigned_partitions", "partitions_pending_revocation"})
"""Fields with partitions by topic id."""


def arranged(records: Records, names: Names) -> Records:
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


def canonical(record: msgspec.Struct, names: Names) -> dict[str, Any]:
    """The plain form of a record, without the group id."""
    return {"record": type(record).__name__, **_fields(record, names)}


def _fields(struct: msgspec.Struct, names: Names) -> dict[str, Any]:
    return {
        field: _field(struct, field, getattr(struct, field), names)
        for field in struct.__struct_fields__
        if field != "group_id"
    }


def _field(struct: msgspec.Struct, field: str, value: Any, names: Names) -> Any:
    if field in _BY_TOPIC:
        value = tuple(sorted(value, key=lambda each: names.peek(lambda: names.name("topic", each.topic_id))))
    elif field == "partitions":
        return sorted(value)
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
