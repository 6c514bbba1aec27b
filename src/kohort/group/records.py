"""
The records of `__consumer_offsets` that this coordinator reads and writes, and their bytes.

| key type | record                            | values read | value written                              |
|----------|-----------------------------------|-------------|--------------------------------------------|
| 0, 1     | `OffsetCommit`, `OffsetTombstone` | 0 to 4      | 4; 1 when there is an expire timestamp     |
| 2        | `GroupMetadata`, `GroupTombstone` | 0 to 4      | 3                                          |

Key type 0 is a legacy spelling of 1: read alike, never written. Every other type raises `UnknownRecordTypeError`, which
makes a load skip the record.

A key is an int16 type and a body of int16-length strings; a value is an int16 version and a body, whose last version is
flexible (compact lengths, tagged fields).

Source: Apache Kafka 4.2.1, OffsetCommitKey/Value.json, GroupMetadataKey/Value.json, GroupCoordinatorRecordSerde.
"""

from functools import lru_cache
from struct import Struct, error
from typing import TypeAlias
from uuid import UUID

import msgspec

from kohort.group.cursor import Cursor
from kohort.model.errors import CorruptError, UnknownRecordTypeError, WireError
from kohort.wire.primitives import INT16, INT32, INT64, write_bytes, write_compact_string, write_string

NO_LEADER_EPOCH = -1
NO_TIMESTAMP_MS = -1


class OffsetCommit(msgspec.Struct, frozen=True, gc=False):
    """
    A group's position in one partition.

    Attributes:
        offset: the next offset to read; any value a client chose.
        leader_epoch: -1 when the client named none.
        expire_timestamp_ms: when the offset lapses whatever the retention is; -1 when retention decides.
        topic_id: only when the request carried one.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP_MS
    topic_id: UUID | None = None


class OffsetTombstone(msgspec.Struct, frozen=True):
    """The group has no position in this partition any more."""

    group_id: str
    topic: str
    partition: int


class GroupMetadataMember(msgspec.Struct, frozen=True):
    """One member of a stored classic group; `subscription` is its metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(msgspec.Struct, frozen=True):
    """
    The whole of a classic group at one generation; it replaces what was known before.

    Attributes:
        protocol_type: "" for none.
        current_state_timestamp_ms: since when the group is in its state; -1 unknown (written before Kafka 2.1).
    """

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[GroupMetadataMember, ...]


class GroupTombstone(msgspec.Struct, frozen=True):
    """The classic group is gone; its offsets have tombstones of their own."""

    group_id: str


GroupRecord: TypeAlias = OffsetCommit | OffsetTombstone | GroupMetadata | GroupTombstone

_KEY_TYPE_OFFSET_LEGACY = 0
_KEY_TYPE_OFFSET = 1
_KEY_TYPE_GROUP = 2
_VALUE_VERSION_MAX = 4

# version 4: version, offset, leader epoch, [metadata], commit timestamp, tag count
_OFFSET_HEAD = Struct(">hqi")
_pack_plain = Struct(">hqiBqB").pack
_OFFSET_TAIL = Struct(">qB")
_OFFSET_KEY = b"\x00\x01"
_NEWEST = b"\x00\x04"
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field: tag 0, sixteen bytes
# version 1: version, offset, [metadata], commit timestamp, expire timestamp
_OFFSET_V1_HEAD = Struct(">hq")
_OFFSET_V1_TAIL = Struct(">qq")


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key under which a group's offset for one partition is compacted."""
    key = bytearray(INT16.pack(_KEY_TYPE_OFFSET))
    write_string(key, group_id)
    write_string(key, topic)
    key += INT32.pack(partition)
    return bytes(key)


_KNOWN_GROUP_ID_MAX = 128
_known_offset_key = lru_cache(maxsize=65_536)(offset_key)
"""Most commits are of keys that were committed before. Group ids may have 32 kB: keys of longer ones are not kept."""


def group_key(group_id: str) -> bytes:
    key = bytearray(INT16.pack(_KEY_TYPE_GROUP))
    write_string(key, group_id)
    return bytes(key)


class GroupRecordSerde:
    """`RecordSerde` of the group coordinator."""

    def encode(self, record: GroupRecord, /) -> tuple[bytes, bytes | None]:
        match record:
            case OffsetCommit():
                key_of = _known_offset_key if len(record.group_id) <= _KNOWN_GROUP_ID_MAX else offset_key
                key = key_of(record.group_id, record.topic, record.partition)
                if record.metadata or record.topic_id is not None or record.expire_timestamp_ms != NO_TIMESTAMP_MS:
                    return key, _encode_offset(record)
                return key, _pack_plain(4, record.offset, record.leader_epoch, 1, record.commit_timestamp_ms, 0)
            case GroupMetadata():
                return group_key(record.group_id), _encode_group(record)
            case OffsetTombstone():
                return offset_key(record.group_id, record.topic, record.partition), None
            case GroupTombstone():
                return group_key(record.group_id), None

    def decode(self, key: bytes, value: bytes | None, /) -> GroupRecord:
        try:
            if value is not None and value[:2] == _NEWEST and key[:2] == _OFFSET_KEY:
                record = _decode_newest_offset(key, value)
                if record is not None:
                    return record
            return _decode(Cursor(key), None if value is None else Cursor(value))
        except (WireError, ValueError, IndexError, error) as exc:
            raise CorruptError(f"a record of __consumer_offsets does not hold what its key promises: {exc}") from exc


