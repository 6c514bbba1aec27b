"""
Which of a log's oldest segments its topic's retention does not keep.

Source: Kafka UnifiedLog.deleteOldSegments, deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments.
"""

from collections.abc import Callable, Sequence

from kohort.storage.log import LogConfig


def count_expired(
    sizes: Sequence[int],
    ends: Sequence[int],
    newest_ms: Callable[[int], int],
    config: LogConfig,
    high_watermark: int,
    now_ms: int,
) -> int:
    """
    How many segments go, from the oldest on. An empty last one never goes.

    Args:
        sizes: bytes per segment.
        ends: the offset that follows each.
        newest_ms: the largest timestamp of a segment, by its place.
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
