"""
The checksums of a segment's indexes, `<base offset>.checksums`: Kafka's index files have none.

    "KX01"  CRC-32C of `.index`, `.timeindex`, `.txnindex`, uint32 each  CRC-32C uint32 of the bytes before

A missing `.txnindex` counts as an empty one. The file is written with the indexes and not flushed on its own: a torn, older or
damaged one does not fit the indexes, and the indexes are rebuilt from the segment. A segment without the file was written by
Apache Kafka, which ignores and keeps the files of others; its indexes are believed.
"""

from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from kohort.storage.durability import syscalls
from kohort.wire.native import crc32c

CHECKSUMS_SUFFIX: Final = ".checksums"

_MAGIC: Final = b"KX01"
_FILE: Final = Struct(">4sIII")
_CRC: Final = Struct(">I")


class IndexChecksums(NamedTuple):
    """CRC-32C of the content of three files."""

    offset_index: int
    time_index: int
    txn_index: int

    def write(self, path: Path) -> None:
        """
        Raises:
            OSError: the file could not be written.
        """
        content = _FILE.pack(_MAGIC, *self)
        syscalls.write_file(path, content + _CRC.pack(crc32c(content)))

    def is_right(self, path: Path) -> bool:
        """Whether the file at the path has these checksums, or does not exist."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return True
        return read_checksums(data) == self


def read_checksums(data: bytes) -> IndexChecksums | None:
    """The checksums in the content of a file; None if it is damaged."""
    try:
        magic, *checksums = _FILE.unpack_from(data)
        (crc,) = _CRC.unpack(data[_FILE.size :])
    except error:
        return None
    return IndexChecksums(*checksums) if magic == _MAGIC and crc == crc32c(data[: _FILE.size]) else None
