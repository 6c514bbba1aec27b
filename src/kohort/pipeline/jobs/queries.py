"""Facts that a source adds to checkpoints: partitions that their queries will read, and the distance of retention."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kohort.model import ids
from kohort.pipeline.checkpoints.checkpoint import Checkpoint
from kohort.pipeline.checkpoints.retention import Moved, retention_by_topic, time_left_ms
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.sources.extent import places
from kohort.pipeline.sources.first_unread import can_find, find_unread
from kohort.pipeline.sources.live import is_live
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition

CLOCKS_MS: Final = 5_000
"""The greatest difference between the clocks of producers and of a driver."""


def added_partitions(reading: Reading) -> Iterator[dict[str, Any]]:
    """
    Yield rows of table `offsets` for partitions that topics got after the last batch of a query. Spark begins at 0.

    A query that reads chosen partitions (`assign`) gets no others, and its checkpoint does not tell. So a partition counts if
    its first record came after the last batch was planned: until then Spark has not seen it, and a partition without a record
    has no lag.

    Source: Spark KafkaMicroBatchStream.planInputPartitions.
    """
    if reading.as_of_ms is not None or not can_find(reading.logs_in):
        return
    topics = {place.topic for one in reading.checkpoints for place in one.position}
    there = places(reading.logs_in, topics, security=reading.security) if topics else ()
    missing = {one.group: [place for place in sorted(there) if _is_added(one, place)] for one in reading.checkpoints}
    options = SourceOptions.parse({**reading.connection, "path": reading.logs_in})
    asked: dict[TopicPartition, list[int]] = {place: [0] for places in missing.values() for place in places}
    first = find_unread(options, asked) if asked else {}
    for one in reading.checkpoints:
        planned_ms = max(one.began_ms, default=one.finished_ms or 0) - CLOCKS_MS
        for topic, partition in missing[one.group]:
            produced = first[topic, partition].produced.get(0) if (topic, partition) in first else None
            if produced is not None and produced.at_ms >= planned_ms:
                yield {
                    "group": one.group,
                    "topic": topic,
                    "partition": partition,
                    "offset": 0,
                    "leader_epoch": -1,
                    "metadata": "added after the last batch",
                    "commit_timestamp_ms": one.finished_ms,
                }


def _is_added(query: Checkpoint, place: TopicPartition) -> bool:
    """Tell whether a partition lies behind those of its topic that a query reads: Kafka adds partitions at the end."""
    read = [known.partition for known in query.position if known.topic == place[0]]
    return bool(read) and place[1] > max(read)


def retention_left_ms(reading: Reading, time_lag: Collection[Mapping[str, Any]]) -> dict[str, int]:
    """
    Return how long until retention reaches the position of each query, in the first of its partitions. A directory does not
    tell the retention of its topics.

    Args:
        time_lag: rows of table `time_lag`.
    """
    queries = {one.group: one for one in reading.checkpoints if one.earlier is not None}
    rows = [row for row in time_lag if row["group"] in queries and row["next_produced_at_ms"] is not None]
    if not rows or reading.as_of_ms is not None or not is_live(reading.logs_in):
        return {}
    kept_ms = retention_by_topic(reading.logs_in, {row["topic"] for row in rows}, reading.security)
    rows = [row for row in rows if row["topic"] in kept_ms]
    asked: dict[TopicPartition, list[int]] = {}
    for row in rows:
        asked.setdefault((row["topic"], row["partition"]), []).append(_earlier(queries[row["group"]], row)[1])
    options = SourceOptions.parse({**reading.connection, "path": reading.logs_in})
    found = find_unread(options, asked) if asked else {}
    left: dict[str, int] = {}
    for row in rows:
        group, place = row["group"], (row["topic"], row["partition"])
        was_ms, offset = _earlier(queries[group], row)
        produced = found[place].produced.get(offset) if place in found else None
        if produced is not None:
            moved = Moved(was_ms, produced.at_ms, row["next_produced_at_ms"])
            until_ms = time_left_ms(moved, kept_ms[row["topic"]], reading.at_ms)
            if until_ms is not None:
                left[group] = min(until_ms, left.get(group, until_ms))
    return left


def _earlier(query: Checkpoint, row: Mapping[str, Any]) -> tuple[int, int]:
    """Return when a query reached an earlier position, and its offset; a partition that was not there is read from 0."""
    assert query.earlier is not None
    at_ms, position = query.earlier
    return at_ms, position.get(ids.TopicPartition(row["topic"], row["partition"]), 0)
