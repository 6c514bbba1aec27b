"""Which logs a source has, how large they are, and where they start. Files tell it of a directory, table `log` of a store."""

from collections.abc import Collection

from kohort.client.security import PLAINTEXT, Security
from kohort.pipeline.decode.log_starts import log_starts as starts_of_segments
from kohort.pipeline.decode.segments import list_segments, newest_segments, partition_directories
from kohort.pipeline.sources import live
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.postgres import logs as stored
from kohort.pipeline.sources.postgres.address import is_database

RECORD_BYTES = 100
"""An estimate, of commits."""


def log_bytes(
    path: str, topics: Collection[str] | None, *, newest: bool = False, security: Security = PLAINTEXT
) -> int | None:
    """
    Return the size of the logs of some topics, or of all; None without such logs. That of a cluster is an estimate from the
    number of records.

    Args:
        newest: only what tells the ends of logs.

    Raises:
        ConfigError: the source cannot be read.
    """
    if live.is_live(path):
        logs = live.list_logs(path, topics=topics, security=security)
        return sum(log.end - log.start for log in logs) * RECORD_BYTES if logs else None
    if is_database(path):
        sizes = [0 if newest else log.size_bytes for log in stored.list_logs(path, topics=topics)]
    else:
        segments = list_segments(path, topics=topics)
        sizes = [one.size_bytes for one in (newest_segments(segments) if newest else segments)]
    return sum(sizes) if sizes else None


def places(path: str, topics: Collection[str] | None = None, *, security: Security = PLAINTEXT) -> set[TopicPartition]:
    """
    Return the logs of some topics, or of all.

    Raises:
        ConfigError: the source cannot be read.
    """
    if live.is_live(path):
        return {log.place for log in live.list_logs(path, topics=topics, security=security)}
    if is_database(path):
        return {log.place for log in stored.list_logs(path, topics=topics)}
    found = ((topic, partition) for topic, partition, _ in partition_directories(path))
    return {place for place in found if topics is None or place[0] in topics}


def log_starts(
    path: str, topics: Collection[str] | None, *, security: Security = PLAINTEXT
) -> dict[TopicPartition, int]:
    """
    Return the log start offsets of some topics, or of all that clients can read.

    Raises:
        ConfigError: the source cannot be read.
    """
    if live.is_live(path):
        return {log.place: log.start for log in live.list_logs(path, topics=topics, security=security)}
    if is_database(path):
        return {log.place: log.start for log in stored.list_logs(path, topics=topics)}
    return starts_of_segments(list_segments(path, topics=topics))
