"""
Where batches begin in a segment file, one mark for every stretch of it, so that reading can begin in the middle.

Headers are walked without checksums (3 GB/s), and what has been walked once is not walked again while the file only grows. A
mark may be wrong, where lengths are damaged or compaction has put another file in place: who uses one looks whether the
batch is there (`decode.slices`).
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Mark
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.vectors import Ints

STRIDE_BYTES = 64 << 10
SEGMENTS_MAX = 4096
"""Segments whose marks are kept; more than a broker has partitions of coordinators."""


@dataclass(slots=True)
class SegmentMarks:
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

    def walk(self, segment: Segment) -> None:
        """Go on to the end of the file."""
        data = mapped(segment.path)
        found = scan(data, check_crc=False, begin=self.end_position)
        self.walked_bytes = len(data)
        if not len(found.positions):
            return
        self.end_position = int(found.ends[-1])
        # A header's offset is under no checksum: one that leads back is not believed.
        self.end_offset = max(self.end_offset, int(found.next_offsets.max()))
        stride = found.positions // STRIDE_BYTES
        first = np.flatnonzero(np.diff(stride, prepend=-1))
        offsets = found.headers["base_offset"].astype(np.int64)[first]
        self.offsets = np.maximum.accumulate(np.concatenate([self.offsets, offsets]))
        self.positions = np.concatenate([self.positions, found.positions[first]])


class Marks:
    """The marks of segments that were asked for, the latest kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SegmentMarks] = OrderedDict()

    def of(self, segment: Segment) -> SegmentMarks:
        """
        The marks of a segment as it is now.

        Raises:
            FileNotFoundError: it has gone.
        """
        found = self._known.pop(segment.path, None)
        if found is None or found.identity != segment.identity or found.walked_bytes > segment.size_bytes:
            found = SegmentMarks(segment.identity, segment.base_offset)
        if found.walked_bytes != segment.size_bytes:
            found.walk(segment)
        self._known[segment.path] = found
        if len(self._known) > SEGMENTS_MAX:
            self._known.popitem(last=False)
        return found
