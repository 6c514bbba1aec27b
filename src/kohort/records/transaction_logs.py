"""
The fast path of TransactionLog, three of which are written for each transaction.

Each function gives what the compiled codec gives, in a fraction of its time; tests/records/test_transaction_logs.py runs both
on generated records.

Source: Apache Kafka 4.4.0, TransactionLogKey.json, TransactionLogValue.json.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.records.values import TransactionLog, TransactionLogPartitionsSchema
from kohort.wire.primitives import INT32, read_uvarint, write_compact_string, write_string, write_uvarint

KEY_PREFIX: Final = b"\x00\x00"
VALUE_PREFIX: Final = b"\x00\x01"
"""The newest version of the value."""

NO_PRODUCER_ID: Final = -1

_HEAD: Final = Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, status."""
_NEWEST: Final = 1
_ONE_BYTE_MAX: Final = 127
_KNOWN_ID_MAX: Final = 128

_TIMES: Final = Struct(">qq")
_TIMES_AND_COUNT: Final = Struct(">qqb")
"""The times of the last update and of the start, and the number of tags."""
_ID_TAG: Final = Struct(">Hq")
_VERSION_TAG: Final = Struct(">Hh")
_PREVIOUS_ID: Final = 0x0008
"""Tag 0, the previous producer id: eight bytes. Kafka 4.4.0 writes it in each record, also if the id was never another."""
_NEXT_ID: Final = 0x0108
"""Tag 1, the next producer id."""
_CLIENT_VERSION: Final = 0x0202
"""Tag 2, the client's transaction version: two bytes."""
_KNOWN_TAG_MAX: Final = 2
"""Kafka has a name for tag 3 as well, and writes it never."""
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


@lru_cache(maxsize=16_384)
def _only_partition(partitions: frozenset[TopicPartition]) -> bytes:
    """The array of topics of a transaction in one partition. The key is the set, which keeps its hash."""
    (partition,) = partitions
    return _ONE + _cached_topic(partition.topic) + _ONE + _INDEX_END.pack(partition.partition, 0)


@lru_cache(maxsize=64)
def _usual_value(section_bytes: int) -> Callable[..., bytes]:
    """Packs a value up to its first tag, the previous producer id, around the array of topics: one call instead of three."""
    return Struct(f"{_HEAD.format}{section_bytes}s{_TIMES_AND_COUNT.format[1:]}{_ID_TAG.format[1:]}").pack


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
    previous_producer_id: int = NO_PRODUCER_ID,
    next_producer_id: int = NO_PRODUCER_ID,
    other_tags: tuple[bytes, ...] = (),
) -> tuple[bytes, bytes]:
    """
    The key and the value, in version 1, of a transactional id: as the compiled codec, without a `TransactionLog`.

    Args:
        other_tags: see the function of this name.
    """
    if partitions is None:
        section = _NULL_PARTITIONS
    elif not partitions:
        section = _NO_PARTITIONS
    elif len(partitions) == 1:
        section = _only_partition(partitions)
    else:
        section = _several(partitions)
    key = _cached_key(transactional_id) if len(transactional_id) <= _KNOWN_ID_MAX else _key(transactional_id)
    if previous_producer_id != NO_PRODUCER_ID == next_producer_id and not other_tags:
        usual = _usual_value(len(section))(
            _NEWEST,
            producer_id,
            producer_epoch,
            timeout_ms,
            status,
            section,
            updated_ms,
            started_ms,
            2 if client_version else 1,
            _PREVIOUS_ID,
            previous_producer_id,
        )
        return key, usual + _VERSION_TAG.pack(_CLIENT_VERSION, client_version) if client_version else usual
    value: bytes = _HEAD.pack(_NEWEST, producer_id, producer_epoch, timeout_ms, status)
    count, tags = 0, b""
    if previous_producer_id != NO_PRODUCER_ID:
        count, tags = 1, _ID_TAG.pack(_PREVIOUS_ID, previous_producer_id)
    if next_producer_id != NO_PRODUCER_ID:
        count, tags = count + 1, tags + _ID_TAG.pack(_NEXT_ID, next_producer_id)
    if client_version:
        count, tags = count + 1, tags + _VERSION_TAG.pack(_CLIENT_VERSION, client_version)
    if other_tags:
        counted = bytearray(_TIMES.pack(updated_ms, started_ms))
        write_uvarint(counted, count + len(other_tags))
        return key, value + section + counted + tags + b"".join(other_tags)
    return key, value + section + _TIMES_AND_COUNT.pack(updated_ms, started_ms, count) + tags


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
    A TransactionLog of version 1 with short arrays and names, and only tags that Kafka writes; None for any other record.

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
    updated, started, tags = _TIMES_AND_COUNT.unpack_from(value, at)
    at += _TIMES_AND_COUNT.size
    previous, following, version, last = NO_PRODUCER_ID, NO_PRODUCER_ID, 0, -1
    for _ in range(tags):
        tag, number = _VERSION_TAG.unpack_from(value, at)
        if tag <= last:
            return None
        if tag == _CLIENT_VERSION:
            version = number
            at += _VERSION_TAG.size
        elif tag == _PREVIOUS_ID:
            _, previous = _ID_TAG.unpack_from(value, at)
            at += _ID_TAG.size
        elif tag == _NEXT_ID:
            _, following = _ID_TAG.unpack_from(value, at)
            at += _ID_TAG.size
        else:
            return None
        last = tag
    if tags < 0 or len(value) != at:
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
        previous,
        following,
        version,
    )


def other_tags(value: bytes) -> tuple[bytes, ...]:
    """
    The tagged fields of a value that `encode_transaction` does not know, each whole. The compiled decoder has read the value.

    A later release of Kafka wrote them. Kafka itself drops such fields when it writes the next record of the transactional id.
    """
    if value[:2] != VALUE_PREFIX:
        return ()
    topics, at = read_uvarint(value, _HEAD.size)
    for _ in range(topics - 1):
        size, at = read_uvarint(value, at)
        indexes, at = read_uvarint(value, at + size - 1)
        at = _behind_tags(value, at + 4 * (indexes - 1), [])
    found: list[bytes] = []
    _behind_tags(value, at + _TIMES.size, found)
    return tuple(found)


def _behind_tags(value: bytes, at: int, found: list[bytes]) -> int:
    """The position behind a section of tagged fields, of which the unknown ones are added to a list."""
    count, at = read_uvarint(value, at)
    for _ in range(count):
        begin = at
        tag, at = read_uvarint(value, at)
        size, at = read_uvarint(value, at)
        at += size
        if tag > _KNOWN_TAG_MAX:
            found.append(value[begin:at])
    return at
