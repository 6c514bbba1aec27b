"""
The records that groups left in `__consumer_offsets`, decoded, in the order of the log. The batches that hold them do not count.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from kohort.conformance.canon import Names, plain
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import (
    GroupMetadata,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)
from kohort.wire.batches import iter_batches, read_records

UNREADABLE = "(unreadable)"
"""
The name under which records are listed that have an unknown type or are damaged. They name no group, so they belong to every
scenario that ended after them, and fail it (`kohort.conformance.compare`).
"""

_SERDE = CoordinatorRecordSerde(CONSUMER_OFFSETS)


class GroupRecords:
    """Collects the records of groups by the prefix of their scenario, up to the end of that scenario."""

    def __init__(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """
        Args:
            ends: by prefix, the end offset of each partition when the scenario was over.
        """
        self._ends = ends
        self._by_prefix: dict[str, dict[str, list[Any]]] = {prefix: {} for prefix in ends}
        self._prefix_length = max(map(len, self._by_prefix), default=0)
        self._unreadable: list[tuple[int, int, str]] = []

    def add(self, partition: int, batches: bytes) -> int:
        """Collect the records of a fetch response and return the offset after them, 0 if there are none."""
        after = 0
        for position, header in iter_batches(batches):
            after = header.next_offset
            if header.is_control or not header.record_count:
                continue
            for record in read_records(batches[position : position + header.size_bytes]):
                self._add(partition, record.offset, record.key or b"", record.value)
        return after

    def of(self, names: Names) -> dict[str, list[dict[str, Any]]]:
        """The records of one scenario by group, with the scenario's names for identities."""
        groups = self._by_prefix.get(names.prefix, {})
        found = {
            names.text(group_id): [_canonical(record, names) for record in groups[group_id]]
            for group_id in sorted(groups)
        }
        ends = self._ends.get(names.prefix, {})
        unreadable = [text for partition, offset, text in self._unreadable if offset < ends.get(partition, 0)]
        return found | ({UNREADABLE: [{"record": text} for text in unreadable]} if unreadable else {})

    def _add(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        try:
            record = _SERDE.decode(key, value)
        except (CorruptError, UnknownRecordTypeError) as error:
            self._unreadable.append((partition, offset, f"partition {partition}, offset {offset}: {error}"))
            return
        prefix = record.group_id[: self._prefix_length]
        of_scenario = self._by_prefix.get(prefix)
        if of_scenario is not None and offset < self._ends[prefix].get(partition, 0):
            of_scenario.setdefault(record.group_id, []).append(record)


def _canonical(record: Any, names: Names) -> dict[str, Any]:
    match record:
        case OffsetCommit():
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
        case OffsetCommitTombstone():
            return {"record": "offset tombstone", "topic": names.text(record.topic), "partition": record.partition}
        case GroupMetadata():
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
        case GroupMetadataTombstone():
            return {"record": "group tombstone"}
        case _:
            return {"record": type(record).__name__, **_fields(record, names)}


def _fields(struct: msgspec.Struct, names: Names) -> dict[str, Any]:
    """A record of another kind of group."""
    return {field: _value(getattr(struct, field), names) for field in struct.__struct_fields__ if field != "group_id"}


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
        case _:
            return value


def _member(member: GroupMetadataMember, names: Names) -> dict[str, Any]:
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
