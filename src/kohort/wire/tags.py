"""
Removal of unknown tagged fields: the slow path of a reader.

Newer clients send tagged fields that the schema does not have, and the protocol says to skip them (KIP-482). The message is
walked by its schema and copied without them.
"""

from kohort.model.errors import WireError
from kohort.wire.primitives import read_uvarint, write_uvarint
from kohort.wire.schema import FIXED_WIDTHS, Field, Message


def without_unknown_tags(message: Message, version: int, frame: bytes, offset: int) -> bytes:
    """
    The message that begins at `offset`, with known tagged fields only.

    Raises:
        WireError, IndexError: the bytes are not such a message.
    """
    walk = _Walk(message, version, frame, offset)
    walk.struct(message.name)
    return bytes(walk.kept) + frame[walk.copied : walk.position]


class _Walk:
    """
    A walk through a frame that copies known fields.

    Attributes:
        kept: the bytes that are copied so far.
        copied: the position up to which the frame is copied or dropped.
    """

    def __init__(self, message: Message, version: int, frame: bytes, offset: int) -> None:
        self.message = message
        self.version = version
        self.is_flexible = message.is_flexible(version)
        self.frame = frame
        self.position = offset
        self.copied = offset
        self.kept = bytearray()

    def struct(self, struct: str) -> None:
        fields = self.message.fields(struct, self.version)
        for field in fields:
            if field.tag is None:
                self.field(field)
        if self.is_flexible:
            self.tags({field.tag: field for field in fields if field.tag is not None})

    def field(self, field: Field) -> None:
        if field.array:
            for _ in range(self.count()):
                self.element(field)
        elif field.type in self.message.structs and field.is_nullable(self.version):
            self.advance(1)
            if self.frame[self.position - 1] != 0xFF:
                self.element(field)
        else:
            self.element(field)

    def element(self, field: Field) -> None:
        if field.type in self.message.structs:
            self.struct(field.type)
        elif field.type in FIXED_WIDTHS:
            self.advance(FIXED_WIDTHS[field.type])
        elif self.is_flexible:
            self.advance(max(0, self.count()))
        else:
            width = 2 if field.type == "string" else 4
            self.advance(width)
            length = int.from_bytes(self.frame[self.position - width : self.position], "big", signed=True)
            self.advance(max(0, length))

    def count(self) -> int:
        """A number of elements or bytes, -1 for null."""
        if self.is_flexible:
            value, self.position = read_uvarint(self.frame, self.position)
            return value - 1
        self.advance(4)
        return int.from_bytes(self.frame[self.position - 4 : self.position], "big", signed=True)

    def advance(self, size: int) -> None:
        self.position += size
        if self.position > len(self.frame):
            raise WireError(f"{self.message.name} version {self.version} ends too early")

    def tags(self, known: dict[int, Field]) -> None:
        """Copy the known tagged fields at the end of a struct, without unknown fields inside them."""
        self.keep()
        count, self.position = read_uvarint(self.frame, self.position)
        tags: list[bytes] = []
        for _ in range(count):
            tag, self.position = read_uvarint(self.frame, self.position)
            size, self.position = read_uvarint(self.frame, self.position)
            if tag in known:
                tags.append(self.tagged(known[tag], size))
            else:
                self.advance(size)
        self.copied = self.position
        write_uvarint(self.kept, len(tags))
        for encoded in tags:
            self.kept += encoded

    def tagged(self, field: Field, size: int) -> bytes:
        outer, self.kept, self.copied = self.kept, bytearray(), self.position
        end = self.position + size
        self.field(field)
        if self.position != end:
            raise WireError(f"the tagged field {field.name} of {self.message.name} states a wrong size")
        self.keep()
        content, self.kept = self.kept, outer
        encoded = bytearray()
        write_uvarint(encoded, field.tag or 0)
        write_uvarint(encoded, len(content))
        return bytes(encoded + content)

    def keep(self) -> None:
        """Copy the bytes since the last copy."""
        self.kept += self.frame[self.copied : self.position]
        self.copied = self.position
