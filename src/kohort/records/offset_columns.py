"""
Keys and values of OffsetCommit records as numpy columns: fields, or their positions. Needs numpy.

This is speed code beside `kohort.records.codecs`, for loads of the group coordinator and for the pipeline; tests read the same
records both ways.

Key (types 0 and 1): group, topic, partition. Value: a version, then

| version | fields                                                                       |
|---------|------------------------------------------------------------------------------|
| 0, 2    | offset, metadata, commit timestamp                                           |
| 1       | offset, metadata, commit timestamp, expire timestamp                         |
| 3       | offset, leader epoch, metadata, commit timestamp                             |
| 4       | as 3 with a compact string; tagged field 0: topic id (Kafka 4.1 and later)   |

Kafka writes version 4, and version 1 if the request stated a retention time. 4.4.0 writes the topic id in each record, earlier
releases that of a commit by topic id.

Source: Apache Kafka 4.4.0, OffsetCommitKey.json, OffsetCommitValue.json; KIP-211, KIP-320.
"""

from typing import NamedTuple

import numpy as np

from kohort.model.limits import SECTION_TAGS_MAX
from kohort.records.offset_commits import EXPIRING_VERSION, NEWEST_VERSION, TOPIC_ID_TAG
from kohort.wire.columnar.vectors import Bools, Bytes, Ints, big_endian, unsigned_varint

ABSENT = -1
LEGACY_KEY_TYPE = 0
KEY_TYPE = 1
KEY_TYPES = (LEGACY_KEY_TYPE, KEY_TYPE)
KEY_BYTES_MIN = 10
"""Type, two empty strings with their lengths, partition."""
TOPIC_ID_BYTES = 16
_LEADER_EPOCH_SINCE = 3
_TOPIC_ID_TAG = int.from_bytes(TOPIC_ID_TAG)


class OffsetKeys(NamedTuple):
    """Keys. What is not `is_whole` has positions that can be read."""

    group_at: Ints
    group_bytes: Ints
    topic_at: Ints
    topic_bytes: Ints
    partition_at: Ints
    is_whole: Bools

    def take(self, chosen: Ints | Bools | slice) -> "OffsetKeys":
        return OffsetKeys._make(column[chosen] for column in self)


class OffsetValues(NamedTuple):
    """Values. `ABSENT` stands for a field that a value lacks, and for the version of a tombstone or of two bytes too few."""

    version: Ints
    offset: Ints
    leader_epoch: Ints
    metadata_at: Ints
    metadata_bytes: Ints
    commit_timestamp_ms: Ints
    expire_timestamp_ms: Ints
    topic_id_at: Ints
    is_whole: Bools

    def take(self, chosen: Ints | Bools | slice) -> "OffsetValues":
        return OffsetValues._make(column[chosen] for column in self)


def read_keys(data: Bytes, at: Ints, size: Ints) -> OffsetKeys:
    """Read the keys at these positions, whose types are known."""
    whole = size >= KEY_BYTES_MIN
    group_bytes = big_endian(data, at + 2, "i2").astype(np.int64)
    whole &= (group_bytes >= 0) & (group_bytes + KEY_BYTES_MIN <= size)
    topic_at = at + 6 + np.where(whole, group_bytes, 0)
    topic_bytes = big_endian(data, topic_at - 2, "i2").astype(np.int64)
    whole &= (topic_bytes >= 0) & (group_bytes + topic_bytes + KEY_BYTES_MIN <= size)
    partition_at = topic_at + np.where(whole, topic_bytes, 0)
    return OffsetKeys(at + 4, group_bytes, topic_at, topic_bytes, partition_at, whole)


def read_values(data: Bytes, at: Ints, size: Ints, *, walks_tags: bool) -> OffsetValues:
    """
    Read the values at these positions.

    Args:
        walks_tags: read tagged fields that later versions add, one value at a time; else such values are not whole.
    """
    version = np.where(size >= 2, big_endian(data, at, "i2").astype(np.int64), ABSENT)
    first = int(version[0]) if len(version) else NEWEST_VERSION
    if 0 <= first <= NEWEST_VERSION and (version == first).all():
        return _read_version(first, data, at, size, walks_tags=walks_tags)
    count = len(at)
    offset, leader_epoch, committed_ms, expires_ms, topic_id_at = np.full((5, count), ABSENT, np.int64)
    metadata_bytes, is_whole = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    values = OffsetValues(
        version, offset, leader_epoch, at.copy(), metadata_bytes, committed_ms, expires_ms, topic_id_at, is_whole
    )
    for each in range(NEWEST_VERSION + 1):
        rows = np.flatnonzero(version == each)
        if rows.size:
            found = _read_version(each, data, at[rows], size[rows], walks_tags=walks_tags)
            for column, part in zip(values, found, strict=True):
                column[rows] = part
    return values


def _read_version(version: int, data: Bytes, at: Ints, size: Ints, *, walks_tags: bool) -> OffsetValues:
    """Read values of one version."""
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
    length, text_at = np.where(whole, length, 0), np.where(whole, text_at, at)
    after = text_at + length
    nothing = np.full(len(at), ABSENT, np.int64)
    topic_id_at = nothing
    if version == NEWEST_VERSION:
        topic_id_at, has_tags = _topic_ids(data, after + 8, end, walked=whole if walks_tags else None)
        whole &= has_tags
    return OffsetValues(
        version=np.full(len(at), version, np.int64),
        offset=big_endian(data, at + 2, "i8"),
        leader_epoch=big_endian(data, at + 10, "i4") if version >= _LEADER_EPOCH_SINCE else nothing,
        metadata_at=text_at,
        metadata_bytes=length,
        commit_timestamp_ms=big_endian(data, after, "i8"),
        expire_timestamp_ms=big_endian(data, after + 8, "i8") if version == EXPIRING_VERSION else nothing,
        topic_id_at=topic_id_at,
        is_whole=whole,
    )


def _topic_ids(data: Bytes, at: Ints, end: Ints, *, walked: Bools | None) -> tuple[Ints, Bools]:
    """
    The position of the topic id among the tagged fields, and whether these could be read.

    Args:
        walked: the values whose tagged fields are read one by one if there are others than the topic id.
    """
    found = np.full(len(at), ABSENT, np.int64)
    none = data[at] == 0
    if none.all():
        return found, none
    tag = (data[at].astype(np.int64) << 16) | (data[at + 1].astype(np.int64) << 8) | data[at + 2]
    alone = (tag == _TOPIC_ID_TAG) & (at + 3 + TOPIC_ID_BYTES <= end)
    found[alone] = at[alone] + 3
    good = none | alone
    if walked is not None:
        for row in np.flatnonzero(walked & ~good).tolist():
            place = _walk_tags(data, int(at[row]), int(end[row]))
            if place is not None:
                found[row], good[row] = place, True
    return found, good


def _walk_tags(data: Bytes, at: int, end: int) -> int | None:
    """The position of the topic id among tagged fields, -1 if it is absent; None if they are malformed."""

    def number(at: int) -> tuple[int, int]:
        value, after = unsigned_varint(data, np.array([at]))
        return int(value[0]), int(after[0])

    found = ABSENT
    count, at = number(at)
    if count > SECTION_TAGS_MAX:
        return None
    for _ in range(count):
        if at >= end:
            return None
        tag, at = number(at)
        size, at = number(at)
        if tag == 0 and size == TOPIC_ID_BYTES:
            found = at
        at += size
    return found if at <= end else None
