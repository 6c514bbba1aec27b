"""
A sparse index of a segment file: the position of one batch per stride, so that reading can begin in the middle.

Batch headers are scanned without checksums (3 GB/s), and only the new end of a growing file is scanned again. An entry can be
wrong, after damaged lengths or a compaction that replaced the file: users verify that the batch is there (`decode.slices`).
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
from kohort.wire.columnar.vectors import Ints

STRIDE_BYTES = 64 << 10
SEGMENTS_MAX = 4096
"""Segments whose index is cached; more than a broker has partitions of coordinators."""


@dataclass(slots=True)
class SegmentIndex:
    """
    The index of one segment.

    Attributes:
        identity, scanned_bytes: the file, and its size when it was scanned.
        offsets, positions: of one batch about every `STRIDE_BYTES`.
        end_offset, end_position: behind the last complete batch; the base offset and 0 if there is none.
    """

    identity: int
    end_offset: int
    end_position: int = 0
    scanned_bytes: int = 0
    offsets: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    positions: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def before(self, offset: int) -> Mark | None:
        """Return the last entry before an offset."""
        index = int(np.searchsorted(self.offsets, offset)) - 1
        return None if index < 0 else Mark(int(self.offsets[index]), int(self.positions[index]))

    def not_before(self, offset: int) -> Mark | None:
        """Return the first entry at or after an offset."""
        index = int(np.searchsorted(self.offsets, offset))
        return None if index == len(self.offsets) else Mark(int(self.offsets[index]), int(self.positions[index]))

    def stop(self, *, position: int, offset: int) -> int:
        """Return the offset of the first entry at or after a position and after an offset; the end if there is none."""
        index = max(np.searchsorted(self.positions, position), np.searchsorted(self.offsets, offset, side="right"))
        return self.end_offset if index == len(self.positions) else int(self.offsets[index])

    def tail(self, segment: Segment) -> list[Corruption]:
        """Return the corruption behind the last complete batch."""
        if self.end_position >= self.scanned_bytes:
            return []
        return [one for found in scans(mapped(segment.path), begin=self.end_position) for one in found.damage]

    def scan(self, segment: Segment) -> None:
        """Scan the rest of the file."""
        data = mapped(segment.path)
        for found in scans(data, check_crc=False, begin=self.end_position):
            if len(found.positions):
                self._mark(found)
        self.scanned_bytes = len(data)

    def _mark(self, found: Scan) -> None:
        self.end_position = int(found.ends[-1])
        # The checksum does not cover the base offset. An offset that goes backwards is ignored.
        self.end_offset = max(self.end_offset, int(found.next_offsets.max()))
        stride = found.positions // STRIDE_BYTES
        first = np.flatnonzero(np.diff(stride, prepend=-1))
        offsets = found.headers["base_offset"].astype(np.int64)[first]
        self.offsets = np.maximum.accumulate(np.concatenate([self.offsets, offsets]))
        self.positions = np.concatenate([self.positions, found.positions[first]])


class ScannedSegment(NamedTuple):
    """The end of the scanned part of a segment, with its last entry: the part of an index that runs store."""

    path: str
    identity: int
    scanned_bytes: int
    end_offset: int
    end_position: int
    mark_offset: int
    mark_position: int


class SparseIndex:
    """A cache of segment indexes, least recently used first out."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SegmentIndex] = OrderedDict()

    def scanned(self, paths: Collection[str]) -> list[ScannedSegment]:
        """Return the state of some segments that contain a batch."""
        return [
            ScannedSegment(
                path,
                one.identity,
                one.scanned_bytes,
                one.end_offset,
                one.end_position,
                int(one.offsets[-1]),
                int(one.positions[-1]),
            )
            for path, one in self._known.items()
            if path in paths and len(one.offsets)
        ]

    def remember(self, scanned: Iterable[ScannedSegment]) -> None:
        """Restore the result of an earlier `scanned`, for segments not scanned since."""
        for one in scanned:
            if one.path not in self._known:
                offsets, positions = (np.array([value], np.int64) for value in (one.mark_offset, one.mark_position))
                self._known[one.path] = SegmentIndex(
                    one.identity, one.end_offset, one.end_position, one.scanned_bytes, offsets, positions
                )

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the indexes of replaced files; the new files may have the same inode numbers."""
        for path in paths:
            self._known.pop(path, None)

    def of(self, segment: Segment) -> SegmentIndex:
        """
        Return the index of a segment, up to date.

        Raises:
            FileNotFoundError: the file was deleted.
        """
        found = self._known.pop(segment.path, None)
        if found is None or found.identity != segment.identity or found.scanned_bytes > segment.size_bytes:
            found = SegmentIndex(segment.identity, segment.base_offset)
        if found.scanned_bytes != segment.size_bytes:
            found.scan(segment)
        self._known[segment.path] = found
        if len(self._known) > SEGMENTS_MAX:
            self._known.popitem(last=False)
        return found
