"""A small writer of OpenTelemetry metrics in protobuf."""

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(key: str, text: str) -> bytes:
    return field(1, key) + field(2, field(1, text))


def point(number: bytes, attributes: dict[str, str]) -> bytes:
    """A data point with the field of its value, an unknown field and attributes."""
    return field(3, b"") + number + b"".join(field(7, attribute(*each)) for each in attributes.items())


def gauge(name: str, value: float, **attributes: str) -> bytes:
    number = varint(4 << 3 | 1) + struct.pack("<d", value)
    return field(1, name) + field(2, "about") + field(5, field(1, point(number, attributes)))


def total(name: str, value: float, *, is_delta: bool = True, is_monotonic: bool = True, **attributes: str) -> bytes:
    number = varint(6 << 3 | 1) + struct.pack("<q", value)
    kinds = field(2, 1 if is_delta else 2) + field(3, int(is_monotonic))
    return field(1, name) + field(7, field(1, point(number, attributes)) + kinds)


def histogram(name: str) -> bytes:
    return field(1, name) + field(9, field(1, b"") + field(2, 1))


def message(metrics: Iterable[bytes]) -> bytes:
    resource = field(1, field(1, attribute("service", "x")))
    return field(1, resource + field(2, field(1, field(1, "scope")) + b"".join(field(2, each) for each in metrics)))
