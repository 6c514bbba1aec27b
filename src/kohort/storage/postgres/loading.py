"""The contents of the database for the start of a node: everything but the batches."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.epochs import EpochCache
from kohort.storage.postgres.connect import Connection
from kohort.storage.postgres.statements import Int8s
from kohort.storage.postgres.writes import unpack_state
from kohort.storage.producer_states import AbortedTxn, ProducerStateEntry

_LOGS: Final = b"""
SELECT log_id, topic, partition, topic_id, leader_epoch, next_offset, start_offset, attempt, size_bytes, clean_offset
FROM log WHERE state = 0 ORDER BY log_id
"""
_EPOCHS: Final = b"""
SELECT log_id, leader_epoch, start_offset FROM epoch WHERE log_id = ANY($1) ORDER BY log_id, start_offset
"""
_PRODUCERS: Final = b"SELECT log_id, producer_id, state FROM producer WHERE log_id = ANY($1)"
_ABORTED: Final = b"""
SELECT log_id, producer_id, first_offset, last_offset, last_stable_offset FROM aborted WHERE log_id = ANY($1)
ORDER BY log_id, last_offset
"""
_NOT_REMOVED: Final = b"""
SELECT log_id, CASE WHEN state = 0 THEN start_offset END FROM log
WHERE state = 2 OR (state = 0 AND EXISTS (
  SELECT 1 FROM batch WHERE batch.log_id = log.log_id AND batch.last_offset < log.start_offset
))
"""


class LoadedLog(msgspec.Struct):
    """The row of a log, and what depends on its batches."""

    log_id: int
    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    next_offset: int
    start_offset: int
    attempt: int
    size_bytes: int
    clean_offset: int
    epochs: EpochCache = msgspec.field(default_factory=EpochCache)
    producers: list[ProducerStateEntry] = msgspec.field(default_factory=list)
    aborted: list[AbortedTxn] = msgspec.field(default_factory=list)


def load_logs(connection: Connection) -> list[LoadedLog]:
    """All logs in use. Raises: CorruptError: the state of a producer cannot be read."""
    return with_dependents(connection, connection.execute(_LOGS))


def with_dependents(connection: Connection, rows: Iterable[tuple[Any, ...]]) -> list[LoadedLog]:
    """
    The logs of rows, with what depends on their batches.

    Raises:
        CorruptError: the state of a producer cannot be read.
    """
    logs = {
        log_id: LoadedLog(log_id, TopicPartition(topic, partition), *values)
        for log_id, topic, partition, *values in rows
    }
    ids = (Int8s(logs),)
    for log_id, leader_epoch, start_offset in connection.execute(_EPOCHS, ids):
        logs[log_id].epochs.assign(leader_epoch, start_offset)
    for log_id, producer_id, state in connection.execute(_PRODUCERS, ids, binary=True):
        try:
            logs[log_id].producers.append(unpack_state(producer_id, state))
        except msgspec.DecodeError as error:
            raise CorruptError(
                f"the state of producer {producer_id} of {logs[log_id].topic_partition} is damaged: {error}"
            ) from None
    for log_id, *values in connection.execute(_ABORTED, ids):
        logs[log_id].aborted.append(AbortedTxn(*values))
    for log in logs.values():
        log.epochs.truncate_from_start(log.start_offset)
    return list(logs.values())


def not_removed(connection: Connection) -> list[tuple[int, int | None]]:
    """The leftovers of an earlier run: the batches of a log before an offset; a deleted log for None."""
    return [(row[0], row[1]) for row in connection.execute(_NOT_REMOVED)]
