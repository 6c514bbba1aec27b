"""
The checksums of a segment's indexes, `<base offset>.checksums`: Kafka's index files have none. And the size of the segment.

    "KX02"  CRC-32C of `.index`, `.timeindex`, `.txnindex`, uint32 each  size of `.log`, uint64
    CRC-32C uint32 of the bytes before

Older versions wrote "KX01" without the size.

A missing `.txnindex` counts as an empty one. The file is written with the indexes and not flushed on its own: a torn, older or
damaged one does not fit the indexes, and the indexes are rebuilt from the segment. A segment without the file was written by
Apache Kafka, which ignores and keeps the files of others; its indexes are believed.
"""

from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from kohort.storage.files import syscalls
from kohort.wire.native import crc32c

CHECKSUMS_SUFFIX: Final = ".checksums"

_MAGIC: Final = b"KX02"
_FILE: Final = Struct(">4sIIIQ")
_OLD_MAGIC: Final = b"KX01"
_OLD_FILE: Final = Struct(">4sIII")
_CRC: Final = Struct(">I")


class IndexChecksums(NamedTuple):
    """CRC-32C of the content of three files, and the size of the segment when they were written; 0 if that is not known."""

    offset_index: int
    time_index: int
    txn_index: int
    log_bytes: int = 0

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
        found = read_checksums(data)
        return found is not None and found[:3] == self[:3]


def written_bytes(path: Path) -> int:
    """The size of the segment when the file at the path was written; 0 if that is not known."""
    try:
        found = read_checksums(path.read_bytes())
    except FileNotFoundError:
        return 0
    return 0 if found is None else found.log_bytes


def read_checksums(data: bytes) -> IndexChecksums | None:
    """The checksums in the content of a file; None if it is damaged."""
    layout, wanted = (_OLD_FILE, _OLD_MAGIC) if data.startswith(_OLD_MAGIC) else (_FILE, _MAGIC)
    try:
        magic, *checksums = layout.unpack_from(data)
        (crc,) = _CRC.unpack(data[layout.size :])
    except error:
        return None
    return IndexChecksums(*checksums) if magic == wanted and crc == crc32c(data[: layout.size]) else None
