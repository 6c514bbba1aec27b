"""
What the messages look like on the wire, version by version.

`schemas.json` is generated from kio's entities (tools/message_stubs.py), one shape per message: the union of all versions,
each field with the versions that carry it. The whole file is split once, which takes a millisecond; a message is decoded
when it is first asked for. Readers, encoders and shapes are compiled from what is here.

Source: the message schemas of Apache Kafka 4.2.1, by way of kio.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

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
        versions: oldest and newest version with this field.
        nullable: oldest and newest version in which it may be null.
        default: as JSON; an empty list for no elements, an empty object for a struct of defaults.
    """

    name: str
    type: str
    versions: tuple[int, int]
    array: bool = False
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    default: Any = 0

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class Message(msgspec.Struct, frozen=True):
    """
    A message and the structs in it.

    Attributes:
        api_key: -1 for what is not a request or response of its own.
        flexible: the first flexible version, -1 for none.
        structs: by name, nested ones before those that hold them; the last one is the message itself.
    """

    api_key: int
    versions: tuple[int, int]
    flexible: int
    structs: dict[str, tuple[Field, ...]]

    @property
    def name(self) -> str:
        return next(reversed(self.structs))

    def is_flexible(self, version: int) -> bool:
        return 0 <= self.flexible <= version

    def fields(self, struct: str, version: int) -> tuple[Field, ...]:
        """The fields that this version has, in wire order, tagged ones among them."""
        return tuple(field for field in self.structs[struct] if field.is_in(version))


@cache
def _raw() -> dict[str, msgspec.Raw]:
    content = Path(__file__).with_name("schemas.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, msgspec.Raw])


def message_names() -> tuple[str, ...]:
    return tuple(_raw())


@cache
def message(name: str) -> Message:
    """
    The schema of one message.

    Raises:
        KeyError: there is no such message.
    """
    return msgspec.json.decode(_raw()[name], type=Message)
