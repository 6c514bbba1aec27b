"""Messages and JSON: answers that a test gives, and messages as values that it reads."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from kohort.control.requests.filters import nearest, topic_id_of
from kohort.model.ids import uuid_text
from kohort.model.limits import CONTROL_ELEMENTS_MAX
from kohort.wire.apis import ApiKey
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import Message, message

SHOWN_BYTES: Final = 1_024
"""Bytes of a field that a value shows; of more it shows the number only."""
SHOWN_ELEMENTS: Final = 1_000
"""Elements of all arrays of a message that a value shows."""
_SECRETS: Final = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})
_SECRET_WORDS: Final = ("password", "secret", "jaas", "keystore.key", "credential")
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {"string": str, "bool": bool, "float64": (float, int)}
_READS: Final = frozenset({ApiKey.METADATA, ApiKey.OFFSET_FOR_LEADER_EPOCH})


@cache
def reads(api: ApiKey) -> bool:
    """Whether requests of an API change nothing, so that an error may be put into the answer to the whole request."""
    name = api.api_name
    return (
        api in _READS
        or name.startswith(("Describe", "Find", "Get", "List", "Read"))
        or name.endswith(("Describe", "Fetch", "Versions"))
    )


def answer_of(api: ApiKey, values: Mapping[str, Any]) -> Any:
    """
    An answer from JSON.

    Raises:
        ValueError: a field is unknown, or its value has another type.
    """
    if _count(values) > CONTROL_ELEMENTS_MAX:
        raise ValueError(f"an answer has at most {CONTROL_ELEMENTS_MAX} elements and fields")
    schema = message(f"{api.api_name}Response")
    return _struct(schema, schema.name, values, schema.name)


def _count(values: Any) -> int:
    """Elements and fields, up to one more than there may be."""
    count = 0
    waiting = [values]
    while waiting and count <= CONTROL_ELEMENTS_MAX:
        inner = waiting.pop()
        if isinstance(inner, Mapping):
            inner = list(inner.values())
        if isinstance(inner, list):
            count += len(inner)
            waiting += inner[: CONTROL_ELEMENTS_MAX + 1]
    return count


def _struct(schema: Message, struct: str, values: Any, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be an object")  # noqa: TRY004 -- told to the client, as every wrong value
    fields = {field.name: field for field in schema.structs[struct]}
    for name in values:
        if name not in fields:
            raise ValueError(f"{where} has no field {name!r}{nearest(name, list(fields))}")
    given = {}
    for name, value in values.items():
        field = fields[name]
        if field.array and value is not None:
            if not isinstance(value, list):
                raise ValueError(f"{where}.{name} must be an array")
            given[name] = [_value(schema, field.type, each, f"{where}.{name}") for each in value]
        else:
            given[name] = _value(schema, field.type, value, f"{where}.{name}")
    return message_classes(schema.name)[struct](**given)


def _value(schema: Message, kind: str, value: Any, where: str) -> Any:
    if value is None:
        return None
    if kind in schema.structs:
        return _struct(schema, kind, value, where)
    if kind == "uuid":
        return topic_id_of(str(value))
    if kind in ("bytes", "records"):
        try:
            return b64decode(value, validate=True)
        except (TypeError, ValueError):
            raise ValueError(f"{where} must be base64") from None
    expected = _TYPES.get(kind, int)
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ValueError(f"{where} must be of the type {kind}")
    return value


def _is_secret(name: object) -> bool:
    """Whether a configuration of this name may be a secret."""
    return isinstance(name, str) and any(word in name.lower() for word in _SECRET_WORDS)


class _Shown:
    """
    One message as values.

    Attributes:
        left: how many elements of arrays may still be shown.
    """

    def __init__(self, schema: Message, version: int) -> None:
        self._schema = schema
        self._version = version
        self.left = SHOWN_ELEMENTS

    def struct(self, struct: str, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in self._schema.fields(struct, self._version):
            given = getattr(value, field.name)
            if field.name in _SECRETS or (field.name == "value" and _is_secret(getattr(value, "name", None))):
                found[field.name] = "..."
            elif field.array:
                found[field.name] = None if given is None else self._array(field.type, given)
            else:
                found[field.name] = self._value(field.type, given)
        return found

    def _array(self, kind: str, elements: Any) -> list[Any]:
        shown = list(islice(elements, max(self.left, 0)))
        self.left -= len(shown)
        found = [self._value(kind, each) for each in shown]
        return found if len(shown) == len(elements) else [*found, {"more": len(elements) - len(shown)}]

    def _value(self, kind: str, value: Any) -> Any:
        if value is None:
            return uuid_text(None) if kind == "uuid" else None
        if kind in self._schema.structs:
            return self.struct(kind, value)
        if kind == "uuid":
            return uuid_text(value)
        if kind in ("bytes", "records"):
            size = size_of(value)
            return {"bytes": size} if size > SHOWN_BYTES or kind == "records" else b64encode(value).decode()
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def values_of(name: str, version: int, value: Any) -> dict[str, Any]:
    """
    A message as JSON values, with the fields of its version under Kafka's names in snake case.

    Ids of topics are printed as Kafka prints them. Records and long bytes are `{"bytes": n}`, secrets are left out, and so are
    elements beyond `SHOWN_ELEMENTS`: the last element of their array is `{"more": n}`.
    """
    schema = message(name)
    return _Shown(schema, version).struct(schema.name, value)


def size_of(value: Any) -> int:
    """The bytes of a field with bytes or records."""
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return len(value)
