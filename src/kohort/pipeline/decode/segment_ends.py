"""
The end of a segment, from its indexes and its last batches: a broker's newest segment has up to 1 GiB.

An entry of the offset index names a batch near the end, and only the batches from there on are read. The time index names the
greatest timestamp before it. An index is believed if a whole batch with a correct checksum is at its last entry. Without
indexes, headers are read from the segment's begin. The checksum of the last batch tells whether it was written completely; if
not, the whole segment is checked.

Source: Kafka OffsetIndex, TimeIndex (entries; the files of active segments end in zero bytes), LogSegment.append (both
indexes get an entry for the same batch).
"""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from kohort.pipeline.decode.batches import Scan, scan, scans
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.storage import is_remote, mapped
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, fields_struct

_PREFIX = fields_struct("base_offset", "length")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_SUFFIX = ".log"


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


class IndexEntry(NamedTuple):
    """A batch that an index names: an offset not before its base offset, and its position."""

    offset: int
    position: int


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
    if last is None or len(scan(data, begin=int(last.positions[-1]), until=int(last.ends[-1])).positions) == 1:
        return end
    end = start
    for found in scans(data, begin=begin):
        end = end.behind(found)
    return end


def entry_before(segment: Segment, data: Any, offset: int) -> IndexEntry | None:
    """
    Return the last index entry below an offset: the batches of the offset are at its position or behind it. None if there is
    no such entry, or no batch with a correct checksum at its position.
    """
    if is_remote(segment.path):
        return None
    entries = _file(segment, ".index")
    count = _count(entries, _OFFSET_ENTRY.size, lambda at: _OFFSET_ENTRY.unpack_from(entries, at)[1] > 0)
    below = _count(
        entries,
        _OFFSET_ENTRY.size,
        lambda at: segment.base_offset + _OFFSET_ENTRY.unpack_from(entries, at)[0] < offset,
        count,
    )
    return _checked(segment, data, entries, below - 1)


def _indexed(segment: Segment, data: Any) -> tuple[int, int] | None:
    """Return the position of the last indexed batch, and the greatest timestamp up to it; None without usable indexes."""
    last = entry_before(segment, data, 1 << 62)
    if last is None:
        return None
    entries = _file(segment, ".timeindex")
    count = _count(entries, _TIME_ENTRY.size, lambda at: _TIME_ENTRY.unpack_from(entries, at) != (0, 0))
    if count == 0:
        return None
    timestamp_ms, relative = _TIME_ENTRY.unpack_from(entries, (count - 1) * _TIME_ENTRY.size)
    # The file of another log, or an index that was not cut with its segment.
    is_inside = 0 <= relative <= last.offset - segment.base_offset
    return (last.position, timestamp_ms) if is_inside else None


def _checked(segment: Segment, data: Any, entries: Any, number: int) -> IndexEntry | None:
    """Return an entry of the offset index if a whole batch is at its position."""
    if number < 0:
        return None
    relative, position = _OFFSET_ENTRY.unpack_from(entries, number * _OFFSET_ENTRY.size)
    size = len(data)
    if not 0 < position <= size - HEADER_BYTES:
        return None
    base_offset, length = _PREFIX.unpack_from(data, position)
    end = position + LOG_OVERHEAD_BYTES + length
    if not segment.base_offset <= base_offset <= segment.base_offset + relative or not position < end <= size:
        return None
    found = scan(data, begin=position, until=end)
    return IndexEntry(segment.base_offset + relative, position) if len(found.positions) == 1 else None


def _file(segment: Segment, suffix: str) -> Any:
    """Return the bytes of an index; none if there is no such file."""
    path = segment.path.removesuffix(_SUFFIX) + suffix
    try:
        return mapped(path) if Path(path).exists() else b""
    except FileNotFoundError:
        return b""


def _count(entries: Any, size: int, is_below: Callable[[int], bool], count: int | None = None) -> int:
    """Return how many leading entries satisfy a condition. Few pages of the file are read."""
    low, high = 0, len(entries) // size if count is None else count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_below(middle * size) else (low, middle)
    return low
