"""
OffsetCommit records in columns. This is speed code beside `kohort.records`; a test reads the same records both ways.

Key (types 0 and 1): group, topic, partition. Value: a version, then

| version | fields                                                                       |
|---------|------------------------------------------------------------------------------|
| 0, 2    | offset, metadata, commit timestamp                                           |
| 1       | offset, metadata, commit timestamp, expire timestamp                         |
| 3       | offset, leader epoch, metadata, commit timestamp                             |
| 4       | as 3 with a compact string; tagged field 0: topic id (Kafka 4.1 and later)   |

Kafka 4.2.1 writes version 4, and version 1 if the request stated a retention time.

Source: Apache Kafka 4.2.1, OffsetCommitKey.json, OffsetCommitValue.json; KIP-211, KIP-320.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kohort.model.ids import uuid_text
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.vectors import fixed_bytes, integers, strings
from kohort.wire.columnar.vectors import Bools, Bytes, Ints, big_endian, unsigned_varint

KEY_TYPES = (0, 1)
VERSION_MAX = 4
_FLEXIBLE = 4
_EXPIRING = 1
_EPOCHS_SINCE = 3
_TOPIC_ID_TAG = 0
_TOPIC_ID_BYTES = 16
_ABSENT = -1

MALFORMED_KEY = "malformed OffsetCommit key"
MALFORMED_VALUE = "malformed OffsetCommit value"
UNKNOWN_VERSION = "OffsetCommit value of an unknown version"


@dataclass(frozen=True, slots=True)
class _Keys:
    group_at: Ints
    group_bytes: Ints
    topic_at: Ints
    topic_bytes: Ints
    partition: npt.NDArray[Any]
    valid: Bools


@dataclass(frozen=True, slots=True)
class _Values:
    """Fields of values, -1 (or an empty string) where there is no value; `problem` is 0 or an index into `_PROBLEMS`."""

    version: Ints
    offset: Ints
    leader_epoch: Ints
    metadata_at: Ints
    metadata_bytes: Ints
    commit_timestamp_ms: Ints
    expire_timestamp_ms: Ints
    topic_id_at: Ints
    problem: Ints


_PROBLEMS = ("", MALFORMED_KEY, MALFORMED_VALUE, UNKNOWN_VERSION)


def decode(records: Records) -> tuple[Records, dict[str, Callable[[], Any]], list[Corruption]]:
    """
    The columns of OffsetCommit records, each made when it is called: a string column that is not asked for is not built.

    Args:
        records: with keys of types 0 and 1 only.

    Returns:
        The records that could be read, their columns by name, and the damage.
    """
    keys, values = _keys(records), _values(records)
    problem = np.where(keys.valid, values.problem, _PROBLEMS.index(MALFORMED_KEY))
    damage = [records.damage_of(int(row), _PROBLEMS[problem[row]]) for row in np.flatnonzero(problem)]
    good = problem == 0
    if damage:
        records = records.select(good)
        keys = _Keys(*(getattr(keys, name)[good] for name in _Keys.__slots__))
        values = _Values(*(getattr(values, name)[good] for name in _Values.__slots__))
    return records, _columns(records.window.data, keys, values), damage


def _keys(records: Records) -> _Keys:
    data, at, size = records.window.data, records.key_at, records.key_bytes
    valid = size >= 10
    group_bytes = big_endian(data, at + 2, "i2").astype(np.int64)
    valid &= (group_bytes >= 0) & (group_bytes + 10 <= size)
    topic_at = at + 6 + np.where(valid, group_bytes, 0)
    topic_bytes = big_endian(data, topic_at - 2, "i2").astype(np.int64)
    valid &= (topic_bytes >= 0) & (group_bytes + topic_bytes + 10 <= size)
    partition_at = topic_at + np.where(valid, topic_bytes, 0)
    return _Keys(at + 4, group_bytes, topic_at, topic_bytes, big_endian(data, partition_at, "i4"), valid)


def _values(records: Records) -> _Values:
    count, data = len(records), records.window.data
    present = records.value_bytes >= 0
    version = np.where(present, big_endian(data, records.value_at, "i2").astype(np.int64), _ABSENT)
    absent = np.full(count, _ABSENT, np.int64)
    values = _Values(
        version, absent.copy(), absent.copy(), records.value_at.copy(), np.zeros(count, np.int64), absent.copy(),
        absent.copy(), absent.copy(), np.zeros(count, np.int64),
    )  # fmt: skip
    unknown = present & ((records.value_bytes < 2) | (version < 0) | (version > VERSION_MAX))
    values.problem[unknown] = _PROBLEMS.index(UNKNOWN_VERSION)
    for one in np.flatnonzero(np.bincount(version[present & ~unknown])).tolist():
        rows = np.flatnonzero(present & ~unknown & (version == one))
        _read_values(one, data, rows, records, values)
    return values


def _read_values(version: int, data: Bytes, rows: Ints, records: Records, values: _Values) -> None:
    """Fill in the values of one version; `rows` are the records that have it."""
    at = records.value_at[rows]
    end = at + records.value_bytes[rows]
    epoch_bytes = 4 if version >= _EPOCHS_SINCE else 0
    here = at + 10 + epoch_bytes
    shortest = 10 + epoch_bytes + 2 + 8
    good = end - at >= shortest
    here = np.where(good, here, at)
    if version >= _FLEXIBLE:
        length, text_at = unsigned_varint(data, here)
        length -= 1
    else:
        length, text_at = big_endian(data, here, "i2").astype(np.int64), here + 2
    tail_bytes = 16 if version == _EXPIRING else 8
    good &= (length >= 0) & (length <= end - text_at - tail_bytes)
    length, text_at = np.where(good, length, 0), np.where(good, text_at, at)
    after = text_at + length
    values.offset[rows] = big_endian(data, at + 2, "i8")
    if epoch_bytes:
        values.leader_epoch[rows] = big_endian(data, np.where(good, at + 10, at), "i4")
    values.metadata_at[rows], values.metadata_bytes[rows] = text_at, length
    values.commit_timestamp_ms[rows] = big_endian(data, after, "i8")
    if version == _EXPIRING:
        values.expire_timestamp_ms[rows] = big_endian(data, np.where(good, after + 8, at), "i8")
    if version >= _FLEXIBLE:
        good &= _read_tags(data, rows, np.where(good, after + 8, at), np.where(good, end, at), good, values)
    values.problem[rows[~good]] = _PROBLEMS.index(MALFORMED_VALUE)


def _read_tags(data: Bytes, rows: Ints, at: Ints, end: Ints, readable: Bools, values: _Values) -> Bools:
    """Tagged fields: none, the topic id alone, or (one value at a time) fields that a later version adds."""
    count, here = unsigned_varint(data, at)
    good = readable & (here <= end)
    tag, size = data[here], data[here + 1]
    alone = good & (count == 1) & (tag == _TOPIC_ID_TAG) & (size == _TOPIC_ID_BYTES) & (here + 2 + 16 <= end)
    values.topic_id_at[rows[alone]] = here[alone] + 2
    for row in np.flatnonzero(good & (count > 0) & ~alone).tolist():
        topic_id_at = _walk_tags(data, int(here[row]), int(count[row]), int(end[row]))
        if topic_id_at is None:
            good[row] = False
        else:
            values.topic_id_at[rows[row]] = topic_id_at
    return good


def _walk_tags(data: Bytes, at: int, count: int, end: int) -> int | None:
    """The position of the topic id among tagged fields, -1 if it is absent; None if they are malformed."""
    found = _ABSENT
    for _ in range(count):
        if at >= end:
            return None
        (tag,), (at,) = (part.tolist() for part in unsigned_varint(data, np.array([at])))
        (size,), (at,) = (part.tolist() for part in unsigned_varint(data, np.array([at])))
        if not 0 <= size <= end - at:
            return None
        if tag == _TOPIC_ID_TAG and size == _TOPIC_ID_BYTES:
            found = at
        at += size
    return found


def _columns(data: Bytes, keys: _Keys, values: _Values) -> dict[str, Callable[[], Any]]:
    live = values.version != _ABSENT
    return {
        "group": lambda: strings(data, keys.group_at, keys.group_bytes),
        "topic": lambda: strings(data, keys.topic_at, keys.topic_bytes),
        "partition": lambda: integers(keys.partition, pa.int32()),
        "tombstone": lambda: pa.array(~live),
        "value_version": lambda: integers(values.version, pa.int16(), live),
        "offset": lambda: integers(values.offset, pa.int64(), live),
        "leader_epoch": lambda: integers(values.leader_epoch, pa.int32(), live),
        "metadata": lambda: strings(data, values.metadata_at, values.metadata_bytes, live),
        "commit_timestamp_ms": lambda: integers(values.commit_timestamp_ms, pa.int64(), live),
        "expire_timestamp_ms": lambda: _expiry(values),
        "topic_id": lambda: _topic_ids(data, values.topic_id_at),
    }


def _expiry(values: _Values) -> pa.Array:
    """Null where the version has no such field; -1 stays -1."""
    return integers(values.expire_timestamp_ms, pa.int64(), values.version == _EXPIRING)


def _topic_ids(data: Bytes, at: Ints) -> pa.Array:
    """Topic ids as Kafka prints them; null where absent or zero."""
    known = at != _ABSENT
    if not known.any():
        return pa.nulls(len(at), pa.string())
    distinct = fixed_bytes(data, np.where(known, at, 0), _TOPIC_ID_BYTES).dictionary_encode()
    names = [uuid_text(UUID(bytes=raw)) for raw in distinct.dictionary.to_pylist()]
    is_zero = np.array([not any(raw) for raw in distinct.dictionary.to_pylist()])
    codes = distinct.indices.to_numpy(zero_copy_only=False)
    return pa.array(names, type=pa.string()).take(pa.array(codes, mask=~known | is_zero[codes]))
