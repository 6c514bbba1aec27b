"""
The primitive types of the protocol, for schemas that are written by hand (records of the coordinators, control records).

Writers append to a bytearray. Readers take a buffer and a position and return the value and the position after it; they
raise WireError where the bytes end too early or mean nothing. Lengths in compact types are one more than the length.

Source: the protocol guide of Apache Kafka, "Protocol Primitive Types"; KIP-482.
"""

from struct import Struct

from kohort.model.errors import WireError

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")


def write_uvarint(out: bytearray, value: int) -> None:
    """Seven bits to a byte, the lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """A signed integer in zigzag: 0, -1, 1, -2 are 0, 1, 2, 3. Also the form of 64 bits."""
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def write_string(out: bytearray, value: str | None) -> None:
    """An int16 length, -1 for null, then UTF-8."""
    if value is None:
        out += b"\xff\xff"
        return
    encoded = value.encode()
    if len(encoded) > 0x7FFF:
        raise WireError(f"a string of {len(encoded)} bytes is too long for this version")
    out += INT16.pack(len(encoded))
    out += encoded


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    encoded = value.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded


def write_bytes(out: bytearray, value: bytes | None) -> None:
    """An int32 length, -1 for null, then the bytes."""
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += INT32.pack(len(value))
    out += value


def write_compact_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def read_uvarint(buffer: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes."""
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


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """A signed varint (zigzag) of at most five bytes."""
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def read_string(buffer: bytes, position: int) -> tuple[str | None, int]:
    length = _read_length(buffer, position, INT16)
    return _read_text(buffer, position + 2, length)


def read_compact_string(buffer: bytes, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(buffer, position)
    return _read_text(buffer, position, length - 1)


def read_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    length = _read_length(buffer, position, INT32)
    return _read_raw(buffer, position + 4, length)


def read_compact_bytes(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_uvarint(buffer, position)
    return _read_raw(buffer, position, length - 1)


def _read_length(buffer: bytes, position: int, form: Struct) -> int:
    if position + form.size > len(buffer):
        raise WireError("the bytes end inside a length")
    length: int = form.unpack_from(buffer, position)[0]
    if length < -1:
        raise WireError(f"a length of {length}")
    return length


def _read_raw(buffer: bytes, position: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise WireError(f"{length} bytes are claimed where {len(buffer) - position} are left")
    return bytes(buffer[position:end]), end


def _read_text(buffer: bytes, position: int, length: int) -> tuple[str | None, int]:
    raw, position = _read_raw(buffer, position, length)
    if raw is None:
        return None, position
    try:
        return raw.decode(), position
    except UnicodeDecodeError as exc:
        raise WireError("a string that is not UTF-8") from exc
