"""Addresses of clients, and the ranges of addresses in ACLs. Source: KIP-1276; Kafka CidrUtils, commons-net SubnetUtils."""

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

_BITS: Final = {4: 32, 6: 128}
_V4_RANGE: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_PREFIX_LENGTH: Final = re.compile(r"[+-]?\d{1,9}")
_LEADING_ZEROS: Final = re.compile(r"\b0+(?=[0-9a-fA-F])")
_ADDRESSES_KEPT: Final = 1_024


class AddressRange(NamedTuple):
    """A range of addresses: those of a version whose first `length` bits are those of `bits`."""

    version: int
    length: int
    bits: int


class Address(NamedTuple):
    """An address; the version is 0 for a text that is none, which is in no range."""

    version: int
    value: int

    def first(self, length: int) -> int:
        """The first bits of the address."""
        return self.value >> (_BITS[self.version] - length)


_NO_ADDRESS: Final = Address(0, 0)


@lru_cache(_ADDRESSES_KEPT)
def address_of(host: str) -> Address:
    """The address of a client, from Java's text; a scope, as in `fe80:0:0:0:0:0:0:1%eth0`, is left out."""
    try:
        if ":" in host:
            return Address(6, int(IPv6Address(host.partition("%")[0])))
        return Address(4, int(IPv4Address(host)))
    except AddressValueError:
        return _NO_ADDRESS


def parse_range(text: str) -> AddressRange:
    """
    The range that a text with a slash names. Bits of the address behind the prefix have no effect.

    Raises:
        ValueError: the text names none. The message is Kafka's.
    """
    return _parse_v6(text) if ":" in text else _parse_v4(text)


def _parse_v4(text: str) -> AddressRange:
    match = _V4_RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *parts, length = map(int, match.groups())
    for value, most in (*((part, 255) for part in parts), (length, 32)):
        if value > most:
            raise ValueError(f"Value [{value}] not in range [0,{most}]")
    return AddressRange(4, length, int.from_bytes(bytes(parts)) >> (32 - length))


def _parse_v6(text: str) -> AddressRange:
    address, _, length_text = text.partition("/")
    if not _PREFIX_LENGTH.fullmatch(length_text):
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    length = int(length_text)
    if not 0 <= length <= 128:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    try:
        parsed = IPv6Address(_LEADING_ZEROS.sub("", bare))
    except AddressValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if parsed.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return AddressRange(6, length, int(parsed) >> (128 - length))
