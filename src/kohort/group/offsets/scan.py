"""A scan of the offsets of all groups in chunks, so that an operation can handle some and a later one the rest."""

from collections.abc import Callable, Sequence

import msgspec

from kohort.group.offsets.offsets import Partition

OFFSETS_AT_ONCE = 1_000
"""An operation that has looked at so many offsets ends: that takes about a millisecond."""
TOMBSTONES_AT_ONCE = 100
"""An operation that has so many records to write ends: that takes about a millisecond, too. Also the size of a chunk."""


class OffsetScan(msgspec.Struct, frozen=True):
    """
    The position of a scan.

    Attributes:
        group_ids: the groups that existed when the scan began.
        index: the next group.
        partitions: of that group, when its first chunk was taken; empty unless the group needs several chunks.
        next_partition: index in `partitions`.
    """

    group_ids: Sequence[str]
    index: int = 0
    partitions: Sequence[Partition] = ()
    next_partition: int = 0

    @property
    def is_over(self) -> bool:
        return self.index == len(self.group_ids)

    def step(self, partitions_of: Callable[[str], Sequence[Partition]]) -> "ScanChunk":
        """The next group, or the next part of a large one; `partitions_of` lists the partitions of a group."""
        group_id = self.group_ids[self.index]
        partitions = self.partitions if self.next_partition else partitions_of(group_id)
        end = self.next_partition + TOMBSTONES_AT_ONCE
        chunk = partitions[self.next_partition : end]
        if end < len(partitions):
            return ScanChunk(group_id, chunk, False, OffsetScan(self.group_ids, self.index, partitions, end))
        return ScanChunk(group_id, chunk, True, OffsetScan(self.group_ids, self.index + 1))


class ScanChunk(msgspec.Struct, frozen=True):
    """
    Some partitions of a group; their offsets may have been deleted since the scan of the group began.

    Attributes:
        is_last: whether this is the last chunk of the group.
        rest: the scan after this chunk.
    """

    group_id: str
    partitions: Sequence[Partition]
    is_last: bool
    rest: OffsetScan
