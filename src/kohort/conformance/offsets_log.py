"""
What groups left in `__consumer_offsets`: their records in the order of the log, decoded; which batch held them does not count.
"""

from collections.abc import Mapping
from typing import Any

from kohort.conformance.canon import Names, plain
from kohort.group.records import GroupRecord, GroupRecordSerde
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.records.values import (
    GroupMetadata,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)
from kohort.wire.batches import iter_batches, read_records

_DECODE = GroupRecordSerde().decode


class GroupRecords:
    """Collects the records of the groups whose names begin with one of some prefixes, up to the end of their story."""

    def __init__(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """
        Args:
            ends: by prefix, where each partition ended when the story was over; what came later is no part of it.
        """
        self._ends = ends
        self._by_prefix: dict[str, dict[str, list[GroupRecord]]] = {prefix: {} for prefix in ends}
        self._prefix_length = max(map(len, self._by_prefix), default=0)

    def add(self, partition: int, batches: bytes) -> int:
        """Take in what a fetch returned; the offset after it, 0 if there was nothing."""
        after = 0
        for position, header in iter_batches(batches):
            after = header.next_offset
            if header.is_control or not header.record_count:
                continue
            for record in read_records(batches[position : position + header.size_bytes]):
                self._add(partition, record.offset, record.key or b"", record.value)
        return after

    def of(self, names: Names) -> dict[str, list[dict[str, Any]]]:
        """The records of one story, by group, with its names for identities."""
        groups = self._by_prefix.get(names.prefix, {})
        return {
            names.text(group_id): [_canonical(record, names) for record in groups[group_id]]
            for group_id in sorted(groups)
        }

    def _add(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        try:
            record = _DECODE(key, value)
        except (CorruptError, UnknownRecordTypeError):
            return
        prefix = record.group_id[: self._prefix_length]
        of_story = self._by_prefix.get(prefix)
        if of_story is not None and offset < self._ends[prefix].get(partition, 0):
            of_story.setdefault(record.group_id, []).append(record)


def _canonical(record: GroupRecord, names: Names) -> dict[str, Any]:
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
