"""
Columnar load of committed offsets: thousands of records are read as numpy columns and put into the tables of their groups.

This is speed code beside `kohort.records`; tests/group/test_bulk.py loads the same logs both ways. Only a committed offset of a
known version in its usual form is read here. The decoder of single records takes every other record: tombstones, groups, other
types, unknown tagged fields, damage.

Source: Apache Kafka 4.2.1, OffsetCommitKey.json, OffsetCommitValue.json.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import islice, pairwise, repeat
from uuid import UUID

import numpy as np

from kohort.group.offsets.offsets import CommittedOffset, GroupOffsets, Partition
from kohort.machine.bulk import RawRecords
from kohort.records.offset_columns import (
    KEY_BYTES_MIN,
    KEY_TYPE,
    LEGACY_KEY_TYPE,
    TOPIC_ID_BYTES,
    OffsetKeys,
    OffsetValues,
    read_keys,
    read_values,
)
from kohort.records.offset_commits import topic_id_of
from kohort.wire.columnar.vectors import Bools, Ints, big_endian, first_equal

ROWS_AT_ONCE = 4096
"""Rows whose columns are read together."""
WRITTEN_AT_ONCE = 1024
"""Rows between two yields when their values are made; they take half a millisecond."""


def replay_offsets(
    table_of: Callable[[str], GroupOffsets], records: RawRecords, replay_one: Callable[[int], None]
) -> Generator[None, None, None]:
    """
    The `kohort.machine.shard.Shard.replay_bulk` of the group coordinator.

    Args:
        table_of: returns the offsets of a group, which is created if it is missing, to be filled.
    """
    tables = _Tables(table_of)
    for low in range(0, len(records), ROWS_AT_ONCE):
        some = records.take(slice(low, low + ROWS_AT_ONCE))
        plain, keys, values = _read(some)
        if plain.all():
            yield
            yield from _write(tables, some, keys, values)
        else:
            places = np.flatnonzero(plain)
            rows = _rows(some.take(places), keys.take(places), values.take(places)) if len(places) else iter(())
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


def _write(
    tables: "_Tables", records: RawRecords, keys: OffsetKeys, values: OffsetValues
) -> Generator[None, None, None]:
    """Put offsets into their tables, group by group."""
    like = first_equal(records.data, keys.group_at, keys.group_bytes)
    order = np.argsort(like, kind="stable")
    like, records, keys = like[order], records.take(order), keys.take(order)
    bounds = [0, *(np.flatnonzero(np.diff(like)) + 1).tolist(), len(like)]
    partitions, offsets = _partitions(records, keys), _values(records, values.take(order))
    yielded = 0
    for low, high in pairwise(bounds):
        if high - yielded > WRITTEN_AT_ONCE:
            yielded = low
            yield
        start = int(keys.group_at[low])
        table = tables[records.raw[start : start + int(keys.group_bytes[low])]]
        table.update(zip(islice(partitions, high - low), islice(offsets, high - low), strict=True))
    yield


class _Tables(dict[bytes, GroupOffsets]):
    """The offsets of groups by group id in bytes."""

    def __init__(self, table_of: Callable[[str], GroupOffsets]) -> None:
        self._table_of = table_of

    def __missing__(self, name: bytes) -> GroupOffsets:
        table = self[name] = self._table_of(name.decode("utf-8", "replace"))
        return table


# Reading columns


def _read(records: RawRecords) -> tuple[Bools, OffsetKeys, OffsetValues]:
    """Which records are offsets in their usual form, and their keys and values."""
    data, size = records.data, records.key_bytes
    key_type = big_endian(data, records.key_at, "i2")
    keys = read_keys(data, records.key_at, size)
    values = read_values(data, records.value_at, records.value_bytes, walks_tags=False)
    plain = keys.is_whole & values.is_whole & (keys.group_bytes + keys.topic_bytes + KEY_BYTES_MIN == size)
    # Under the key of Kafka 0.8 there is only version 0.
    plain &= (key_type == KEY_TYPE) | ((key_type == LEGACY_KEY_TYPE) & (values.version == 0))
    return plain, keys, values


# Making values


def _rows(
    records: RawRecords, keys: OffsetKeys, values: OffsetValues
) -> Iterator[tuple[bytes, Partition, CommittedOffset]]:
    """The group id of each record in bytes, its partition, and the committed offset."""
    begin, end = keys.group_at.tolist(), (keys.group_at + keys.group_bytes).tolist()
    names = [records.raw[low:high] for low, high in zip(begin, end, strict=True)]
    return zip(names, _partitions(records, keys), _values(records, values), strict=False)


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


def _partitions(records: RawRecords, keys: OffsetKeys) -> Iterator[Partition]:
    topics = _strings(records, keys.topic_at, keys.topic_bytes)
    return zip(topics, big_endian(records.data, keys.partition_at, "i4").tolist(), strict=True)


def _values(records: RawRecords, columns: OffsetValues) -> Iterator[CommittedOffset]:
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
    return (None if place < 0 else topic_id_of(raw[place : place + TOPIC_ID_BYTES]) for place in at.tolist())
