"""
Columnar load of committed offsets: thousands of records are read as numpy columns and put into the tables of their groups.

This is speed code beside `kohort.records`; tests/group/test_bulk.py loads the same logs both ways. Only a committed offset of a
known version in its usual form is read here. The decoder of single records takes every other record: tombstones, groups, other
types, unknown tagged fields, damage.

Source: Apache Kafka 4.2.1, OffsetCommitKey.json, OffsetCommitValue.json.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import islice, pairwise, repeat
from typing import NamedTuple
from uuid import UUID

import numpy as np

from kohort.group.offsets.offsets import CommittedOffset, GroupOffsets, Partition
from kohort.machine.bulk import RawRecords
from kohort.records.offset_commits import EXPIRING_VERSION, NEWEST_VERSION, TOPIC_ID_TAG
from kohort.wire.columnar.vectors import Bools, Bytes, Ints, big_endian, first_equal, unsigned_varint

ROWS_AT_ONCE = 4096
"""Rows between two yields; they take one or two milliseconds."""

_LEGACY_KEY_TYPE = 0
_KEY_TYPE = 1
_LEADER_EPOCH_SINCE = 3
_KEY_BYTES_MIN = 10
"""Type, two empty strings with their lengths, partition."""
_TOPIC_ID_TAG = int.from_bytes(TOPIC_ID_TAG)


class _Columns(NamedTuple):
    """Fields of some values, or their positions; -1 for a field that a value lacks."""

    offset: Ints
    leader_epoch: Ints
    metadata_at: Ints
    metadata_bytes: Ints
    commit_timestamp_ms: Ints
    expire_timestamp_ms: Ints
    topic_id_at: Ints

    def take(self, chosen: "Ints | slice") -> "_Columns":
        return _Columns(*(column[chosen] for column in self))


def replay_offsets(
    table_of: Callable[[str], GroupOffsets], records: RawRecords, replay_one: Callable[[int], None]
) -> Generator[None, None, None]:
    """
    The `kohort.machine.bulk.BulkShard.replay_bulk` of the group coordinator.

    Args:
        table_of: returns the offsets of a group, which is created if it is missing, to be filled.
    """
    tables = _Tables(table_of)
    for low in range(0, len(records), ROWS_AT_ONCE):
        some = records.take(slice(low, low + ROWS_AT_ONCE))
        plain, topic_at, columns = _read(some)
        if plain.all():
            _write(tables, some, topic_at, columns)
            yield
        else:
            places = np.flatnonzero(plain)
            rows = _rows(some.take(places), topic_at[places], columns.take(places)) if len(places) else iter(())
            yield from _write_among(tables, rows, plain.tolist(), low, replay_one)


def _write_among(
    tables: "_Tables",
    rows: Iterator[tuple[bytes, Partition, CommittedOffset]],
    plain: list[bool],
    low: int,
    replay_one: Callable[[int], None],
) -> Generator[None, None, None]:
    """Put offsets with other records between them into their tables, in the order of the log."""
    for place, is_plain in enumerate(plain, low):
        if is_plain:
            name, partition, offset = next(rows)
            tables[name][partition] = offset
        else:
            replay_one(place)
            # The record may have removed a table.
            tables.clear()
            yield
    yield


def _write(tables: "_Tables", records: RawRecords, topic_at: Ints, columns: "_Columns") -> None:
    """Put offsets into their tables, group by group."""
    like = first_equal(records.data, records.key_at + 4, topic_at - records.key_at - 6)
    order = np.argsort(like, kind="stable")
    like, topic_at = like[order], topic_at[order]
    records, columns = records.take(order), columns.take(order)
    bounds = [0, *(np.flatnonzero(np.diff(like)) + 1).tolist(), len(like)]
    keys, values = _partitions(records, topic_at), _values(records, columns)
    for low, high in pairwise(bounds):
        start = int(records.key_at[low]) + 4
        table = tables[records.raw[start : int(topic_at[low]) - 2]]
        table.update(zip(islice(keys, high - low), islice(values, high - low), strict=True))


class _Tables(dict[bytes, GroupOffsets]):
    """The offsets of groups by group id in bytes."""

    def __init__(self, table_of: Callable[[str], GroupOffsets]) -> None:
        self._table_of = table_of

    def __missing__(self, name: bytes) -> GroupOffsets:
        table = self[name] = self._table_of(name.decode("utf-8", "replace"))
        return table


class _TopicIds(dict[bytes, UUID | None]):
    def __missing__(self, raw: bytes) -> UUID | None:
        topic_id = self[raw] = UUID(bytes=raw) if any(raw) else None
        return topic_id


# Reading columns


def _read(records: RawRecords) -> tuple[Bools, Ints, _Columns]:
    """Which records are offsets in their usual form, the position of the topic in each key, and the values."""
    data, at, size = records.data, records.key_at, records.key_bytes
    key_type = big_endian(data, at, "i2")
    plain = (
        ((key_type == _LEGACY_KEY_TYPE) | (key_type == _KEY_TYPE))
        & (size >= _KEY_BYTES_MIN)
        & (records.value_bytes >= 2)
    )
    group_bytes = big_endian(data, at + 2, "i2").astype(np.int64)
    plain &= (group_bytes >= 0) & (group_bytes + _KEY_BYTES_MIN <= size)
    topic_at = at + 6 + np.where(plain, group_bytes, 0)
    topic_bytes = big_endian(data, topic_at - 2, "i2")
    plain &= (topic_bytes >= 0) & (group_bytes + topic_bytes + _KEY_BYTES_MIN == size)
    version = np.where(plain, big_endian(data, records.value_at, "i2"), -1)
    # Under the key of Kafka 0.8 there is only version 0.
    plain &= (key_type == _KEY_TYPE) | (version == 0)
    first = int(version[0]) if len(version) else NEWEST_VERSION
    if 0 <= first <= NEWEST_VERSION and (version == first).all():
        whole, columns = _read_values(first, data, records.value_at, records.value_bytes)
        return plain & whole, topic_at, columns
    return _read_versions(records, plain, version, topic_at)


def _read_versions(records: RawRecords, plain: Bools, version: Ints, topic_at: Ints) -> tuple[Bools, Ints, _Columns]:
    """As `_read`, for values of several versions, one version at a time."""
    columns = _Columns(*(np.full(len(version), -1, np.int64) for _ in _Columns._fields))
    is_known = np.zeros(len(version), np.bool_)
    for each in range(NEWEST_VERSION + 1):
        rows = np.flatnonzero(version == each)
        if rows.size:
            is_known[rows], found = _read_values(each, records.data, records.value_at[rows], records.value_bytes[rows])
            for column, values in zip(columns, found, strict=True):
                column[rows] = values
    return plain & is_known, topic_at, columns


def _read_values(version: int, data: Bytes, at: Ints, size: Ints) -> tuple[Bools, _Columns]:
    """Values of one version: which are whole, and their columns."""
    end, here = at + size, at + (14 if version >= _LEADER_EPOCH_SINCE else 10)
    whole = end - here >= 9
    here = np.where(whole, here, at)
    if version == NEWEST_VERSION:
        length, text_at = unsigned_varint(data, here)
        length -= 1
    else:
        length, text_at = big_endian(data, here, "i2").astype(np.int64), here + 2
    tail_bytes = 16 if version == EXPIRING_VERSION else 9 if version == NEWEST_VERSION else 8
    whole &= (length >= 0) & (length <= end - text_at - tail_bytes)
    after = np.where(whole, text_at + length, at)
    nothing = np.full(len(at), -1, np.int64)
    topic_id_at = nothing
    if version == NEWEST_VERSION:
        topic_id_at, is_usual = _topic_ids(data, after + 8, end)
        whole &= is_usual
    return whole, _Columns(
        offset=big_endian(data, at + 2, "i8"),
        leader_epoch=big_endian(data, at + 10, "i4") if version >= _LEADER_EPOCH_SINCE else nothing,
        metadata_at=text_at,
        metadata_bytes=np.where(whole, length, 0),
        commit_timestamp_ms=big_endian(data, after, "i8"),
        expire_timestamp_ms=big_endian(data, after + 8, "i8") if version == EXPIRING_VERSION else nothing,
        topic_id_at=topic_id_at,
    )


def _topic_ids(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Bools]:
    """The position of the topic id, -1 for none; and whether there is no other tagged field."""
    none = data[at] == 0
    if none.all():
        return np.full(len(at), -1, np.int64), none
    tag = (data[at].astype(np.int64) << 16) | (data[at + 1].astype(np.int64) << 8) | data[at + 2]
    alone = (tag == _TOPIC_ID_TAG) & (at + 19 <= end)
    return np.where(alone, at + 3, -1), none | alone


# Making values


def _rows(records: RawRecords, topic_at: Ints, columns: _Columns) -> Iterator[tuple[bytes, Partition, CommittedOffset]]:
    """The group id of each record in bytes, its partition, and the committed offset."""
    begin, end = (records.key_at + 4).tolist(), (topic_at - 2).tolist()
    names = [records.raw[low:high] for low, high in zip(begin, end, strict=True)]
    return zip(names, _partitions(records, topic_at), _values(records, columns), strict=False)


def _strings(records: RawRecords, at: Ints, size_bytes: Ints) -> Iterator[str]:
    """Text by position and length; equal texts are nearly always one object."""
    like = first_equal(records.data, at, size_bytes)
    distinct = np.flatnonzero(like == np.arange(len(like)))
    texts = np.empty(len(like), object)
    raw = records.raw
    texts[distinct] = [
        raw[low : low + size].decode("utf-8", "replace")
        for low, size in zip(at[distinct].tolist(), size_bytes[distinct].tolist(), strict=True)
    ]
    return iter(texts[like].tolist())


def _integers(column: Ints) -> Iterator[int]:
    """As Python integers; equal neighbours are one object, because all commits of a request have one timestamp."""
    changes = np.flatnonzero(np.diff(column)) + 1
    if 2 * len(changes) > len(column):
        return iter(column.tolist())
    starts = np.concatenate(([0], changes))
    distinct = np.array(column[starts].tolist(), object)
    return iter(np.repeat(distinct, np.diff(np.append(starts, len(column)))).tolist())


def _partitions(records: RawRecords, topic_at: Ints) -> Iterator[Partition]:
    partition_at = records.key_at + records.key_bytes - 4
    topics = _strings(records, topic_at, partition_at - topic_at)
    return zip(topics, big_endian(records.data, partition_at, "i4").tolist(), strict=True)


def _values(records: RawRecords, columns: _Columns) -> Iterator[CommittedOffset]:
    has_metadata = bool(columns.metadata_bytes.any())
    return map(
        CommittedOffset,
        columns.offset.tolist(),
        _integers(columns.leader_epoch),
        _strings(records, columns.metadata_at, columns.metadata_bytes) if has_metadata else repeat(""),
        _integers(columns.commit_timestamp_ms),
        _integers(columns.expire_timestamp_ms),
        _identified(records.raw, columns.topic_id_at),
        records.offsets.tolist(),
    )


def _identified(raw: bytes, at: Ints) -> Iterator[UUID | None]:
    if (at < 0).all():
        return repeat(None)
    ids = _TopicIds()
    return (None if place < 0 else ids[raw[place : place + 16]] for place in at.tolist())
