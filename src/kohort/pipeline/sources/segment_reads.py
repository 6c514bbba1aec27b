"""
Reads of segment files that a running broker replaces or deletes between the plan and the read.

Compaction merges a segment into an earlier one, which then has the records of both. Retention deletes segments. A topic that
was created again has other records in files of the same names. A read is limited to the offsets that its segment had when it
was listed, so that a merged segment gives every batch once.

Source: Kafka Cleaner.groupSegmentsBySize and LocalLog.replaceSegments (a merged segment has the base offset of the first one,
and gets its name after the old ones were deleted), UnifiedLog.deleteOldSegments.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment, segments_of
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources.topic_ids import id_beside

_LAST_OFFSET = (1 << 63) - 1
_LISTINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """
    A segment as it was listed.

    Attributes:
        until: the base offset of the next segment of the log; None for the newest one.
        topic_id: None if it is unknown.
    """

    segment: Segment
    until: int | None = None
    topic_id: str | None = None

    @property
    def end(self) -> int:
        return _LAST_OFFSET if self.until is None else self.until

    def is_unchanged(self) -> bool:
        """Tell whether the file is still the one that was listed."""
        path, identity = self.segment.path, self.segment.identity
        try:
            return storage.is_remote(path) or not identity or os.stat(path).st_ino == identity
        except FileNotFoundError:
            return False

    def opened(self) -> tuple[Any, Segment] | None:
        """Open the file that has the records of the segment now: its own, or one that it was merged into. None: deleted."""
        there: Segment | None = self.segment
        for _ in range(_LISTINGS_MAX):
            if there is None:
                break
            try:
                return storage.mapped(there.path), there
            except FileNotFoundError:
                there = self._now()
        return None

    def other_topic(self) -> str | None:
        """Return a sentence's end if the topic of the log is another one now."""
        now = None if storage.is_remote(self.segment.path) else id_beside(os.path.dirname(self.segment.path))
        is_other = now is not None and self.topic_id is not None and now != self.topic_id
        return f"its topic was created again (topic id {now})" if is_other else None

    def newest(self) -> Segment | None:
        """Return the newest segment of the log now."""
        return max(self._listed(), default=None)

    def _now(self) -> Segment | None:
        return max((one for one in self._listed() if one.base_offset <= self.segment.base_offset), default=None)

    def _listed(self) -> Iterable[Segment]:
        return segments_of(os.path.dirname(self.segment.path), self.segment.topic, self.segment.partition)


def planned_segments(segments: Sequence[Segment], topic_ids: Mapping[str, str] | None = None) -> list[PlannedSegment]:
    """Return the segments of one or more logs, which are sorted, with the base offsets of their next ones."""
    ids = topic_ids or {}
    return [
        PlannedSegment(one, _until(one, following), ids.get(one.topic))
        for one, following in zip_longest(segments, segments[1:])
    ]


def _until(segment: Segment, following: Segment | None) -> int | None:
    is_same_log = following is not None and (following.topic, following.partition) == (segment.topic, segment.partition)
    return following.base_offset if following is not None and is_same_log else None


def read_whole(decoder: Decoder, planned: PlannedSegment) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment; none if it was deleted, as in a read after that."""
    if planned.is_unchanged():
        with suppress(FileNotFoundError):
            yield from decoder.decode_file(planned.segment)
            return
    found = planned.opened()
    if found is not None:
        data, segment = found
        yield from decoder.decode(data, segment, Slice(planned.segment.base_offset, planned.end, has_tail=True))
    # The newest segment tells the end of the log.
    if planned.until is None and (newest := planned.newest()) is not None:
        yield from decoder.segment_row(newest)


def read_slice(
    decoder: Decoder, planned: PlannedSegment, stretch: Slice, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a slice that lie in a segment.

    Raises:
        ConfigError: records were deleted since the plan, and that is an error. Otherwise they are a row of kind damage.
    """
    found = planned.opened()
    start, end = max(stretch.start, planned.segment.base_offset), min(stretch.end, planned.end)
    loss = "its segment was deleted" if found is None else planned.other_topic()
    if loss is not None:
        place = f"{planned.segment.topic}-{planned.segment.partition}"
        problem = f"{place} was to be read from offset {start} to {end}, and {loss} meanwhile"
        if fail_on_data_loss:
            raise ConfigError(f"{problem}; option failOnDataLoss=false continues without these records")
        yield from decoder.damage_rows([Corruption(0, planned.segment.size_bytes, problem, start)], planned.segment)
    elif found is not None:
        data, segment = found
        is_own = segment == planned.segment and planned.is_unchanged()
        # The marks are not used if a batch with their offset is not there.
        yield from decoder.decode(data, segment, stretch if is_own else replace(stretch, start=start, end=end))
