"""
One record's key or value, read from its front to its end.

Source: Kafka protocol guide, primitive types; KIP-482 (compact lengths, tagged fields).
"""

import struct


class MalformedError(Exception):
    """The bytes end too early, or a length cannot be."""


class Cursor:
    """Reads Kafka's primitive types from the front of some bytes."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    @property
    def left_bytes(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left_bytes:
            raise MalformedError
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(value)

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedError

    def length(self, layout: str) -> int:
        """The length of a string, bytes or an array; -1 for null."""
        return self.uvarint() - 1 if self.flexible else self.integer(layout)

    def nullable_string(self) -> str | None:
        size = self.length(">h")
        return None if size == -1 else self.take(size).decode("utf-8", "replace")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedError
        return text

    def binary(self) -> bytes:
        return self.take(self.length(">i"))

    def nullable_binary(self) -> bytes | None:
        size = self.length(">i")
        return None if size == -1 else self.take(size)

    def tags(self) -> None:
        """Skip tagged fields: no version has any of its own."""
        if self.flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())
