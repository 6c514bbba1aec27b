"""
Every other record of the coordinators, read by what a table says of its fields.

`coordinator_records.json` lists the record types of Apache Kafka 4.2.1 in `__consumer_offsets` (key types 3 to 8, 10 to 17 and
19 to 23: consumer, share and streams groups), `__transaction_state` (0) and `__share_group_state` (0 and 1), each with the
fields of its key and of every version of its value, in their order. A record comes out in the JSON form of Kafka's own
converters: binary as base64, ids as Kafka prints them, tagged fields only where they were written. Records of a type that is
not in the table are kept as bytes.

Source: Apache Kafka 4.2.1, the JSON definitions of coordinator records; MessageUtil, JsonConverter classes.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.cursor import Cursor, MalformedError
from kohort.pipeline.decode.records import Records

Read: TypeAlias = Callable[[Cursor], Any]
_TABLE = Path(__file__).with_name("coordinator_records.json")
_PRESENT = 1


@dataclass(frozen=True, slots=True)
class RecordType:
    """A key type of a topic: how its key and each version of its value are read."""

    name: str
    key: Read
    values: Mapping[int, Read]
    flexible: frozenset[int]
    """The versions with compact lengths and tagged fields."""


@cache
def record_types() -> Mapping[tuple[str, int], RecordType]:
    """The record types by topic and key type."""
    return {
        (row["topic"], row["key_type"]): RecordType(
            row["name"],
            _struct(row["key"]),
            {int(version): _struct(shape) for version, shape in row["values"].items()},
            frozenset(int(version) for version, shape in row["values"].items() if "tagged" in shape),
        )
        for row in json.loads(_TABLE.read_text(encoding="utf-8"))
    }


def decode(topic: str, key_type: int, records: Records) -> tuple[list[dict[str, Any]], list[Corruption]]:
    """
    Records of one key type as rows of the schema: their own columns, and `row`, the index into `records`.

    Args:
        records: with keys of `key_type` only.
    """
    data = records.window.data
    found = record_types().get((topic, key_type))
    rows: list[dict[str, Any]] = []
    damage: list[Corruption] = []
    for row in range(len(records)):
        key_at, value_at, value_bytes = (
            int(records.key_at[row]),
            int(records.value_at[row]),
            int(records.value_bytes[row]),
        )
        key = data[key_at : key_at + int(records.key_bytes[row])].tobytes()
        value = None if value_bytes < 0 else data[value_at : value_at + value_bytes].tobytes()
        if found is None:
            rows.append(
                {"row": row, "key_type": key_type, "tombstone": value is None, "raw_key": key, "raw_value": value}
            )
            continue
        try:
            decoded = decode_record(found, key, value)
        except MalformedError as exc:
            damage.append(records.damage_of(row, str(exc) or f"malformed {found.name} record"))
        else:
            rows.append({"row": row, "key_type": key_type, "record_type": found.name, **decoded})
    return rows, damage


def decode_record(record_type: RecordType, key: bytes, value: bytes | None) -> dict[str, Any]:
    """
    One record: `key`, `value` (None in a tombstone), `value_version`, `tombstone`.

    Raises:
        MalformedError: the bytes end too early, or the version of the value is not known.
    """
    names = record_type.key(Cursor(key[2:]))
    row = {"key": names, "value": None, "tombstone": value is None}
    if value is None:
        return row
    version = Cursor(value).integer(">h")
    if version not in record_type.values:
        raise MalformedError(f"{record_type.name} value of an unknown version")
    cursor = Cursor(value[2:], flexible=version in record_type.flexible)
    return {**row, "value_version": version, "value": record_type.values[version](cursor)}


def _reader(shape: Any) -> Read:
    """How a value of a type is read; the types are those of the table."""
    if isinstance(shape, str):
        return _PRIMITIVES[shape]
    return _array(_reader(shape["array"])) if "array" in shape else _struct(shape)


def _field_reader(shape: Any) -> Read:
    """As `_reader`; a struct that is a field by itself may be null in every record that has one."""
    if isinstance(shape, str) or "array" in shape:
        return _reader(shape)
    inner = _struct(shape)
    return lambda cursor: inner(cursor) if cursor.integer(">b") >= 0 else None


def _tagged_reader(shape: Any) -> Read:
    if isinstance(shape, str) or "array" in shape:
        return _reader(shape)
    inner = _struct(shape)
    return lambda cursor: inner(cursor) if cursor.uvarint() == _PRESENT else None


def _struct(shape: Any) -> Read:
    fields = tuple((name, _field_reader(one)) for name, one in shape["fields"])
    tagged = {int(tag): (name, _tagged_reader(one)) for tag, (name, one) in shape.get("tagged", {}).items()}
    is_flexible = "tagged" in shape

    def read(cursor: Cursor) -> dict[str, Any]:
        row = {name: read_field(cursor) for name, read_field in fields}
        if is_flexible:
            for _ in range(cursor.uvarint()):
                tag, body = cursor.uvarint(), cursor.take(cursor.uvarint())
                if tag in tagged:
                    name, read_field = tagged[tag]
                    row[name] = read_field(Cursor(body, flexible=True))
        return row

    return read


def _array(element: Read) -> Read:
    def read(cursor: Cursor) -> list[Any] | None:
        count = cursor.length(">i")
        if count == -1:
            return None
        # Every element takes a byte at least, so a claimed count is checked before anything is made of it.
        if not 0 <= count <= cursor.left_bytes:
            raise MalformedError
        return [element(cursor) for _ in range(count)]

    return read


def _integer(layout: str) -> Read:
    return lambda cursor: cursor.integer(layout)


def _uuid(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(cursor.take(16)).decode().rstrip("=")


_PRIMITIVES: Mapping[str, Read] = {
    "int8": _integer(">b"),
    "int16": _integer(">h"),
    "uint16": _integer(">H"),
    "int32": _integer(">i"),
    "int64": _integer(">q"),
    "string": Cursor.string,
    "nullable_string": Cursor.nullable_string,
    "bytes": lambda cursor: base64.b64encode(cursor.binary()).decode(),
    "uuid": _uuid,
}
