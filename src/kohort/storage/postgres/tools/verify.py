"""A check of everything that a store in a database has, against the rules that the writer keeps."""

from collections.abc import Iterator
from typing import Final

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import span_at
from kohort.storage.postgres.connect import Connection
from kohort.wire.batches import check_crc, read_header

_LOGS: Final = b"""
SELECT log_id, topic, partition, leader_epoch, next_offset, start_offset FROM log WHERE state <> 2 ORDER BY log_id
"""
_BATCHES: Final = b"""
SELECT base_offset, last_offset, max_timestamp, data FROM batch WHERE log_id = $1 AND last_offset >= $2
ORDER BY last_offset LIMIT $3
"""
_ORPHANS: Final = b"""
SELECT count(*) FROM batch WHERE NOT EXISTS (SELECT 1 FROM log WHERE log.log_id = batch.log_id)
"""
# In one statement each: what a log is at one time, whatever is written meanwhile.
_SIZES: Final = b"""
SELECT topic, partition, log.size_bytes, found.size FROM log
LEFT JOIN (SELECT log_id, sum(octet_length(data)) AS size FROM batch GROUP BY log_id) AS found ON found.log_id = log.log_id
WHERE state <> 2 AND log.size_bytes <> coalesce(found.size, 0) ORDER BY 1, 2
"""
_NO_MARKERS: Final = b"""
SELECT topic, partition, aborted.last_offset FROM aborted JOIN log ON log.log_id = aborted.log_id
WHERE state <> 2 AND aborted.last_offset >= log.start_offset AND NOT EXISTS (
  SELECT 1 FROM batch WHERE batch.log_id = aborted.log_id AND batch.last_offset = aborted.last_offset
) ORDER BY 1, 2, 3
"""
_UNKNOWN_CLEAN: Final = (
    b"SELECT topic, partition, clean_offset FROM log WHERE state <> 2 AND clean_offset > next_offset"
)
_ROWS: Final = 64


class Verified(msgspec.Struct):
    """The batches that were read, and sentences about faults."""

    logs: int = 0
    batches: int = 0
    size_bytes: int = 0
    problems: list[str] = []


def verify(connection: Connection) -> Verified:
    """
    Read all batches, some at a time. A log that is written to meanwhile may have more than its row said. A compacted log has
    gaps between its batches; its last one is always there.
    """
    result = Verified()
    for log_id, topic, partition, leader_epoch, next_offset, start_offset in connection.execute(_LOGS).fetchall():
        result.logs += 1
        name, end = TopicPartition(topic, partition), 0
        for base_offset, last_offset, max_timestamp_ms, data in _batches(connection, log_id, start_offset):
            result.batches += 1
            result.size_bytes += len(data)
            problem = _problem_of(data, base_offset, last_offset, max_timestamp_ms, leader_epoch)
            if not problem and base_offset < end:
                problem = f"it begins before the end of the batch before it, {end}"
            if problem:
                result.problems.append(f"{name}, batch {base_offset} to {last_offset}: {problem}")
            end = last_offset + 1
        end = max(end, start_offset)
        if end < next_offset:
            result.problems.append(f"{name} has batches up to {end}, and its next offset is {next_offset}")
    for topic, partition, size_bytes, found in connection.execute(_SIZES):
        result.problems.append(f"{topic}-{partition} has {found or 0} bytes, and its row says {size_bytes}")
    for topic, partition, offset in connection.execute(_NO_MARKERS):
        result.problems.append(f"{topic}-{partition} has an aborted transaction whose marker, {offset}, is not there")
    for topic, partition, offset in connection.execute(_UNKNOWN_CLEAN):
        result.problems.append(f"{topic}-{partition} is compacted up to {offset}, which is above its next offset")
    row = connection.execute(_ORPHANS).fetchone()
    if row is not None and row[0]:
        result.problems.append(f"{row[0]} batches belong to no log")
    return result


def _batches(connection: Connection, log_id: int, offset: int) -> Iterator[tuple[int, int, int, bytes]]:
    while rows := connection.execute(_BATCHES, (log_id, offset, _ROWS), binary=True).fetchall():
        yield from rows
        offset = rows[-1][1] + 1


def _problem_of(data: bytes, base_offset: int, last_offset: int, max_timestamp_ms: int, leader_epoch: int) -> str:
    """The fault of a batch, a sentence; empty without one."""
    span = span_at(data, 0)
    if span is None or span[1] != len(data):
        return "its bytes are no whole batch"
    if span[2:] != (base_offset, last_offset, max_timestamp_ms):
        return f"its bytes say {span[2]} to {span[3]}, and time {span[4]} instead of {max_timestamp_ms}"
    if not check_crc(data):
        return "its checksum is wrong"
    if read_header(data).partition_leader_epoch > leader_epoch:
        return f"its leader epoch is above that of the log, {leader_epoch}"
    return ""
