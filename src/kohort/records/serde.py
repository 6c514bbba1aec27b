"""
Coordinator records to keys and values, and back.

Source: Apache Kafka 4.4.0, CoordinatorRecordSerde, GroupCoordinatorRecordSerde, TransactionCoordinatorRecordSerde,
ShareCoordinatorRecordSerde.
"""

from collections.abc import Collection
from functools import cache
from struct import error
from typing import Any

from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.codecs import decode_record, key_encoder, value_encoder
from kohort.records.offset_commits import (
    KEY_PREFIX,
    VALUE_PREFIX,
    decode_offset_commit,
    encode_offset_commit,
)
from kohort.records.schema import RecordType, record_types, struct_owners
from kohort.records.values import OffsetCommit
from kohort.wire.encoders import DataEncoder


def encode_record(record: Any, version: int | None = None) -> tuple[bytes, bytes | None]:
    """The key and the value of a record of any topic, as `CoordinatorRecordSerde.encode`."""
    encode_key, encode_value = _encoders(type(record).__name__, version)
    return encode_key(record), None if encode_value is None else encode_value(record)


@cache
def _encoders(name: str, version: int | None) -> tuple[DataEncoder, DataEncoder | None]:
    """The encoders of key and value of a record class; a tombstone has no value."""
    record_type = struct_owners()[name]
    encode_key = key_encoder(record_type.name)
    if name != record_type.name:
        return encode_key, None
    return encode_key, value_encoder(name, record_type.written_version if version is None else version)


class CoordinatorRecordSerde:
    """
    Encodes and decodes the records of one internal topic; a `kohort.machine.shard.RecordSerde`.

    Args:
        topic: `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
        key_types: the key types that are known; all of the topic unless stated.
    """

    def __init__(self, topic: str, key_types: Collection[int] | None = None) -> None:
        self._types = {
            found.key_type: found
            for (of_topic, key_type), found in record_types().items()
            if of_topic == topic and (key_types is None or key_type in key_types)
        }
        self._has_offsets = topic == CONSUMER_OFFSETS and 1 in self._types

    def encode(self, record: Any, /, version: int | None = None) -> tuple[bytes, bytes | None]:
        """
        The key and the value of a record; the value of a tombstone is None.

        Args:
            version: of the value; the version that Kafka 4.4.0 writes unless stated.
        """
        if type(record) is OffsetCommit and version is None:
            return encode_offset_commit(record)
        return encode_record(record, version)

    def decode(self, key: bytes, value: bytes | None, /) -> Any:
        """
        The record; its tombstone if `value` is None.

        Raises:
            UnknownRecordTypeError: the key type is not known.
            CorruptError: the bytes do not hold a record of their key type, or the version of the value is not known.
        """
        if self._has_offsets and value is not None and value[:2] == VALUE_PREFIX and key[:2] == KEY_PREFIX:
            try:
                record = decode_offset_commit(key, value)
                if record is not None:
                    return record
            except (IndexError, error, UnicodeDecodeError):
                """The compiled decoder decides about damaged records."""
        return self.converted(decode_record(self.type_of(key), key, value))

    def converted(self, record: Any) -> Any:
        """A decoded record as its coordinator wants it; for subclasses."""
        return record

    def type_of(self, key: bytes) -> RecordType:
        """
        The type of the record with this key.

        Raises:
            UnknownRecordTypeError: the key type is not known.
            CorruptError: the key has less than two bytes.
        """
        if len(key) < 2:
            raise CorruptError("a key of a coordinator record has no type")
        key_type = int.from_bytes(key[:2], "big", signed=True)
        record_type = self._types.get(key_type)
        if record_type is None:
            raise UnknownRecordTypeError(key_type)
        return record_type
