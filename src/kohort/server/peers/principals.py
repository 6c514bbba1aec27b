"""
The asker of a forwarded request as bytes: the user, and the address of the client.

Source: Kafka DefaultKafkaPrincipalBuilder.serialize, DefaultPrincipalData version 0; EnvelopeUtils.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from kohort.model.addresses import java_text
from kohort.model.errors import WireError
from kohort.model.limits import HEADER_TAGS_MAX, STRING_BYTES_MAX
from kohort.model.principals import Principal
from kohort.wire.primitives import read_uvarint, write_compact_string, write_uvarint

_VERSION: Final = b"\0\0"


def principal_bytes(principal: Principal) -> bytes:
    """A user as bytes, behind the version of the form."""
    out = bytearray(_VERSION)
    write_compact_string(out, principal.type)
    write_compact_string(out, principal.name)
    out.append(principal.is_token)
    write_uvarint(out, 0)
    return bytes(out)


def read_principal(data: bytes) -> Principal:
    """
    The user of such bytes.

    Raises:
        WireError: they have another form.
    """
    if data[:2] != _VERSION:
        raise WireError("the version of a user is not known")
    kind, position = _read_string(data, 2)
    name, position = _read_string(data, position)
    if position >= len(data):
        raise WireError("the bytes of a user end too early")
    is_token = data[position] != 0
    count, position = read_uvarint(data, position + 1)
    if count > HEADER_TAGS_MAX:
        raise WireError(f"a user has {count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    if position > len(data):
        raise WireError("the bytes of a user end too early")
    return Principal(name, kind, is_token)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = read_uvarint(data, position)
    end = position + size - 1
    if not 0 < size <= STRING_BYTES_MAX + 1 or end > len(data):
        raise WireError("a text of a user has a wrong length")
    try:
        return data[position:end].decode(), end
    except UnicodeDecodeError:
        raise WireError("a text of a user is not UTF-8") from None


def address_bytes(client_host: str) -> bytes:
    """The address of a client in Java's form, as the 4 or 16 bytes that it has; 0.0.0.0, which no rule names, if it is none."""
    try:
        return ipaddress.ip_address(client_host.removeprefix("/").partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def read_address(data: bytes) -> str:
    """
    The address of a client in Java's form.

    Raises:
        WireError: it has neither 4 nor 16 bytes.
    """
    if len(data) not in (4, 16):
        raise WireError(f"an address of {len(data)} bytes")
    return f"/{java_text(str(ipaddress.ip_address(data)))}"
