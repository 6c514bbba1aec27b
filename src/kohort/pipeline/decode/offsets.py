"""OffsetCommit records as columns of Arrow."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from kohort.model.ids import uuid_text
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.vectors import fixed_bytes, integers, strings
from kohort.records.offset_columns import ABSENT, TOPIC_ID_BYTES, OffsetKeys, OffsetValues, read_keys, read_values
from kohort.records.offset_commits import EXPIRING_VERSION, NEWEST_VERSION
from kohort.wire.columnar.vectors import Bytes, Ints, big_endian

MALFORMED_KEY = "malformed OffsetCommit key"
MALFORMED_VALUE = "malformed OffsetCommit value"
UNKNOWN_VERSION = "OffsetCommit value of an unknown version"


def decode(records: Records) -> tuple[Records, dict[str, Callable[[], Any]], list[Corruption]]:
    """
    The columns of OffsetCommit records, each made when it is called: a string column that is not asked for is not built.

    Args:
        records: with keys of types 0 and 1 only.

    Returns:
        The records that could be read, their columns by name, and the damage.
    """
    data = records.window.data
    keys = read_keys(data, records.key_at, records.key_bytes)
    values = read_values(data, records.value_at, records.value_bytes, walks_tags=True)
    good = keys.is_whole & (values.is_whole | (records.value_bytes < 0))
    damage = []
    if not good.all():
        is_known = (values.version >= 0) & (values.version <= NEWEST_VERSION)
        for row in np.flatnonzero(~good).tolist():
            value_problem = MALFORMED_VALUE if is_known[row] else UNKNOWN_VERSION
            damage.append(records.damage_of(row, value_problem if keys.is_whole[row] else MALFORMED_KEY))
        records, keys, values = records.select(good), keys.take(good), values.take(good)
    return records, _columns(data, keys, values), damage


def _columns(data: Bytes, keys: OffsetKeys, values: OffsetValues) -> dict[str, Callable[[], Any]]:
    live = values.version != ABSENT
    return {
        "group": lambda: strings(data, keys.group_at, keys.group_bytes),
        "topic": lambda: strings(data, keys.topic_at, keys.topic_bytes),
        "partition": lambda: integers(big_endian(data, keys.partition_at, "i4"), pa.int32()),
        "tombstone": lambda: pa.array(~live),
        "value_version": lambda: integers(values.version, pa.int16(), live),
        "offset": lambda: integers(values.offset, pa.int64(), live),
        "leader_epoch": lambda: integers(values.leader_epoch, pa.int32(), live),
        "metadata": lambda: strings(data, values.metadata_at, values.metadata_bytes, live),
        "commit_timestamp_ms": lambda: integers(values.commit_timestamp_ms, pa.int64(), live),
        # Null where the version has no such field; -1 stays -1.
        "expire_timestamp_ms": lambda: integers(
            values.expire_timestamp_ms, pa.int64(), values.version == EXPIRING_VERSION
        ),
        "topic_id": lambda: _topic_ids(data, values.topic_id_at),
    }


def _topic_ids(data: Bytes, at: Ints) -> pa.Array:
    """Topic ids as Kafka prints them; null where absent or zero."""
    known = at != ABSENT
    if not known.any():
        return pa.nulls(len(at), pa.string())
    distinct = fixed_bytes(data, np.where(known, at, 0), TOPIC_ID_BYTES).dictionary_encode()
    names = [uuid_text(UUID(bytes=raw)) for raw in distinct.dictionary.to_pylist()]
    is_zero = np.array([not any(raw) for raw in distinct.dictionary.to_pylist()])
    codes = distinct.indices.to_numpy(zero_copy_only=False)
    return pa.array(names, type=pa.string()).take(pa.array(codes, mask=~known | is_zero[codes]))
