"""Requests and responses in the JSON of Kafka's converters: names in camel case, bytes in hex, ids as Kafka prints them."""

from typing import Any

from kohort.model.ids import uuid_from_text, uuid_text
from kohort.records.json_form import json_name
from kohort.wire.apis import ApiKey
from kohort.wire.message_classes import default_value, message_classes
from kohort.wire.schema import Field, Message, message

NO_ID = uuid_text(None)


def request_of(api: ApiKey, fields: dict[str, Any]) -> Any:
    """A request of these fields; a field that is not given has its default."""
    return _built(message(f"{api.api_name}Request"), f"{api.api_name}Request", fields)


def _built(schema: Message, struct: str, fields: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    known = {json_name(field): field for field in schema.structs[struct]}
    for name, value in fields.items():
        field = known.pop(name)
        values[field.name] = value and [_value(schema, field, one) for one in value] if field.array else _value(
            schema, field, value
        )  # fmt: skip
    return message_classes(schema.name)[struct](**values)


def _value(schema: Message, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.type in schema.structs:
        return _built(schema, field.type, value)
    if field.type == "uuid":
        return None if value == NO_ID else uuid_from_text(value)
    return bytes.fromhex(value) if field.type in ("bytes", "records") else value


def json_of(api: ApiKey, version: int, response: Any) -> dict[str, Any]:
    """The fields of a response that this version has; a tagged field that has its default is left out."""
    schema = message(f"{api.api_name}Response")
    return _shown(schema, schema.name, version, response)


def _shown(schema: Message, struct: str, version: int, value: Any) -> dict[str, Any]:
    classes = message_classes(schema.name)
    shown: dict[str, Any] = {}
    for field in schema.fields(struct, version):
        one = getattr(value, field.name)
        if field.tag is not None:
            default = default_value(field, classes)
            if one is None or (not one and not default) or _is_default(schema, field, version, one, default):
                continue
        if field.array:
            shown[json_name(field)] = one if one is None else [_plain(schema, field, version, each) for each in one]
        else:
            shown[json_name(field)] = _plain(schema, field, version, one)
    return shown


def _is_default(schema: Message, field: Field, version: int, one: Any, default: Any) -> bool:
    if field.array or field.type not in schema.structs:
        return bool(one == default)
    return _shown(schema, field.type, version, one) == _shown(schema, field.type, version, default)


def _plain(schema: Message, field: Field, version: int, value: Any) -> Any:
    if field.type == "uuid":
        return uuid_text(value)
    if value is None:
        return None
    if field.type in schema.structs:
        return _shown(schema, field.type, version, value)
    if field.type in ("bytes", "records"):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
