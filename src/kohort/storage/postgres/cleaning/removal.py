"""Removal of batches that nobody reads any more, beside the writer, in statements of bounded size."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.postgres.connect import Connection, Target, connect, sentence
from kohort.storage.postgres.statements import Byteas, Int8s

T = TypeVar("T")

_log = logging.getLogger("kohort.storage")

ROWS: Final = 500
"""Batches that one statement removes."""

_REMOVE: Final = b"""
WITH gone AS (
  DELETE FROM batch WHERE log_id = $1 AND last_offset IN (
    SELECT last_offset FROM batch WHERE log_id = $1 AND last_offset < $2 ORDER BY last_offset LIMIT $3
  ) RETURNING octet_length(data) AS size
), counted AS (
  SELECT count(*) AS removed, coalesce(sum(size), 0) AS size FROM gone
)
UPDATE log SET size_bytes = log.size_bytes - counted.size FROM counted WHERE log.log_id = $1
RETURNING counted.removed, counted.size
"""
_REMOVE_ABORTED: Final = b"DELETE FROM aborted WHERE log_id = $1 AND last_offset < $2"
_REMOVE_EPOCHS: Final = b"""
DELETE FROM epoch WHERE log_id = $1 AND start_offset < (
  SELECT max(start_offset) FROM epoch WHERE log_id = $1 AND start_offset <= $2
)
"""
# A producer that has come back since has another state.
_REMOVE_PRODUCERS: Final = b"""
DELETE FROM producer USING unnest($2, $3) AS w (producer_id, state)
WHERE producer.log_id = $1 AND producer.producer_id = w.producer_id AND producer.state = w.state
"""
_REMOVE_REST: Final = (
    b"DELETE FROM epoch WHERE log_id = $1",
    b"DELETE FROM producer WHERE log_id = $1",
    b"DELETE FROM aborted WHERE log_id = $1",
    b"DELETE FROM log WHERE log_id = $1 AND state = 2",
)
_OFFSET_MAX: Final = (1 << 63) - 1


# Batches that are older than a time end before the first one that is not.
_FIRST_YOUNG: Final = b"""
SELECT base_offset FROM batch WHERE log_id = $1 AND last_offset >= $2 AND (max_timestamp >= $3 OR max_timestamp < 0)
ORDER BY last_offset LIMIT 1
"""
_END: Final = b"SELECT max(last_offset) + 1 FROM batch WHERE log_id = $1"
_TOO_MUCH: Final = b"""
WITH whole AS (
  SELECT sum(octet_length(data)) AS size FROM batch WHERE log_id = $1 AND last_offset >= $2
)
SELECT max(last_offset) + 1 FROM whole, (
  SELECT last_offset, sum(octet_length(data)) OVER (ORDER BY last_offset) AS gone FROM (
    SELECT last_offset, data FROM batch WHERE log_id = $1 AND last_offset >= $2 ORDER BY last_offset LIMIT $4
  ) AS oldest
) AS summed
WHERE gone <= whole.size - $3
"""
_EXCESS_ROWS: Final = 10_000
"""Batches that one search for what is too much goes through; the next one goes on."""


class Removals:
    """
    The thread that finds and removes batches. What fails is left: the next removal or search of the same log, or the next
    start, does its work.
    """

    def __init__(self, target: Target) -> None:
        self._target: Final = target
        self._thread: Final = BackgroundThread("kohort-removal")
        self._is_stopping = False

    def submit(self, log_id: int, offset: int | None, on_removed: Callable[[int], None]) -> None:
        """Remove the batches of a log before an offset; the whole log for None. Any thread may call."""
        self._submit(log_id, lambda connection: self._remove(connection, log_id, offset, on_removed))

    def submit_search(
        self, log_id: int, start_offset: int, oldest_ms: int, bytes_max: int, on_found: Callable[[int], None]
    ) -> None:
        """
        Find the offset before which batches are older than a time (-1: none is), or too much for a size (-1: nothing is).

        Args:
            on_found: called with it, or with `start_offset`, on the thread of this object.
        """

        def search(connection: Connection) -> int:
            return _first_kept(connection, log_id, start_offset, oldest_ms, bytes_max)

        self._thread.submit(lambda: on_found(self._run(log_id, search, start_offset)))

    def submit_producers(self, log_id: int, states: dict[int, bytes]) -> None:
        """Remove producers that still have these states."""
        values = log_id, Int8s(states), Byteas(states.values())
        self._submit(log_id, lambda connection: connection.execute(_REMOVE_PRODUCERS, values))

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._thread.stop(timeout_s)

    def _submit(self, log_id: int, work: Callable[[Connection], object]) -> None:
        def run() -> None:
            self._run(log_id, work, None)

        self._thread.submit(run)

    def _run(self, log_id: int, work: Callable[[Connection], T], otherwise: T) -> T:
        """Work on the thread of this object, with a connection of its own; the value for work that fails or comes too late."""
        try:
            if not self._is_stopping:
                with connect(self._target) as connection:
                    return work(connection)
        except psycopg.Error as error:
            _log.warning("store.removal_failed log_id=%d error=%r", log_id, sentence(error))
        return otherwise

    def _remove(
        self, connection: Connection, log_id: int, offset: int | None, on_removed: Callable[[int], None]
    ) -> None:
        before = _OFFSET_MAX if offset is None else offset
        while not self._is_stopping:
            row = connection.execute(_REMOVE, (log_id, before, ROWS)).fetchone()
            removed, size = (0, 0) if row is None else row
            if size:
                on_removed(int(size))
            if removed < ROWS:
                break
        else:
            return
        if offset is not None:
            connection.execute(_REMOVE_ABORTED, (log_id, before))
            connection.execute(_REMOVE_EPOCHS, (log_id, before))
            return
        with connection.transaction():
            for statement in _REMOVE_REST:
                connection.execute(statement, (log_id,))


def _first_kept(connection: Connection, log_id: int, start_offset: int, oldest_ms: int, bytes_max: int) -> int:
    """The offset before which batches are older than a time (-1: none is), or too much for a size (-1: nothing is)."""
    offset = start_offset
    if oldest_ms >= 0:
        offset = max(offset, _first_young(connection, log_id, start_offset, oldest_ms))
    if bytes_max >= 0:
        offset = max(offset, _value(connection, _TOO_MUCH, (log_id, start_offset, bytes_max, _EXCESS_ROWS)) or 0)
    return offset


def _first_young(connection: Connection, log_id: int, start_offset: int, oldest_ms: int) -> int:
    """The base offset of the first batch that is not older than a time; without one, the end of the log."""
    found = _value(connection, _FIRST_YOUNG, (log_id, start_offset, oldest_ms))
    return (_value(connection, _END, (log_id,)) or 0) if found is None else found


def _value(connection: Connection, statement: bytes, values: tuple[int, ...]) -> int | None:
    row = connection.execute(statement, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])
