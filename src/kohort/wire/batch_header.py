"""
The header of a record batch of magic 2: 61 bytes, defined once.

Modules that read a whole header, some of its fields, or many headers as numpy columns take positions and formats from here. The
positions are literals, so that compiled modules have them as constants; a test compares them with `FIELDS`.

Source: Kafka DefaultRecordBatch.
"""

from struct import Struct, calcsize
from typing import Final

FIELDS: Final = (
    ("base_offset", "q"),
    ("length", "i"),
    ("leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("count", "i"),
)
"""Fields in their order, with the characters of `struct`; big-endian."""

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length, which the length does not count."""
MAGIC: Final = 2

LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
"""The checksum covers the batch from here to its end."""
ATTRIBUTES_LOW_AT: Final = 22
"""The byte with the attributes in use: codec, timestamp type, transactional, control, delete horizon."""
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


def position_of(field: str) -> int:
    """The position of a field in the header."""
    names = [name for name, _ in FIELDS]
    return calcsize(">" + "".join(character for _, character in FIELDS[: names.index(field)]))


def fields_struct(first: str, last: str) -> Struct:
    """The `struct` of adjacent fields, from one to another, both included."""
    names = [name for name, _ in FIELDS]
    return Struct(">" + "".join(character for _, character in FIELDS[names.index(first) : names.index(last) + 1]))


HEADER: Final = fields_struct("base_offset", "count")

_LONG_RANGE_HALF: Final = 1 << 63


def as_long(value: int) -> int:
    """Wrap a number to a signed 64-bit integer, as Java does; a reader that adds in the same way gets the number back."""
    return (value + _LONG_RANGE_HALF) % (2 * _LONG_RANGE_HALF) - _LONG_RANGE_HALF
