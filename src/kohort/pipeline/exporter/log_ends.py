"""
The end of a partition's log in a directory, and the transactions that are open there, from the headers of its batches.

The newest segment is scanned once, and then what was appended. The transactions that began before it are in the snapshot of the
producers' state that the broker wrote when the segment began. Without a snapshot, the segments before it are scanned, too.

Source: Kafka ProducerStateManager (snapshots, first unstable offset), LogLoader (where a recovery begins).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kohort.model.limits import EXPORTED_OPEN_PRODUCERS_MAX
from kohort.pipeline.decode.batch_rows import controls
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.decode.transaction_files import OpenTransaction, open_before
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL


class Scanned(NamedTuple):
    """The scanned part of a segment file: the end of its last whole batch, and its size at that time."""

    base_offset: int
    path: str
    identity: int
    position: int
    size_bytes: int


@dataclass(slots=True)
class LogEnd:
    """
    The end of one log.

    Attributes:
        end_offset: behind the last whole batch.
        open: the open transactions, by producer id.
        dropped: open transactions beyond `EXPORTED_OPEN_PRODUCERS_MAX`.
    """

    end_offset: int = 0
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    dropped: int = 0
    _scanned: Scanned | None = None

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min((one.first_offset for one in self.open.values()), default=self.end_offset)

    def update(self, segments: Sequence[Segment]) -> None:
        """
        Scan what was appended.

        Args:
            segments: all of the log, at least one.

        Raises:
            FileNotFoundError: a segment was removed since it was listed.
        """
        if self._scanned is None or self._is_replaced(self._scanned, segments):
            segments = self._begin(segments)
        for segment in segments:
            self._scan(segment)

    def _is_replaced(self, scanned: Scanned, segments: Sequence[Segment]) -> bool:
        """Tell whether the log was truncated, or deleted and created again."""
        same = [segment for segment in segments if segment.path == scanned.path]
        is_shorter = any(one.identity == scanned.identity and one.size_bytes < scanned.size_bytes for one in same)
        return is_shorter or segments[-1].base_offset < scanned.base_offset

    def _begin(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Restore the state before the newest segment that has a snapshot; return the segments from there on."""
        self.open, self._scanned = {}, None
        for number in range(len(segments) - 1, 0, -1):
            known = open_before(segments[number])
            if known is not None:
                for producer_id, one in known.items():
                    self._add(producer_id, *one)
                break
        else:
            number = 0
        self.end_offset = segments[number].base_offset
        return segments[number:]

    def _scan(self, segment: Segment) -> None:
        before = self._scanned
        position = 0
        if before is not None:
            if segment.base_offset < before.base_offset:
                return
            if (segment.path, segment.identity) == (before.path, before.identity):
                if segment.size_bytes == before.size_bytes:
                    return
                position = before.position
        for found in scans(mapped(segment.path), check_crc=False, begin=position):
            if len(found.positions):
                self._look(found)
                position = int(found.ends[-1])
        self.end_offset = max(self.end_offset, segment.base_offset)
        self._scanned = Scanned(segment.base_offset, segment.path, segment.identity, position, segment.size_bytes)

    def _look(self, found: Scan) -> None:
        known, self.end_offset = self.end_offset, max(self.end_offset, int(found.next_offsets.max()))
        attributes = found.headers["attributes"].astype(np.int16)
        is_ours = ((attributes & (CONTROL | TRANSACTIONAL)) != 0) & (found.next_offsets > known)
        chosen = np.flatnonzero(is_ours)
        if not len(chosen):
            return
        some = found.of(chosen)
        columns = ("base_offset", "max_timestamp", "producer_id")
        offsets, times_ms, producers = (some.headers[name].astype(np.int64).tolist() for name in columns)
        is_control = ((attributes[chosen] & CONTROL) != 0).tolist()
        ends = controls(some).to_pylist()
        for row, producer_id in enumerate(producers):
            if not is_control[row]:
                self._add(producer_id, offsets[row], times_ms[row])
            elif ends[row] is not None:
                self.open.pop(producer_id, None)

    def _add(self, producer_id: int, offset: int, at_ms: int) -> None:
        begun = self.open.get(producer_id)
        if begun is None and len(self.open) >= EXPORTED_OPEN_PRODUCERS_MAX:
            self.dropped += 1
            return
        self.open[producer_id] = OpenTransaction(offset if begun is None else begun.first_offset, at_ms)