def _encode_offset(record: OffsetCommit) -> bytes:
    if record.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return _encode_expiring_offset(record)
    front, middle, back = offset_value(record.leader_epoch, record.metadata, record.topic_id)
    return front + INT64.pack(record.offset) + middle + INT64.pack(record.commit_timestamp_ms) + back


def offset_value(leader_epoch: int, metadata: str, topic_id: UUID | None) -> tuple[bytes, bytes, bytes]:
    """The newest value of an offset: what stands before the offset, between that and the commit timestamp, and behind both."""
    middle = bytearray(INT32.pack(leader_epoch))
    write_compact_string(middle, metadata)
    return _NEWEST, bytes(middle), _NO_TAGS if topic_id is None else _TOPIC_ID_TAG + topic_id.bytes


def _encode_expiring_offset(record: OffsetCommit) -> bytes:
    """In the only version with an expire timestamp; it has no leader epoch, which is lost."""
    value = bytearray(_OFFSET_V1_HEAD.pack(1, record.offset))
    write_string(value, record.metadata)
    value += _OFFSET_V1_TAIL.pack(record.commit_timestamp_ms, record.expire_timestamp_ms)
    return bytes(value)


def _encode_group(record: GroupMetadata) -> bytes:
    value = bytearray(INT16.pack(3))
    write_string(value, record.protocol_type)
    value += INT32.pack(record.generation)
    write_string(value, record.protocol)
    write_string(value, record.leader)
    value += INT64.pack(record.current_state_timestamp_ms)
    value += INT32.pack(len(record.members))
    for member in record.members:
        write_string(value, member.member_id)
        write_string(value, member.group_instance_id)
        write_string(value, member.client_id)
        write_string(value, member.client_host)
        value += INT32.pack(member.rebalance_timeout_ms)
        value += INT32.pack(member.session_timeout_ms)
        write_bytes(value, member.subscription)
        write_bytes(value, member.assignment)
    return bytes(value)


def _decode(key: Cursor, value: Cursor | None) -> GroupRecord:
    key_type = key.int16()
    if key_type in (_KEY_TYPE_OFFSET_LEGACY, _KEY_TYPE_OFFSET):
        group_id, topic, partition = key.string(), key.string(), key.int32()
        if value is None:
            return OffsetTombstone(group_id, topic, partition)
        return _decode_offset(group_id, topic, partition, value)
    if key_type == _KEY_TYPE_GROUP:
        group_id = key.string()
        return GroupTombstone(group_id) if value is None else _decode_group(group_id, value)
    raise UnknownRecordTypeError(key_type)


def _decode_newest_offset(key: bytes, value: bytes) -> OffsetCommit | None:
    """What nearly every record of a log is, in a third of the time; None when it is not as plain as that."""
    topic_at = 4 + INT16.unpack_from(key, 2)[0]
    partition_at = topic_at + 2 + INT16.unpack_from(key, topic_at)[0]
    tail_at = 14 + value[14]
    if not 4 <= topic_at < partition_at - 1 or not 15 <= tail_at < 142:
        return None
    commit_timestamp_ms, tags = _OFFSET_TAIL.unpack_from(value, tail_at)
    if tags:
        return None
    _, offset, leader_epoch = _OFFSET_HEAD.unpack_from(value)
    (partition,) = INT32.unpack_from(key, partition_at)
    group_id, topic = key[4:topic_at].decode(), key[topic_at + 2 : partition_at].decode()
    return OffsetCommit(
        group_id, topic, partition, offset, leader_epoch, value[15:tail_at].decode(), commit_timestamp_ms
    )


def _value_version(value: Cursor) -> int:
    version = value.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise ValueError(f"value version {version} is not known")
    return version


def _decode_offset(group_id: str, topic: str, partition: int, value: Cursor) -> OffsetCommit:
    version = _value_version(value)
    value.is_flexible = version >= 4
    offset = value.int64()
    leader_epoch = value.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata = value.string()
    commit_timestamp_ms = value.int64()
    expire_timestamp_ms = value.int64() if version == 1 else NO_TIMESTAMP_MS
    topic_id = _topic_id(value.tagged_fields()) if version >= 4 else None
    return OffsetCommit(
        group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def _topic_id(tagged: dict[int, bytes]) -> UUID | None:
    field = tagged.get(0)
    if field is None:
        return None
    topic_id = UUID(bytes=field)
    return topic_id if topic_id.int else None


def _decode_group(group_id: str, value: Cursor) -> GroupMetadata:
    version = _value_version(value)
    value.is_flexible = version >= 4
    protocol_type, generation = value.string(), value.int32()
    protocol, leader = value.nullable_string(), value.nullable_string()
    timestamp_ms = value.int64() if version >= 2 else NO_TIMESTAMP_MS
    members = tuple(_decode_member(value, version) for _ in range(value.array_length()))
    value.tagged_fields()
    return GroupMetadata(group_id, protocol_type, generation, protocol, leader, timestamp_ms, members)


def _decode_member(value: Cursor, version: int) -> GroupMetadataMember:
    member_id = value.string()
    group_instance_id = value.nullable_string() if version >= 3 else None
    client_id, client_host = value.string(), value.string()
    rebalance_timeout_ms = value.int32() if version >= 1 else -1
    session_timeout_ms = value.int32()
    subscription, assignment = value.blob(), value.blob()
    value.tagged_fields()
    return GroupMetadataMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        # Version 0 has no rebalance timeout, and a later one may say -1: the session timeout stands in.
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def utf16_length(text: str) -> int:
    """The length of a Java string: what `offset.metadata.max.bytes` counts, in spite of its name."""
    return len(text) + sum(char > "\uffff" for char in text)
