"""
The transaction index of a segment, `.txnindex`: the aborted transactions that a reader with `read_committed` skips.

Entries of 34 bytes by rising last offset: version int16 (0), producer id, first offset, last offset and last stable offset,
int64 each. The first entry creates the file.

Source: Kafka TransactionIndex, AbortedTxn.
"""

import os
from collections.abc import Callable
from functools import partial
from operator import lt
from pathlib import Path
from struct import Struct

from kohort.model.errors import CorruptError
from kohort.storage.files import syscalls
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.native import crc32c

TXN_INDEX_SUFFIX = ".txnindex"

_SIZE_BYTES_MAX = 1 << 30
"""A marker takes more than twice the bytes of its entry, and a segment has at most 2 GiB."""
_VERSION = 0
_ENTRY = Struct(">hqqqq")


class AbortedIndex:
    """The aborted transactions whose markers are in one segment; the first access reads the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTxn] | None = None
        self.is_unsynced = False
        """Whether the file was written since the last checkpoint began; maintained by the log."""

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory."""
        return self._entries is not None

    @property
    def entries(self) -> list[AbortedTxn]:
        """
        Raises:
            CorruptError: the file is damaged.
        """
        return self._entries if self._entries is not None else self.load()

    def load(self) -> list[AbortedTxn]:
        """
        Read the file.

        Raises:
            CorruptError: the file is damaged.
        """
        self._entries = self._read()
        return self._entries

    @property
    def checksum(self) -> int:
        """
        CRC-32C of the content.

        Raises:
            CorruptError: the file is damaged.
        """
        return crc32c(b"".join(map(to_bytes, self.entries)))

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry, without flushing the file."""
        self.add(aborted)()

    def add(self, aborted: AbortedTxn) -> Callable[[], None]:
        """Add an entry in memory; returns what writes it to the file, which any thread may call."""
        self.entries.append(aborted)
        self.is_unsynced = True
        return partial(syscalls.append_to, self.path, to_bytes(aborted))

    def begin(self) -> None:
        """Note that a new segment has no entries."""
        self._entries = []

    def clear(self) -> None:
        syscalls.remove(self.path)
        self._entries = []

    def is_plausible(self, base_offset: int, offset_max: int) -> bool:
        """Whether the entries are rising and within a segment of these offsets. Source: TransactionIndex.sanityCheck."""
        try:
            entries = self.entries
        except CorruptError:
            return False
        ends = [entry.last_offset for entry in entries]
        are_rising = all(map(lt, ends, ends[1:]))
        are_inside = not ends or base_offset <= ends[0] <= ends[-1] <= offset_max
        return are_rising and are_inside and all(0 <= entry.first_offset <= entry.last_offset for entry in entries)

    def _read(self) -> list[AbortedTxn]:
        try:
            with self.path.open("rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                if size_bytes > _SIZE_BYTES_MAX:
                    raise CorruptError(f"{self.path}: {size_bytes} bytes are more than a segment's markers can fill")
                data = file.read()
        except FileNotFoundError:
            return []
        return from_bytes(data, str(self.path))


def to_bytes(aborted: AbortedTxn) -> bytes:
    return _ENTRY.pack(
        _VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
    )


def from_bytes(data: bytes, what: str) -> list[AbortedTxn]:
    """
    Raises:
        CorruptError: the bytes are not whole entries of this version; `what` names their source.
    """
    if len(data) % _ENTRY.size:
        raise CorruptError(f"{what}: {len(data)} bytes are no whole entries")
    found = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptError(f"{what}: an entry of version {version}")
        found.append(AbortedTxn(*fields))
    return found


def find_overlapping(entries: list[AbortedTxn], offset: int, upper: int) -> tuple[list[AbortedTxn], bool]:
    """The entries that overlap the offsets from `offset` to below `upper`, and whether no later entry can."""
    found = []
    for aborted in entries:
        if aborted.last_offset >= offset and aborted.first_offset < upper:
            found.append(aborted)
        if aborted.last_stable_offset >= upper:
            return found, True
    return found, False
