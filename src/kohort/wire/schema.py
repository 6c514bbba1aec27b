"""
The layout of messages on the wire, version by version.

`schemas.json` is generated from the definitions in Kafka's jars (tools/kafka_schemas.py). It holds one schema per message, as
of the newest release: the union of all versions, each field with the versions that carry it. The file is split once, which
takes a millisecond; the schema of a message is decoded at its first use. Readers, encoders, decoders and message classes are
compiled from the schemas.

Source: the message schemas of Apache Kafka 4.4.0.
"""

from collections.abc import KeysView
from functools import cache
from pkgutil import get_data
from typing import Any

from kohort.model.structs import msgspec

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
"""The types of fixed width, with the characters of `struct`."""

FIXED_WIDTHS = {
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
}


class Field(msgspec.Struct, frozen=True):
    """
    One field of a struct, over all versions.

    Attributes:
        type: a type of the protocol, or the name of a struct of the same message.
        versions: oldest and newest version with this field; all versions unless stated.
        nullable: oldest and newest version in which it may be null.
        default: as JSON; an empty list for no elements, an object for a struct with these values and defaults otherwise.
        json_name: Kafka's name in camel case, where it is not `name` in camel case.
    """

    name: str
    type: str
    versions: tuple[int, int] = (0, 0x7FFF)
    array: bool = False
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    default: Any = 0
    json_name: str | None = None

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """
    The schema of a message and of the structs in it.

    Attributes:
        api_key: -1 for a message that is neither a request nor a response.
        flexible: the first flexible version, -1 for none.
        structs: by name, a nested struct before each struct that holds it; the last one is the message itself.
    """

    api_key: int = -1
    versions: tuple[int, int]
    flexible: int
    structs: dict[str, tuple[Field, ...]]

    @property
    def name(self) -> str:
        return next(reversed(self.structs))

    def is_flexible(self, version: int) -> bool:
        return 0 <= self.flexible <= version

    def fields(self, struct: str, version: int) -> tuple[Field, ...]:
        """The fields of this version in wire order, including tagged fields."""
        return tuple(field for field in self.structs[struct] if field.is_in(version))

    def least_size(self, field: Field, version: int) -> int:
        """The fewest bytes that a field can take."""
        if field.array:
            return 1 if self.is_flexible(version) else 4
        if field.is_nullable(version) and field.type in self.structs:
            return 1
        return self.least_element_size(field, version)

    def least_element_size(self, field: Field, version: int) -> int:
        """The fewest bytes that a field, or one element of an array, can take."""
        if field.type in FIXED_WIDTHS:
            return FIXED_WIDTHS[field.type]
        if field.type in self.structs:
            return self.least_struct_size(field.type, version)
        if self.is_flexible(version):
            return 1
        return 2 if field.type == "string" else 4

    def least_struct_size(self, struct: str, version: int) -> int:
        fields = self.fields(struct, version)
        least = sum(self.least_size(field, version) for field in fields if field.tag is None)
        return least + self.is_flexible(version)


def packaged(package: str, name: str) -> bytes:
    """
    The content of a file of a package, which may be in a zip archive. `importlib.resources` costs a start 5 ms.

    Raises:
        OSError: there is no such file.
    """
    content = get_data(package, name)
    if content is None:
        raise FileNotFoundError(f"{name} of the package {package}")
    return content


@cache
def _raw() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(packaged("kohort.wire", "schemas.json"), type=dict[str, msgspec.Raw])


def message_names() -> KeysView[str]:
    return _raw().keys()


@cache
def message(name: str) -> Message:
    """
    The schema of one message.

    Raises:
        KeyError: there is no such message.
    """
    return msgspec.json.decode(_raw()[name], type=Message)
