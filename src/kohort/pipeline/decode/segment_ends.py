"""
The end of a segment, from its indexes and its last batches: a broker's newest segment has up to 1 GiB.

An entry of the offset index names a batch near the end, and only the batches from there on are read. The time index names the
greatest timestamp before it. An index is believed if a whole batch with a correct checksum is at its last entry. Without
indexes, headers are read from the segment's begin. The checksum of the last batch tells whether it was written completely; if
not, the whole segment is checked.

Source: Kafka OffsetIndex, TimeIndex (entries; the files of active segments end in zero bytes), LogSegment.append (both
indexes get an entry for the same batch).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from kohort.pipeline.decode.batches import Scan, base_offset_at, scans
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Mark
from kohort.pipeline.decode.storage import is_remote, mapped


class SegmentEnd(NamedTuple):
    """
    Attributes:
        next_offset: behind the last whole batch; the base offset of a segment without a batch.
        timestamp_ms: the greatest of all records; None without a batch.
    """

    next_offset: int
    timestamp_ms: int | None

    def behind(self, found: Scan) -> "SegmentEnd":
        """Return the end behind the batches of a scan that continues here."""
        if not len(found.positions):
            return self
        latest_ms = int(found.headers["max_timestamp"].max())
        latest_ms = latest_ms if self.timestamp_ms is None else max(latest_ms, self.timestamp_ms)
        return SegmentEnd(int(found.next_offsets[-1]), latest_ms)


class _Index(Sequence[tuple[int, int]]):
    """The entries of an index file; none if there is no such file. Few pages of the file are read."""

    def __init__(self, segment: Segment, suffix: str, entry: Struct) -> None:
        path = segment.path.removesuffix(".log") + suffix
        self._entry = entry
        try:
            self._data = mapped(path) if Path(path).exists() else b""
        except FileNotFoundError:
            self._data = b""

    def __len__(self) -> int:
        return len(self._data) // self._entry.size

    def __getitem__(self, number: Any) -> Any:
        return self._entry.unpack_from(self._data, number * self._entry.size)


def segment_end(segment: Segment, data: Any | None = None) -> SegmentEnd:
    """
    Return the end of a segment.

    Args:
        data: the bytes of the segment, if they are at hand; otherwise the file is mapped.

    Raises:
        FileNotFoundError: the file was removed.
        ConfigError: the file cannot be read.
    """
    data = mapped(segment.path) if data is None else data
    known = None if is_remote(segment.path) else _indexed(segment, data)
    begin, timestamp_ms = (0, None) if known is None else known
    start = end = SegmentEnd(segment.base_offset, timestamp_ms)
    last = None
    for found in scans(data, check_crc=False, begin=begin):
        end, last = end.behind(found), found if len(found.positions) else last
    if last is None or base_offset_at(data, int(last.positions[-1])) is not None:
        return end
    end = start
    for found in scans(data, begin=begin):
        end = end.behind(found)
    return end


def entry_before(segment: Segment, data: Any, offset: int) -> Mark | None:
    """
    Return the last index entry below an offset: an offset not before the base offset of a batch, and its position. The batches
    of `offset` are there or behind it. None if there is no such entry, or no batch with a correct checksum at its position.
    """
    if is_remote(segment.path):
        return None
    entries = _Index(segment, ".index", Struct(">ii"))
    count = bisect_left(entries, True, key=lambda entry: entry[1] <= 0)
    below = bisect_left(entries, offset - segment.base_offset, hi=count, key=itemgetter(0))
    if below == 0:
        return None
    relative, position = entries[below - 1]
    base_offset = base_offset_at(data, position)
    is_there = base_offset is not None and 0 <= base_offset - segment.base_offset <= relative
    return Mark(segment.base_offset + relative, position) if is_there else None


def marks_around(segment: Segment, data: Any, position: int) -> tuple[Mark, Mark] | None:
    """
    Return the last indexed batch up to a position, and the one indexed before it; None without two such entries, or without
    batches with correct checksums at their positions.
    """
    entries = _Index(segment, ".index", Struct(">ii"))
    count = bisect_left(entries, True, key=lambda entry: entry[1] <= 0)
    number = bisect_right(entries, position, hi=count, key=itemgetter(1)) - 1
    if number < 1:
        return None
    before, here = (entries[one][1] for one in (number - 1, number))
    offsets = base_offset_at(data, before), base_offset_at(data, here)
    return None if offsets[0] is None or offsets[1] is None else (Mark(offsets[0], before), Mark(offsets[1], here))


def _indexed(segment: Segment, data: Any) -> tuple[int, int] | None:
    """Return the position of the last indexed batch, and the greatest timestamp up to it; None without usable indexes."""
    last = entry_before(segment, data, 1 << 62)
    if last is None:
        return None
    entries = _Index(segment, ".timeindex", Struct(">qi"))
    count = bisect_left(entries, True, key=lambda entry: entry == (0, 0))
    if count == 0:
        return None
    timestamp_ms, relative = entries[count - 1]
    # The file of another log, or an index that was not cut with its segment.
    is_inside = 0 <= relative <= last.offset - segment.base_offset
    return (last.position, timestamp_ms) if is_inside else None
