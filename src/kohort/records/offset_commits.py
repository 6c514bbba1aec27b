"""
The fast path of OffsetCommit, the record of nearly every write and of nearly every record that a load reads.

Each function gives what the compiled codec gives, in a fraction of its time; tests/records/test_offset_commits.py runs both on
generated records. The parts of a key and a value are public for `kohort.group.offsets.prepared_commits`, which keeps them.

Source: Apache Kafka 4.4.0, OffsetCommitKey.json, OffsetCommitValue.json, GroupCoordinatorRecordHelpers.newOffsetCommitRecord.
"""

from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from kohort.records.codecs import value_encoder
from kohort.records.values import OffsetCommit
from kohort.wire.primitives import INT16, INT32, INT64, write_compact_string, write_string

NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP_MS: Final = -1

NEWEST_VERSION: Final = 4
EXPIRING_VERSION: Final = 1
"""The only version with an expire timestamp. It has no leader epoch, which is lost."""

KEY_PREFIX: Final = b"\x00\x01"
"""The key type of an OffsetCommit."""
VALUE_PREFIX: Final = b"\x00\x04"
"""The newest version of the value."""
TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field: tag 0, sixteen bytes."""

# The newest version without metadata and tagged fields: version, offset, leader epoch, [metadata], commit timestamp, tag count.
_pack_plain: Final = Struct(">hqiBqB").pack
# The same with a topic id.
_pack_identified: Final = Struct(">hqiBq3s16s").pack
_HEAD: Final = Struct(">hqi")
_TAIL: Final = Struct(">qB")
_HEAD_BYTES: Final = 14
_METADATA_AT: Final = 15

_KNOWN_GROUP_ID_MAX: Final = 128
_TOPIC_ID_AT: Final = 11
"""Behind the beginning of the timestamp: the timestamp, the number of tags, the tag and its size."""
_TOPIC_ID_BYTES: Final = 16


@lru_cache(maxsize=16_384)
def topic_id_of(raw: bytes) -> UUID | None:
    """The topic id in a record, None if it is zero. Offsets of one topic share it: a table may have millions of them."""
    return UUID(bytes=raw) if any(raw) else None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key under which a group's offset for one partition is compacted."""
    key = bytearray(KEY_PREFIX)
    write_string(key, group_id)
    write_string(key, topic)
    key += INT32.pack(partition)
    return bytes(key)


_cached_offset_key: Final = lru_cache(maxsize=65_536)(offset_key)
"""Most commits repeat a key. A group id may have 32 kB, so keys with a long one are not cached."""


def offset_value(leader_epoch: int, metadata: str, topic_id: UUID | None) -> tuple[bytes, bytes, bytes]:
    """The newest value of an offset in parts: before the offset, from there to the commit timestamp, and after it."""
    middle = bytearray(INT32.pack(leader_epoch))
    write_compact_string(middle, metadata)
    return VALUE_PREFIX, bytes(middle), b"\x00" if topic_id is None else TOPIC_ID_TAG + topic_id.bytes


def encode_offset_commit(record: OffsetCommit) -> tuple[bytes, bytes]:
    """The key and the value; a record with an expire timestamp is written in version 1."""
    key_of = _cached_offset_key if len(record.group_id) <= _KNOWN_GROUP_ID_MAX else offset_key
    key = key_of(record.group_id, record.topic, record.partition)
    if record.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return key, value_encoder("OffsetCommit", EXPIRING_VERSION)(record)
    topic_id = record.topic_id
    if record.metadata:
        front, middle, back = offset_value(record.leader_epoch, record.metadata, topic_id)
        return key, front + INT64.pack(record.offset) + middle + INT64.pack(record.commit_timestamp_ms) + back
    committed_ms = record.commit_timestamp_ms
    if topic_id is None:
        return key, _pack_plain(NEWEST_VERSION, record.offset, record.leader_epoch, 1, committed_ms, 0)
    return key, _pack_identified(
        NEWEST_VERSION, record.offset, record.leader_epoch, 1, committed_ms, TOPIC_ID_TAG, topic_id.bytes
    )


def decode_offset_commit(key: bytes, value: bytes) -> OffsetCommit | None:
    """
    An OffsetCommit of the newest version, with short metadata and no tagged field but the topic id; None for any other record.

    Raises:
        IndexError, struct.error, UnicodeDecodeError: the record is damaged; the compiled decoder decides about it.
    """
    topic_at = 4 + INT16.unpack_from(key, 2)[0]
    partition_at = topic_at + 2 + INT16.unpack_from(key, topic_at)[0]
    tail_at = _HEAD_BYTES + value[_HEAD_BYTES]
    if not 4 <= topic_at < partition_at - 1 or not _METADATA_AT <= tail_at < 142:
        return None
    commit_timestamp_ms, tags = _TAIL.unpack_from(value, tail_at)
    topic_id = None
    if tags:
        raw_at = tail_at + _TOPIC_ID_AT
        raw = value[raw_at : raw_at + _TOPIC_ID_BYTES]
        if value[raw_at - 3 : raw_at] != TOPIC_ID_TAG or len(raw) != _TOPIC_ID_BYTES:
            return None
        topic_id = topic_id_of(raw)
    _, offset, leader_epoch = _HEAD.unpack_from(value)
    (partition,) = INT32.unpack_from(key, partition_at)
    group_id, topic = key[4:topic_at].decode(), key[topic_at + 2 : partition_at].decode()
    metadata = value[_METADATA_AT:tail_at].decode()
    return OffsetCommit(
        group_id,
        topic,
        partition,
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        NO_TIMESTAMP_MS,
        topic_id,
    )
