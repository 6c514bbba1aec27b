"""The records of groups in `__consumer_offsets`."""

from typing import Any

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.values import (
    GroupMetadata,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommit,
    OffsetCommitTombstone,
)
from kohort_lab.conformance.brokers import consumer_group_log
from kohort_lab.conformance.brokers.coordinator_log import LogFormat
from kohort_lab.conformance.canon import Names, plain


def _canonical(record: Any, _version: int, names: Names) -> dict[str, Any]:
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
            return consumer_group_log.canonical(record, names)


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


OFFSETS_LOG = LogFormat(CONSUMER_OFFSETS, "group_id", _canonical, consumer_group_log.arranged)
