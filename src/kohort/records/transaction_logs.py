"""
The fast path of TransactionLog, three of which are written for each transaction.

Each function gives what the compiled codec gives, in a fraction of its time; tests/records/test_transaction_logs.py runs both
on generated records.

Source: Apache Kafka 4.2.1, TransactionLogKey.json, TransactionLogValue.json.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.records.values import TransactionLog, TransactionLogPartitionsSchema
from kohort.wire.primitives import INT16, INT32, write_compact_string, write_string, write_uvarint

KEY_PREFIX: Final = b"\x00\x00"
VALUE_PREFIX: Final = b"\x00\x01"
"""The newest version of the value."""

NO_PRODUCER_ID: Final = -1

_HEAD: Final = Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, status."""
_TIMES: Final = Struct(">qq")
"""The times of the last update and of the start."""
_NEWEST: Final = 1
_ONE_BYTE_MAX: Final = 127
_KNOWN_ID_MAX: Final = 128

_VERSION_TAG: Final = b"\x02\x02"
"""Tag 2, the client's transaction version: two bytes."""
_END: Final = Struct(">qqb")
"""The times, and no tags."""
_END_WITH_VERSION: Final = Struct(">qqbhh")
"""The times, the number of tags, and the tag of the version with its value."""
_VERSION_TAG_NUMBER: Final = 0x0202
_NULL_PARTITIONS: Final = b"\x00"
_NO_PARTITIONS: Final = b"\x01"
_ONE: Final = b"\x02"
"""The length of an array with one element."""
_INDEX_END: Final = Struct(">ib")
"""The index of a partition, and no tags."""


def _key(transactional_id: str) -> bytes:
    key = bytearray(KEY_PREFIX)
    write_string(key, transactional_id)
    return bytes(key)


_cached_key: Final = lru_cache(maxsize=16_384)(_key)
"""Every transaction repeats the key of its id. An id may have 32 kB, so long ones are not cached."""


@lru_cache(maxsize=4_096)
def _cached_topic(topic: str) -> bytes:
    return _topic(topic)


def _topic(topic: str) -> bytes:
    text = bytearray()
    write_compact_string(text, topic)
    return bytes(text)


def encode_transaction(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: frozenset[TopicPartition] | None,
    updated_ms: int,
    started_ms: int,
    client_version: int,
) -> tuple[bytes, bytes]:
    """
    The key and the value, in version 1, of a transactional id whose producer id is not rotated: as the compiled codec, without
    a `TransactionLog`.
    """
    if partitions is None:
        section = _NULL_PARTITIONS
    elif not partitions:
        section = _NO_PARTITIONS
    elif len(partitions) == 1:
        topic, index = next(iter(partitions))
        section = _ONE + _cached_topic(topic) + _ONE + _INDEX_END.pack(index, 0)
    else:
        section = _several(partitions)
    value: bytes = _HEAD.pack(_NEWEST, producer_id, producer_epoch, timeout_ms, status)
    if client_version:
        end: bytes = _END_WITH_VERSION.pack(updated_ms, started_ms, 1, _VERSION_TAG_NUMBER, client_version)
    else:
        end = _END.pack(updated_ms, started_ms, 0)
    key = _cached_key(transactional_id) if len(transactional_id) <= _KNOWN_ID_MAX else _key(transactional_id)
    return key, value + section + end


def _several(partitions: frozenset[TopicPartition]) -> bytes:
    """The array of topics, in their order, each with its partitions in their order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    section = bytearray()
    write_uvarint(section, len(topics) + 1)
    for topic, indexes in topics.items():
        section += _cached_topic(topic)
        write_uvarint(section, len(indexes) + 1)
        for index in indexes:
            section += INT32.pack(index)
        section.append(0)
    return bytes(section)


def decode_transaction_log(key: bytes, value: bytes) -> TransactionLog | None:
    """
    A TransactionLog of version 1 with short arrays and names, and without tags except the client's version; None for any other
    record.

    Raises:
        IndexError, struct.error, UnicodeDecodeError: the record is damaged; the compiled decoder decides about it.
    """
    if value[:2] != VALUE_PREFIX or key[:2] != KEY_PREFIX or len(key) != 4 + (key[2] << 8 | key[3]) or key[2] & 0x80:
        return None
    _, producer_id, producer_epoch, timeout_ms, status = _HEAD.unpack_from(value)
    at = _HEAD.size
    count = value[at]
    at += 1
    partitions: tuple[TransactionLogPartitionsSchema, ...] | None = None
    if count:
        if count > _ONE_BYTE_MAX:
            return None
        found = []
        for _ in range(count - 1):
            size = value[at]
            if not 0 < size <= _ONE_BYTE_MAX:
                return None
            topic = value[at + 1 : at + size].decode()
            at += size
            indexes = value[at]
            if not 0 < indexes <= _ONE_BYTE_MAX:
                return None
            at += 1
            end = at + 4 * (indexes - 1)
            if value[end] != 0:
                return None
            ids = tuple([INT32.unpack_from(value, place)[0] for place in range(at, end, 4)])
            found.append(TransactionLogPartitionsSchema(topic, ids))
            at = end + 1
        partitions = tuple(found)
    updated, started = _TIMES.unpack_from(value, at)
    at += _TIMES.size
    version = 0
    tags = value[at]
    if tags:
        if tags != 1 or value[at + 1 : at + 3] != _VERSION_TAG or len(value) != at + 5:
            return None
        version = INT16.unpack_from(value, at + 3)[0]
    elif len(value) != at + 1:
        return None
    return TransactionLog(
        key[4:].decode(),
        producer_id,
        producer_epoch,
        timeout_ms,
        status,
        partitions,
        updated,
        started,
        NO_PRODUCER_ID,
        NO_PRODUCER_ID,
        version,
    )
