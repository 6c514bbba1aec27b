"""
Where batches begin in a segment file, one mark for every stretch of it, so that reading can begin in the middle.

Headers are walked without checksums (3 GB/s), and what has been walked once is not walked again while the file only grows. A
mark may be wrong, where lengths are damaged or compaction has put another file in place: who uses one looks whether the
batch is there (`decode.slices`).
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kohort.pipeline.decode.batches import Corruption, Scan, scans
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Mark
from kohort.pipeline.decode.storage import mapped
from kohort.wire.vectors import Ints

STRIDE_BYTES = 64 << 10
SEGMENTS_MAX = 4096
"""Segments whose marks are kept; more than a broker has partitions of coordinators."""


@dataclass(slots=True)
class SegmentIndex:
    """
    Attributes:
        identity, walked_bytes: the file and its size when it was walked.
        offsets, positions: of a batch about every `STRIDE_BYTES`.
        end_offset, end_position: what follows the last whole batch; the segment's base offset while there is none.
    """

    identity: int
    end_offset: int
    end_position: int = 0
    walked_bytes: int = 0
    offsets: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    positions: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def before(self, offset: int) -> Mark | None:
        """The last mark before an offset."""
        index = int(np.searchsorted(self.offsets, offset)) - 1
        return None if index < 0 else Mark(int(self.offsets[index]), int(self.positions[index]))

    def not_before(self, offset: int) -> Mark | None:
        """The first mark at or behind an offset."""
        index = int(np.searchsorted(self.offsets, offset))
        return None if index == len(self.offsets) else Mark(int(self.offsets[index]), int(self.positions[index]))

    def stop(self, *, position: int, offset: int) -> int:
        """The offset of the first mark at or behind a position that is behind an offset; the end where there is none."""
        index = max(np.searchsorted(self.positions, position), np.searchsorted(self.offsets, offset, side="right"))
        return self.end_offset if index == len(self.positions) else int(self.offsets[index])

    def tail(self, segment: Segment) -> list[Corruption]:
        """What lies behind the last whole batch."""
        if self.end_position >= self.walked_bytes:
            return []
        return [one for found in scans(mapped(segment.path), begin=self.end_position) for one in found.damage]

    def walk(self, segment: Segment) -> None:
        """Go on to the end of the file."""
        data = mapped(segment.path)
        for found in scans(data, check_crc=False, begin=self.end_position):
            if len(found.positions):
                self._mark(found)
        self.walked_bytes = len(data)

    def _mark(self, found: Scan) -> None:
        self.end_position = int(found.ends[-1])
        # A header's offset is under no checksum: one that leads back is not believed.
        self.end_offset = max(self.end_offset, int(found.next_offsets.max()))
        stride = found.positions // STRIDE_BYTES
        first = np.flatnonzero(np.diff(stride, prepend=-1))
        offsets = found.headers["base_offset"].astype(np.int64)[first]
        self.offsets = np.maximum.accumulate(np.concatenate([self.offsets, offsets]))
        self.positions = np.concatenate([self.positions, found.positions[first]])


class ScannedSegment(NamedTuple):
    """How far a segment has been walked, with its last mark: what is worth writing down."""

    path: str
    identity: int
    walked_bytes: int
    end_offset: int
    end_position: int
    mark_offset: int
    mark_position: int


class SparseIndex:
    """The marks of segments that were asked for, the latest kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SegmentIndex] = OrderedDict()

    def scanned(self, paths: Collection[str]) -> list[ScannedSegment]:
        """What is known of some segments, where there is a batch in them."""
        return [
            ScannedSegment(
                path,
                one.identity,
                one.walked_bytes,
                one.end_offset,
                one.end_position,
                int(one.offsets[-1]),
                int(one.positions[-1]),
            )
            for path, one in self._known.items()
            if path in paths and len(one.offsets)
        ]

    def remember(self, scanned: Iterable[ScannedSegment]) -> None:
        """Take over what `scanned` told another time; what is known by now stays."""
        for one in scanned:
            if one.path not in self._known:
                offsets, positions = (np.array([value], np.int64) for value in (one.mark_offset, one.mark_position))
                self._known[one.path] = SegmentIndex(
                    one.identity, one.end_offset, one.end_position, one.walked_bytes, offsets, positions
                )

    def forget(self, paths: Iterable[str]) -> None:
        """Other files have their names now; the system may have given them the same numbers."""
        for path in paths:
            self._known.pop(path, None)

    def of(self, segment: Segment) -> SegmentIndex:
        """
        The marks of a segment as it is now.

        Raises:
            FileNotFoundError: it has gone.
        """
        found = self._known.pop(segment.path, None)
        if found is None or found.identity != segment.identity or found.walked_bytes > segment.size_bytes:
            found = SegmentIndex(segment.identity, segment.base_offset)
        if found.walked_bytes != segment.size_bytes:
            found.walk(segment)
        self._known[segment.path] = found
        if len(self._known) > SEGMENTS_MAX:
            self._known.popitem(last=False)
        return found
