"""
The instant of logs at rest: the end of the logs in a directory, which is "now" for all tables, reports and metrics of it.

It is when a coordinator last wrote. Coordinators write by the clock of their broker. The timestamps of other records come from
producers, whose clocks may be wrong by any time, or are those of events. The clock of the reader says nothing about a copy. So
the instant is never later than the end of the logs, by the broker's clock; it is earlier by the time for which no coordinator
had anything to write: no member, no commit, no transaction.
"""

from collections.abc import Iterable, Mapping

from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.segment_ends import SegmentEnd, segment_end
from kohort.pipeline.decode.segments import Segment, by_partition


def end_of_logs(latest_ms: Mapping[str, int]) -> int:
    """
    Return the end of some logs; 0 if no coordinator has written.

    Args:
        latest_ms: the greatest timestamp of a batch, by topic. Topics of others than coordinators do not count.
    """
    return max((at_ms for topic, at_ms in latest_ms.items() if topic in INTERNAL_TOPICS), default=0)


def latest_ms(segments: Iterable[Segment]) -> dict[str, int]:
    """Return the greatest timestamp of each topic, from the newest segment of each log that has a batch."""
    found: dict[str, int] = {}
    for (topic, _), log in by_partition(sorted(segments)).items():
        ends = (_end_if_there(segment) for segment in reversed(log))
        at_ms = next((end.timestamp_ms for end in ends if end is not None and end.timestamp_ms is not None), None)
        if at_ms is not None:
            found[topic] = max(at_ms, found.get(topic, at_ms))
    return found


def _end_if_there(segment: Segment) -> SegmentEnd | None:
    """Return the end of a segment; None if the file was removed since it was listed."""
    try:
        return segment_end(segment)
    except FileNotFoundError:
        return None
