"""
CRC-32C checksums of Kafka's text files, which have none, in a form that Apache Kafka ignores; and the one flipped bit that a
checksum reveals.

A checkpoint file keeps its checksum in 32 blanks behind its last entry, one a bit, the highest first: a space is 0, a tab is 1.
Kafka splits lines at white space and drops empty fields at their end, so it reads the same entries. File and checksum are
replaced by one rename. `meta.properties` keeps its checksum in a comment in the first line. A file without a checksum is not
checked: Apache Kafka, or an editor, has written it.

A checksum that is wrong by a single bit tells which one: CRC-32C is linear, and the syndromes of single bits are distinct up to
2^31 bits. Damage that is not one bit is taken for one with a probability of (bits of the data) / 2^32.

Source: Kafka CheckpointFile, OffsetCheckpointFile.Formatter, LeaderEpochCheckpointFile.Formatter (Pattern "\\s+").
"""

import logging
from pathlib import Path
from typing import Final

from kohort.model.errors import CorruptError
from kohort.wire.native import crc32c

_log = logging.getLogger("kohort.storage")

_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC-32C, reflected."""
_CRC_BITS: Final = 32
_BLANKS: Final = b" \t"
_COMMENT: Final = b"#kohort.crc32c="
_HEX_DIGITS: Final = 8
_ENTRIES_AT_LINE: Final = 2
"""The lines of a checkpoint file before its entries: version and number of entries."""


def seal(text: str) -> str:
    """Put the checksum behind the last entry of a checkpoint file. A file without entries has no place for it, and no need."""
    if text.count("\n") <= _ENTRIES_AT_LINE:
        return text
    content = text.removesuffix("\n")
    bits = f"{crc32c(content.encode()):032b}"
    return content + bits.replace("0", " ").replace("1", "\t") + "\n"


def read_sealed(path: Path) -> str:
    """
    The text of a checkpoint file, without the blanks at its end.

    Raises:
        CorruptError: the checksum is wrong, and not by a single bit.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    content, blanks = data[: -_CRC_BITS - 1], data[-_CRC_BITS - 1 : -1]
    odd = [index for index, byte in enumerate(blanks) if byte not in _BLANKS]
    if len(blanks) < _CRC_BITS or len(odd) > 1:
        return data.decode("utf-8", "replace")
    stored = int("".join("1" if byte == _BLANKS[1] else "0" for byte in blanks), 2)
    return _checked(path, content, stored).decode("utf-8", "replace") + "\n"


def comment(text: str) -> str:
    """Put the checksum in front of a properties file, as a comment."""
    return f"{_COMMENT.decode()}{crc32c(text.encode()):08x}\n{text}"


def is_commented(data: bytes) -> bool:
    """Whether a properties file has a checksum, right or wrong: Kohort has written it."""
    return data.startswith(_COMMENT)


def read_commented(path: Path) -> str:
    """
    The text of a properties file.

    Raises:
        CorruptError: the checksum in the first line is wrong, and not by a single bit.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    first, _, content = data.partition(b"\n")
    digits = first.removeprefix(_COMMENT)
    if digits == first or len(digits) != _HEX_DIGITS:
        return data.decode("utf-8", "replace")
    found = f"{crc32c(content):08x}".encode()
    if sum(one != other for one, other in zip(digits, found, strict=True)) <= 1:  # a damaged digit says nothing
        return content.decode("utf-8", "replace")
    try:
        stored = int(digits, 16)
    except ValueError:
        raise _wrong(path) from None
    return _checked(path, content, stored).decode("utf-8", "replace")


def _checked(path: Path, content: bytes, stored: int) -> bytes:
    """The content if the checksum is right, or has one wrong bit itself; else with the one wrong bit corrected."""
    if (crc32c(content) ^ stored).bit_count() <= 1:
        return content
    corrected = correct_bit(content, stored)
    if corrected is None:
        raise _wrong(path)
    position = next(index for index, byte in enumerate(content) if byte != corrected[index])
    _log.warning("file.bit_corrected path=%s position=%d", path, position)
    return corrected


def _wrong(path: Path) -> CorruptError:
    return CorruptError(f"{path} has a wrong checksum")


def correct_bit(data: bytes, crc: int) -> bytes | None:
    """
    Flip the one bit of the data with which its CRC-32C is `crc`; None if there is none.

    The cost is some 0.2 us a byte.
    """
    syndrome = crc32c(data) ^ crc
    table = [_shift(value) for value in range(256)]
    by_top = {value >> 24: index for index, value in enumerate(table)}
    bits = {table[1 << bit]: 1 << bit for bit in range(8)}
    for position in range(len(data) - 1, -1, -1):
        mask = bits.get(syndrome)
        if mask is not None:
            return data[:position] + bytes((data[position] ^ mask,)) + data[position + 1 :]
        index = by_top[syndrome >> 24]  # one step of the checksum backwards
        syndrome = ((syndrome ^ table[index]) << 8 & 0xFFFFFFFF) | index
    return None


def _shift(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value
