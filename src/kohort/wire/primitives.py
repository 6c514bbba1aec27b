"""
Primitive types of the protocol, for code that is written by hand.

Writers append to a bytearray. Compact types store the length plus one.

Source: the protocol guide of Apache Kafka, "Protocol Primitive Types"; KIP-482.
"""

from struct import Struct

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")


def cut_utf8(encoded: bytes, bytes_max: int = STRING_BYTES_MAX) -> bytes:
    """The beginning of a text in UTF-8 that has at most so many bytes, up to a whole character."""
    return encoded[:bytes_max].decode(errors="ignore").encode()


def cut_text(text: str, bytes_max: int) -> str:
    """As `cut_utf8`."""
    encoded = text.encode()
    return text if len(encoded) <= bytes_max else cut_utf8(encoded, bytes_max).decode()


def write_uvarint(out: bytearray, value: int) -> None:
    """An unsigned varint: seven bits a byte, the lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """A signed varint in zigzag: 0, -1, 1, -2 are 0, 1, 2, 3. The same form for 32 and 64 bits."""
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def write_string(out: bytearray, value: str | None) -> None:
    """An int16 length, -1 for null, then UTF-8."""
    if value is None:
        out += b"\xff\xff"
        return
    encoded = value.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise WireError(f"a string of {len(encoded)} bytes; at most {STRING_BYTES_MAX} can be written")
    out += INT16.pack(len(encoded))
    out += encoded


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    encoded = value.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """
    An unsigned varint of at most five bytes, and the position after it.

    Raises:
        WireError: the bytes end inside it, or it is longer.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if position >= len(buffer):
            raise WireError("the bytes end inside a variable-length integer")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError("a variable-length integer has more than five bytes")
