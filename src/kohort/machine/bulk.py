"""
Many records at once, for speed: `LongRecords` are replayed in slices, `PackedRecords` are encoded already, and `RawRecords` are
positions in the bytes of a log, with columns of numpy, which is not imported here.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:
    from kohort.wire.columnar.vectors import Bytes, Ints


class RawRecords(msgspec.Struct, frozen=True, eq=False):
    """
    Records outside transactions with a key, in the order of the log. Each array has one element per record.

    Attributes:
        raw, data: the same bytes as bytes and as an array. They are padded: any key and value may be read up to 64 bytes
            beyond its end.
        offsets: the offsets in the log.
        key_at, key_bytes: position and length of each key.
        value_at, value_bytes: position and length of each value; the length of a tombstone is -1.
    """

    raw: bytes
    data: "Bytes"
    offsets: "Ints"
    key_at: "Ints"
    key_bytes: "Ints"
    value_at: "Ints"
    value_bytes: "Ints"

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, rows: "Ints | slice") -> "RawRecords":
        """Return the records of these rows."""
        return RawRecords(
            self.raw,
            self.data,
            self.offsets[rows],
            self.key_at[rows],
            self.key_bytes[rows],
            self.value_at[rows],
            self.value_bytes[rows],
        )

    def pair(self, index: int) -> tuple[bytes, bytes | None]:
        """Return the key and the value of one record."""
        key_at, value_at, size = int(self.key_at[index]), int(self.value_at[index]), int(self.value_bytes[index])
        key = self.raw[key_at : key_at + int(self.key_bytes[index])]
        return key, None if size < 0 else self.raw[value_at : value_at + size]


class PackedRecords(Sequence[R_co]):
    """
    Records of one operation that are encoded already. As a sequence they make each record when it is read;
    `Shard.replay_all` takes them as a whole.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Declared again, because compiled code calls the method of a class that is not compiled by name."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """An upper bound of their size in a batch."""

    @abstractmethod
    def pack(self, first_delta: int, /) -> bytes:
        """Return the bytes of the records in a batch with their timestamp; the first one has the offset delta `first_delta`."""

    @abstractmethod
    def replay(self, shard: Any, offset: int, /) -> None:
        """Replay the records on their shard, outside a transaction; `offset` is the log offset of the first one."""

    @abstractmethod
    def pairs(self) -> list[tuple[bytes, bytes | None]]:
        """Return key and value of each record."""


LONG_RECORDS_STEP: Final = 500
"""Records of a long operation that are encoded, or replayed, in one slice."""


class LongRecords(Sequence[R_co]):
    """
    Records of one operation that are too many for one turn of the event loop. Each record is made when it is read.

    The runtime encodes and replays them in slices of `LONG_RECORDS_STEP`, and appends them in one batch. Until then it runs no
    other operation of the partition. Queries do not see the records before they are committed, as those of any operation.

    Args:
        entries: one for each record.
        make: makes the record of an entry.
    """

    __slots__ = ("_entries", "_make")

    def __init__(self, entries: Sequence[Any], make: Callable[[Any], R_co]) -> None:
        self._entries = entries
        self._make = make

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> R_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[R_co]: ...
    def __getitem__(self, index: int | slice) -> R_co | list[R_co]:
        if isinstance(index, slice):
            make = self._make
            return [make(entry) for entry in self._entries[index]]
        return self._make(self._entries[index])

    def slices(self) -> Iterator[list[R_co]]:
        """Make all records, in lists of `LONG_RECORDS_STEP`."""
        for low in range(0, len(self._entries), LONG_RECORDS_STEP):
            yield self[low : low + LONG_RECORDS_STEP]


def records_of(entries: Sequence[Any], make: Callable[[Any], R_co]) -> Sequence[R_co]:
    """The records of an operation, one for each entry: in slices, if they are too many for one turn."""
    return LongRecords(entries, make) if len(entries) > LONG_RECORDS_STEP else list(map(make, entries))
