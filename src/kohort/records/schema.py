"""
The schemas of coordinator records.

Source: Apache Kafka 4.4.0, the JSON definitions of coordinator keys and values; `schemas.json` has their content with Kafka's
field names in snake case. As everywhere in Kohort, names of times and durations end in `_ms`.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from kohort.model.structs import msgspec
from kohort.wire.schema import Field, Message, packaged


class RecordType(msgspec.Struct, frozen=True, kw_only=True):
    """
    One type of record.

    Attributes:
        key_type: the number at the start of the key; unique within a topic.
        key: the fields of the key, after its type.
        versions: oldest and newest version of the value.
        written_version: the version of a value that is encoded, unless its caller asks for another.
        flexible: the first flexible version of the value, -1 for none.
        structs: the fields of the value and of nested structs; the value is the last one and has the name of the record.
    """

    about: str
    topic: str
    key_type: int
    key: tuple[Field, ...]
    versions: tuple[int, int]
    written_version: int
    flexible: int
    structs: dict[str, tuple[Field, ...]]

    @property
    def name(self) -> str:
        return next(reversed(self.structs))

    @property
    def tombstone_name(self) -> str:
        return f"{self.name}Tombstone"

    @property
    def key_message(self) -> Message:
        """The key as a message; keys have one version, which is not flexible."""
        return Message(versions=(0, 0), flexible=-1, structs={f"{self.name}Key": self.key})

    @property
    def value_message(self) -> Message:
        return Message(versions=self.versions, flexible=self.flexible, structs=self.structs)

    def is_known(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]


class _Schemas(msgspec.Struct, frozen=True):
    records: dict[str, RecordType]
    protocols: dict[str, Message]


@cache
def _schemas() -> _Schemas:
    content = packaged("kohort.records", "schemas.json")
    return msgspec.json.decode(content, type=_Schemas)


@cache
def record_types() -> Mapping[tuple[str, int], RecordType]:
    """All record types by topic and key type."""
    return MappingProxyType({(found.topic, found.key_type): found for found in _schemas().records.values()})


@cache
def struct_owners() -> Mapping[str, RecordType]:
    """The record type that each value class belongs to: records, their tombstones and nested structs."""
    return MappingProxyType(
        {name: found for found in _schemas().records.values() for name in (*found.structs, found.tombstone_name)}
    )


def protocols() -> Mapping[str, Message]:
    """The messages of protocols that are embedded in records, by name."""
    return _schemas().protocols
