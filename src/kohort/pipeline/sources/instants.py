"""
The instant of logs at rest: the end of the logs in a directory or a store, which is "now" for all tables, reports and metrics
of it.

It is when a broker last wrote, as far as the logs tell. Coordinators write by the clock of their broker. The timestamps of
other records come from producers, whose clocks may be wrong by any time, or are those of events. They count for topics whose
readers prove them right: the record before a committed offset was appended before the commit, so its timestamp must not be
later. The clock of the reader says nothing about a copy, and plays no part.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.batch_rows import first_timestamps_ms
from kohort.pipeline.decode.batches import Scan
from kohort.pipeline.decode.segment_ends import SegmentEnd, segment_end
from kohort.pipeline.decode.segments import Segment, by_partition, list_segments
from kohort.pipeline.decode.storage import is_remote
from kohort.pipeline.sources.first_unread import batches_from
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.postgres import logs as stored
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.postgres.connection import opened
from kohort.wire.batch_header import CONTROL

SKEW_MS = 5_000
"""By how much the clocks of brokers and producers may differ and count as right."""
SILENCE_MAX_MS = 7 * 86_400_000
"""The time after the last write of a coordinator in which a record counts: then its groups have expired, which is a write."""
PROOFS_MAX = 50_000
"""Committed offsets that are looked up; of more, none is."""


class Read(NamedTuple):
    """A committed offset of a partition, and when it was committed."""

    offset: int
    committed_ms: int


def end_of_source(path: str, committed: Mapping[TopicPartition, Read], written_ms: int = 0) -> int:
    """
    Return the end of the logs in a directory or a store; 0 if no coordinator has written.

    Args:
        written_ms: as for `end_of_logs`.
        committed: a committed offset of each partition that has one, as `newest_reads` returns them.

    Raises:
        ConfigError: the source cannot be read.
    """
    topics = INTERNAL_TOPICS | {topic for topic, _ in committed}
    if is_database(path):
        with opened(path) as connection:
            latest = stored.latest_ms(connection, stored.logs_of(connection, topics=topics))
        return end_of_logs(latest, right_topics(proofs_in(path, committed)), written_ms)
    segments = list_segments(path, topics=topics)
    return end_of_logs(latest_ms(segments), right_topics(proofs(segments, committed)), written_ms)


def end_of_logs(latest_ms: Mapping[str, int], right: Collection[str] = (), written_ms: int = 0) -> int:
    """
    Return the end of some logs.

    Args:
        latest_ms: the greatest timestamp of a batch, by topic.
        right: the topics of others than coordinators whose timestamps count.
        written_ms: when a Spark query last wrote, which counts as a coordinator does.
    """
    written_ms = max([written_ms, *(at_ms for topic, at_ms in latest_ms.items() if topic in INTERNAL_TOPICS)])
    others = (latest_ms.get(topic, 0) for topic in right)
    return max(written_ms, *(at_ms for at_ms in others if at_ms <= written_ms + SILENCE_MAX_MS), 0)


def latest_ms(segments: Iterable[Segment]) -> dict[str, int]:
    """Return the greatest timestamp of each topic, from the newest segment of each log that has a batch."""
    found: dict[str, int] = {}
    for (topic, _), log in by_partition(sorted(segments)).items():
        ends = (_end_if_there(segment) for segment in reversed(log))
        at_ms = next((end.timestamp_ms for end in ends if end is not None and end.timestamp_ms is not None), None)
        if at_ms is not None:
            found[topic] = max(at_ms, found.get(topic, at_ms))
    return found


def newest_reads(commits: Iterable[tuple[str, int, int | None, int | None]]) -> dict[TopicPartition, Read]:
    """
    Return the greatest committed offset of each partition, and when it was first committed.

    Args:
        commits: topic, partition, offset and time of commits; those without offset or time do not count.
    """
    found: dict[TopicPartition, Read] = {}
    for topic, partition, offset, committed_ms in commits:
        if offset is None or committed_ms is None:
            continue
        known = found.get((topic, partition))
        if known is None or (offset, -committed_ms) > (known.offset, -known.committed_ms):
            found[topic, partition] = Read(offset, committed_ms)
    return found


def proofs(segments: Iterable[Segment], committed: Mapping[TopicPartition, Read]) -> dict[TopicPartition, bool]:
    """
    Return whether the record before each committed offset has a timestamp that the commit proves right, not later than the
    commit; without the partitions that have no such record. Logs in an object store are not looked at.
    """
    if len(committed) > PROOFS_MAX:
        return {}
    logs = by_partition(sorted(one for one in segments if one.place in committed and not is_remote(one.path)))
    return _proved({place: partial(batches_from, log) for place, log in logs.items()}, committed)


def proofs_in(path: str, committed: Mapping[TopicPartition, Read]) -> dict[TopicPartition, bool]:
    """As `proofs`, of the logs in a directory or a store."""
    topics = {topic for topic, _ in committed}
    if not is_database(path):
        return proofs(list_segments(path, topics=topics), committed)
    if not 0 < len(committed) <= PROOFS_MAX:
        return {}
    with opened(path) as connection:
        logs = (log for log in stored.logs_of(connection, topics=topics) if log.place in committed)
        return _proved({log.place: partial(stored.batches_from, connection, log) for log in logs}, committed)


def _proved(
    logs: Mapping[TopicPartition, Callable[[int], Iterable[Scan]]], committed: Mapping[TopicPartition, Read]
) -> dict[TopicPartition, bool]:
    found = {}
    for place, batches in logs.items():
        produced_ms = _read_at_ms(batches, committed[place].offset)
        if produced_ms is not None:
            found[place] = produced_ms <= committed[place].committed_ms + SKEW_MS
    return found


def right_topics(proved: Mapping[TopicPartition, bool]) -> set[str]:
    """Return the topics that have a proof, and none of the contrary."""
    return {topic for topic, _ in proved} - {topic for (topic, _), is_right in proved.items() if not is_right}


def _read_at_ms(batches: Callable[[int], Iterable[Scan]], offset: int) -> int | None:
    """Return the timestamp of the first record of the last batch with data that begins before an offset, near the offset."""
    at_ms = None
    for found in batches(max(offset - 2, 0)):
        base_offsets = found.headers["base_offset"].astype(np.int64)
        is_data = (found.headers["attributes"].astype(np.int16) & CONTROL) == 0
        chosen = np.flatnonzero((base_offsets < offset) & is_data & (found.headers["count"] > 0))
        if len(chosen):
            at_ms = first_timestamps_ms(found.of(chosen[-1:]))[0].as_py()
        if int(found.next_offsets[-1]) >= offset:
            break
    return at_ms


def _end_if_there(segment: Segment) -> SegmentEnd | None:
    """Return the end of a segment; None if the file was removed since it was listed."""
    try:
        return segment_end(segment)
    except FileNotFoundError:
        return None
