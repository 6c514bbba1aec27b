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
_ROWS: Final = 64


class Verified(msgspec.Struct):
    """The batches that were read, and sentences about faults."""

    logs: int = 0
    batches: int = 0
    size_bytes: int = 0
    problems: list[str] = []


def verify(connection: Connection) -> Verified:
    """Read all batches, some at a time. A log that is written to meanwhile may have more than its row said."""
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
