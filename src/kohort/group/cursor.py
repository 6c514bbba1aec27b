"""Reads the fields of a coordinator's record one after another, in fixed or flexible versions."""

from typing import TypeVar

from kohort.model.errors import WireError
from kohort.wire.primitives import (
    INT16,
    INT32,
    INT64,
    read_bytes,
    read_compact_bytes,
    read_compact_string,
    read_string,
    read_uvarint,
)

T = TypeVar("T")


class Cursor:
    """
    A place in bytes that may come from anywhere.

    Every method raises WireError or struct.error when the bytes end early or claim what cannot be. Bytes after the last field
    are nobody's business, as in Kafka.

    Attributes:
        is_flexible: whether lengths are compact and tagged fields follow each structure.
    """

    __slots__ = ("_data", "_position", "is_flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.is_flexible = False

    def int16(self) -> int:
        (value,) = INT16.unpack_from(self._data, self._position)
        self._position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = INT32.unpack_from(self._data, self._position)
        self._position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = INT64.unpack_from(self._data, self._position)
        self._position += 8
        return int(value)

    def uvarint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def string(self) -> str:
        return _not_null(self.nullable_string())

    def nullable_string(self) -> str | None:
        read = read_compact_string if self.is_flexible else read_string
        value, self._position = read(self._data, self._position)
        return value

    def blob(self) -> bytes:
        read = read_compact_bytes if self.is_flexible else read_bytes
        value, self._position = read(self._data, self._position)
        return _not_null(value)

    def array_length(self) -> int:
        length = self.uvarint() - 1 if self.is_flexible else self.int32()
        left = len(self._data) - self._position
        if not 0 <= length <= left:
            raise WireError(f"an array of {length} elements in {left} bytes")
        return length

    def tagged_fields(self) -> dict[int, bytes]:
        """What follows a flexible structure, by tag; nothing in the fixed versions."""
        if not self.is_flexible:
            return {}
        return {self.uvarint(): self._take(self.uvarint()) for _ in range(self.uvarint())}

    def _take(self, length: int) -> bytes:
        start, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise WireError(f"a tagged field of {length} bytes is longer than what is left")
        return self._data[start : self._position]


def _not_null(value: T | None) -> T:
    if value is None:
        raise WireError("null where a value must be")
    return value
