"""
Coordinator records in the JSON form of Kafka's own converters, which DumpLogSegments and the message formatters print.

Field names are Kafka's in camel case, bytes are base64, uuids as Kafka prints them. A tagged field is shown unless it has its
default.

Source: Kafka JsonConverterGenerator.
"""

import base64
from typing import Any

from kohort.model.ids import uuid_text
from kohort.model.structs import msgspec
from kohort.records.codecs import decode_record
from kohort.records.schema import RecordType
from kohort.records.value_classes import record_classes
from kohort.wire.message_classes import default_value
from kohort.wire.schema import Field, Message


def json_record(record_type: RecordType, key: bytes, value: bytes | None, *, has_value: bool = True) -> dict[str, Any]:
    """
    One record: `key`, `value` (None in a tombstone), `tombstone`, and `value_version` unless it is one.

    Args:
        has_value: without it, the value is decoded, so that damage is found, but `value` is None.

    Raises:
        CorruptError: the bytes end early, or the version of the value is not known.
    """
    record = decode_record(record_type, key, value)
    row = {"key": json_key(record_type, record), "value": None, "tombstone": value is None}
    if value is None:
        return row
    version = int.from_bytes(value[:2], "big", signed=True)
    shown = json_value(record_type, record, version) if has_value else None
    return row | {"value_version": version, "value": shown}


def json_key(record_type: RecordType, record: Any) -> dict[str, Any]:
    """The key of a record or of its tombstone."""
    return _Form(record_type.key_message, 0, {}).struct(f"{record_type.name}Key", record)


def json_value(record_type: RecordType, record: Any, version: int) -> dict[str, Any]:
    """The value of a record, with the fields of one version."""
    return _Form(record_type.value_message, version, record_classes(record_type)).struct(record_type.name, record)


def json_name(field: Field) -> str:
    """Kafka's name of a field in camel case."""
    if field.json_name is not None:
        return field.json_name
    first, *others = field.name.split("_")
    return first + "".join(other.capitalize() for other in others)


class _Form:
    """One version of a message in JSON."""

    def __init__(self, message: Message, version: int, classes: dict[str, type[msgspec.Struct]]) -> None:
        self._message = message
        self._version = version
        self._classes = classes

    def struct(self, struct: str, instance: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in self._message.fields(struct, self._version):
            value = getattr(instance, field.name)
            if field.tag is None or value != default_value(field, self._classes):
                found[json_name(field)] = self._value(field, value)
        return found

    def _value(self, field: Field, value: Any) -> Any:
        if field.array:
            return None if value is None else [self._element(field, element) for element in value]
        return self._element(field, value)

    def _element(self, field: Field, value: Any) -> Any:
        if field.type == "uuid":
            return uuid_text(value)
        if value is None:
            return None
        if field.type in self._message.structs:
            return self.struct(field.type, value)
        return base64.b64encode(value).decode() if field.type == "bytes" else value
