"""
What a shard may add to its contract for speed: taking many records at once.

An operation that writes many hands them over together (`RunShard`), perhaps as bytes (`PackedRecords`), and so does the load
of a large log (`BulkShard`). The loader finds the newest record of each key before anything is decoded; a shard with
`replay_bulk` is handed those as positions in the bytes of the log and may read whole columns of them. numpy is needed for that,
and is not imported here.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from kohort.machine.shard import R_contra

R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:
    from kohort.wire.vectors import Bytes, Ints


class RawRecords(msgspec.Struct, frozen=True, eq=False):
    """
    Records outside transactions, none with a null key, in the order of the log; one element a record in every array.

    Attributes:
        raw, data: the bytes that hold them, for reading one and many; padded, so that any key and value may be read beyond its
            end by 64 bytes.
        offsets: their places in the log.
        key_at, key_bytes: where each key is, and how long.
        value_at, value_bytes: each value; -1 bytes for a tombstone.
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
        """Some of them."""
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
        """The key and the value of one of them."""
        key_at, value_at, size = int(self.key_at[index]), int(self.value_at[index]), int(self.value_bytes[index])
        key = self.raw[key_at : key_at + int(self.key_bytes[index])]
        return key, None if size < 0 else self.raw[value_at : value_at + size]


class BulkShard(Protocol):
    """A shard that can replay many records at once."""

    def replay_bulk(self, records: RawRecords, replay_one: Callable[[int], None], /) -> Iterator[None]:
        """
        Do what replaying these records one by one, in order, would do; yields every millisecond or two. Nothing else is
        replayed meanwhile.

        Args:
            replay_one: decodes and replays one record by its index. For every record that is not of the usual form: it skips
                unknown types, and sets aside what cannot be decoded.
        """


class PackedRecords(Sequence[R_co]):
    """
    Records of one operation that know their bytes: a sequence of records like any other, whose elements are made only for who
    asks for them. The shard's `RunShard.replay_all` takes it as a whole.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """An upper bound of what they take in a batch."""

    @abstractmethod
    def pack(self, first_delta: int, /) -> bytes:
        """The records as they stand in a batch of their own time, the first with an offset of `first_delta` in it."""

    @abstractmethod
    def replay(self, shard: Any, offset: int, /) -> None:
        """Apply the records to their shard, outside of a transaction; `offset` is the place of the first in the log."""

    @abstractmethod
    def pairs(self) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each."""


class RunShard(Protocol[R_contra]):
    """A shard that replays the records of one operation faster together than one by one."""

    def replay_all(self, offset: int, producer_id: int, producer_epoch: int, records: Sequence[R_contra], /) -> None:
        """Do what `replay` of each would do, in order; `offset` is the place of the first in the log."""
