"""
Retention by time and size: the oldest segments of a log that are to be deleted.

Source: Kafka UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kohort.storage.log import LogConfig


class LogSegment(Protocol):
    """A segment on disk or in memory."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def newest_ms(self) -> int: ...
    @property
    def rolling_timestamp_ms(self) -> int: ...


def count_expired(
    sizes: Sequence[int],
    ends: Sequence[int],
    newest_ms: Callable[[int], int],
    config: LogConfig,
    high_watermark: int,
    now_ms: int,
) -> int:
    """
    The number of expired segments, from the oldest on. An empty last segment never expires.

    Args:
        sizes: the bytes of each segment.
        ends: the offset behind each segment.
        newest_ms: returns the largest timestamp of the segment at an index.
    """
    if "delete" not in config.cleanup_policy.split(","):
        return 0
    excess = sum(sizes) - config.retention_bytes
    count = 0
    for place, size in enumerate(sizes):
        if ends[place] > high_watermark or (size == 0 and place == len(sizes) - 1):
            break
        is_too_large = config.retention_bytes >= 0 and excess - size >= 0
        is_too_old = config.retention_ms >= 0 and now_ms - newest_ms(place) > config.retention_ms
        if not is_too_large and not is_too_old:
            break
        excess -= size
        count += 1
    return count
