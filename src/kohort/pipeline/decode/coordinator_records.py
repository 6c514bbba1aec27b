"""
Records of the coordinators one at a time, by `kohort.records`: every type that has no columnar reader of its own.

A record is shown in the JSON form of Kafka's own converters. A record of an unknown type is kept as bytes.
"""

from typing import Any

from kohort.model.errors import CorruptError
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.records import Records
from kohort.records.codecs import UnknownVersionError
from kohort.records.json_form import json_record
from kohort.records.schema import RecordType, record_types


def decode(
    topic: str, key_type: int, records: Records, *, has_value: bool = True
) -> tuple[list[dict[str, Any]], list[Corruption]]:
    """
    Records of one key type as rows of the schema: their own columns, and `row`, the index into `records`.

    Args:
        records: with keys of `key_type` only.
        has_value: as for `json_record`.
    """
    found = record_types().get((topic, key_type))
    rows: list[dict[str, Any]] = []
    damage: list[Corruption] = []
    for row in range(len(records)):
        key, value = key_and_value(records, row)
        if found is None:
            rows.append(
                {"row": row, "key_type": key_type, "tombstone": value is None, "raw_key": key, "raw_value": value}
            )
            continue
        try:
            decoded = json_record(found, key, value, has_value=has_value)
        except CorruptError as exc:
            damage.append(records.damage_of(row, problem(found, exc)))
        else:
            rows.append({"row": row, "key_type": key_type, "record_type": found.name, **decoded})
    return rows, damage


def key_and_value(records: Records, row: int) -> tuple[bytes, bytes | None]:
    """The bytes of one record."""
    data = records.window.data
    key_at, value_at, value_bytes = (
        int(records.key_at[row]),
        int(records.value_at[row]),
        int(records.value_bytes[row]),
    )
    key = data[key_at : key_at + int(records.key_bytes[row])].tobytes()
    return key, None if value_bytes < 0 else data[value_at : value_at + value_bytes].tobytes()


def problem(record_type: RecordType, error: CorruptError) -> str:
    """The text of a damage row."""
    if isinstance(error, UnknownVersionError):
        return f"{record_type.name} value of an unknown version"
    return f"malformed {record_type.name} record"
