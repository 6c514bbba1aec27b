"""A walk over the offsets of all groups in pieces, for what is done to many of them: each operation takes some."""

from collections.abc import Callable, Sequence

import msgspec

from kohort.group.offsets.offsets import Partition

OFFSETS_AT_ONCE = 5_000
TOMBSTONES_AT_ONCE = 1_000
"""When an operation has done enough: some milliseconds of looking, or of writing. A step has no more than the second."""


class OffsetScan(msgspec.Struct, frozen=True):
    """
    How far it is.

    Attributes:
        group_ids: the groups that there were when it began.
        index: the group that is next.
        partitions: those with an offset in that group when its turn came, if they are too many for one step.
        place: which of them is next.
    """

    group_ids: Sequence[str]
    index: int = 0
    partitions: Sequence[Partition] = ()
    place: int = 0

    @property
    def is_over(self) -> bool:
        return self.index == len(self.group_ids)

    def step(self, partitions_of: Callable[[str], Sequence[Partition]]) -> "ScanChunk":
        """The next group, or the next part of one that is large; `partitions_of` lists what there is in a group."""
        group_id = self.group_ids[self.index]
        partitions = self.partitions if self.place else partitions_of(group_id)
        until = self.place + TOMBSTONES_AT_ONCE
        some = partitions[self.place : until]
        if until < len(partitions):
            return ScanChunk(group_id, some, False, OffsetScan(self.group_ids, self.index, partitions, until))
        return ScanChunk(group_id, some, True, OffsetScan(self.group_ids, self.index + 1))


class ScanChunk(msgspec.Struct, frozen=True):
    """
    Some partitions of a group; there may be no offset in them any more.

    Attributes:
        is_last: whether these were the last of the group.
        rest: what is left of the walk.
    """

    group_id: str
    partitions: Sequence[Partition]
    is_last: bool
    rest: OffsetScan
