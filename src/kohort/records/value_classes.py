"""
Value classes of coordinator records, compiled from their schemas.

The class of a record has the fields of its key, then those of its value. A field of the newest version that is not tagged is
required; a field of older versions and a tagged field has the default of Kafka's schema and comes last. The class of a
tombstone has the fields of the key.
"""

from functools import cache
from typing import Any
from uuid import UUID

from kohort.model.structs import msgspec
from kohort.records.schema import RecordType, protocols, struct_owners
from kohort.wire.message_classes import build_classes, default_value
from kohort.wire.schema import Field

MODULE = "kohort.records.values"

_TYPES: dict[str, Any] = {"string": str, "bytes": bytes, "bool": bool, "uuid": UUID | None}


def is_required(field: Field, newest_version: int) -> bool:
    """Whether a caller has to state a field: its default is no sensible value, or is never written."""
    return isinstance(field.default, dict) or (field.tag is None and field.is_in(newest_version))


def record_classes(record_type: RecordType) -> dict[str, type[msgspec.Struct]]:
    """The classes of a record, of its tombstone and of nested structs, by name."""
    return _record_classes(record_type.name)


@cache
def _record_classes(name: str) -> dict[str, type[msgspec.Struct]]:
    record_type = struct_owners()[name]
    built: dict[str, type[msgspec.Struct]] = {}
    newest = record_type.versions[1]
    for struct, fields in record_type.structs.items():
        key = record_type.key if struct == record_type.name else ()
        built[struct] = _define(struct, (*key, *fields), newest, built)
    built[record_type.name].__doc__ = record_type.about
    built[record_type.tombstone_name] = _define(record_type.tombstone_name, record_type.key, newest, built)
    return built


@cache
def protocol_classes(name: str) -> dict[str, type[msgspec.Struct]]:
    """The classes of an embedded protocol's message, keyword-only as those of requests."""
    return build_classes(protocols()[name], MODULE)


def value_class(name: str) -> type[msgspec.Struct]:
    """
    The class of this name.

    Raises:
        KeyError: there is none.
    """
    owner = struct_owners().get(name)
    if owner is not None:
        return record_classes(owner)[name]
    for protocol in protocols():
        if name.startswith(protocol):
            return protocol_classes(protocol)[name]
    raise KeyError(name)


def _define(
    name: str, fields: tuple[Field, ...], newest_version: int, built: dict[str, type[msgspec.Struct]]
) -> type[msgspec.Struct]:
    required: list[Any] = [
        (field.name, _annotation(field, built)) for field in fields if is_required(field, newest_version)
    ]
    optional: list[Any] = [
        (field.name, _annotation(field, built), default_value(field, built))
        for field in fields
        if not is_required(field, newest_version)
    ]
    return msgspec.defstruct(name, [*required, *optional], frozen=True, gc=False, module=MODULE)


def _annotation(field: Field, built: dict[str, type[msgspec.Struct]]) -> Any:
    element: Any = built.get(field.type) or _TYPES.get(field.type, int)
    annotation: Any = tuple[element, ...] if field.array else element
    return annotation | None if field.nullable else annotation
