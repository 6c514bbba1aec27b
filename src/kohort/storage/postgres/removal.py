"""Removal of batches that nobody reads any more, beside the writer, in statements of bounded size."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import psycopg

from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.postgres.connect import Connection, Target, connect, sentence
from kohort.storage.postgres.statements import Byteas, Int8s

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
        self._thread.submit(partial(self._run, log_id, offset, on_removed))

    def submit_search(
        self, log_id: int, start_offset: int, oldest_ms: int, bytes_max: int, on_found: Callable[[int], None]
    ) -> None:
        """
        Find the offset before which batches are older than a time (-1: none is), or too much for a size (-1: nothing is).

        Args:
            on_found: called with it, or with `start_offset`, on the thread of this object.
        """
        self._thread.submit(partial(self._search, log_id, start_offset, oldest_ms, bytes_max, on_found))

    def submit_producers(self, log_id: int, states: dict[int, bytes]) -> None:
        """Remove producers that still have these states."""
        self._thread.submit(partial(self._remove_producers, log_id, states))

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._thread.stop(timeout_s)

    def _search(
        self, log_id: int, start_offset: int, oldest_ms: int, bytes_max: int, on_found: Callable[[int], None]
    ) -> None:
        offset = start_offset
        try:
            if not self._is_stopping:
                with connect(self._target) as connection:
                    if oldest_ms >= 0:
                        offset = max(offset, _first_young(connection, log_id, start_offset, oldest_ms))
                    if bytes_max >= 0:
                        values = (log_id, start_offset, bytes_max, _EXCESS_ROWS)
                        offset = max(offset, _value(connection, _TOO_MUCH, values) or 0)
        except psycopg.Error as error:
            _log.warning("store.search_failed log_id=%d error=%r", log_id, sentence(error))
        on_found(offset)

    def _remove_producers(self, log_id: int, states: dict[int, bytes]) -> None:
        if self._is_stopping:
            return
        try:
            with connect(self._target) as connection:
                connection.execute(_REMOVE_PRODUCERS, (log_id, Int8s(states), Byteas(states.values())))
        except psycopg.Error as error:
            _log.warning("store.removal_failed log_id=%d error=%r", log_id, sentence(error))

    def _run(self, log_id: int, offset: int | None, on_removed: Callable[[int], None]) -> None:
        if self._is_stopping:
            return
        try:
            connection = connect(self._target)
            try:
                self._remove(connection, log_id, offset, on_removed)
            finally:
                connection.close()
        except psycopg.Error as error:
            _log.warning("store.removal_failed log_id=%d error=%r", log_id, sentence(error))

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


def _first_young(connection: Connection, log_id: int, start_offset: int, oldest_ms: int) -> int:
    """The base offset of the first batch that is not older than a time; without one, the end of the log."""
    found = _value(connection, _FIRST_YOUNG, (log_id, start_offset, oldest_ms))
    return (_value(connection, _END, (log_id,)) or 0) if found is None else found


def _value(connection: Connection, statement: bytes, values: tuple[int, ...]) -> int | None:
    row = connection.execute(statement, values).fetchone()
    return None if row is None or row[0] is None else int(row[0])
