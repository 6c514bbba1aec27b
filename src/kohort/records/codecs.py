"""Encoders and decoders of coordinator records, compiled from their schemas at their first use."""

from functools import cache
from typing import Any

from kohort.model.errors import CorruptError
from kohort.records.schema import RecordType, struct_owners
from kohort.records.value_classes import record_classes
from kohort.wire.encoders import DataEncoder, compile_encoder
from kohort.wire.generated.decoders import DECODE_ERRORS, Decoder, DecoderWriter


class UnknownVersionError(CorruptError):
    """A value in a version that Kafka 4.4.0 does not know; its coordinators refuse to load it."""

    def __init__(self, record_name: str, version: int) -> None:
        super().__init__(f"{record_name} has a value of the unknown version {version}")
        self.record_name = record_name
        self.version = version


@cache
def key_encoder(name: str) -> DataEncoder:
    """From a record, or its tombstone, to the bytes of its key."""
    record_type = struct_owners()[name]
    return compile_encoder(record_type.key_message, 0, prefix=[("h", record_type.key_type)])


@cache
def value_encoder(name: str, version: int) -> DataEncoder:
    """
    From a record to the bytes of its value.

    Raises:
        ValueError: the record has no such version.
    """
    record_type = struct_owners()[name]
    if not record_type.is_known(version):
        raise ValueError(f"{name} has no version {version}")
    return compile_encoder(
        record_type.value_message, version, prefix=[("h", version)], classes=record_classes(record_type)
    )


def decode_record(record_type: RecordType, key: bytes, value: bytes | None) -> Any:
    """
    The record, or its tombstone if `value` is None.

    Raises:
        UnknownVersionError: the version of the value is not known.
        CorruptError: the bytes end early or state an impossible length.
    """
    name = record_type.name
    try:
        if value is None:
            return _tombstone_decoder(name)(key)
        if len(value) < 2:
            raise IndexError("the value has no version")
        version = int.from_bytes(value[:2], "big", signed=True)
        if not record_type.is_known(version):
            raise UnknownVersionError(name, version)
        return _decoder(name, version)(key, value)
    except DECODE_ERRORS as exc:
        raise CorruptError(f"malformed {name} record: {exc}") from exc


@cache
def _decoder(name: str, version: int) -> Decoder:
    record_type = struct_owners()[name]
    writer = DecoderWriter(record_classes(record_type))
    fields = writer.message(record_type.key_message, 0, "key", 2)
    fields |= writer.message(record_type.value_message, version, "value", 2)
    return writer.compile("key, value", writer.build(name, fields))


@cache
def _tombstone_decoder(name: str) -> Decoder:
    record_type = struct_owners()[name]
    writer = DecoderWriter(record_classes(record_type))
    fields = writer.message(record_type.key_message, 0, "key", 2)
    return writer.compile("key", writer.build(record_type.tombstone_name, fields))
