"""Removal of batches that nobody reads any more, beside the writer, in statements of bounded size."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import psycopg

from kohort.storage.durability.flusher import BackgroundThread
from kohort.storage.postgres.connect import Connection, Target, connect, sentence

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
_REMOVE_REST: Final = (
    b"DELETE FROM epoch WHERE log_id = $1",
    b"DELETE FROM producer WHERE log_id = $1",
    b"DELETE FROM aborted WHERE log_id = $1",
    b"DELETE FROM log WHERE log_id = $1 AND state = 2",
)
_OFFSET_MAX: Final = (1 << 63) - 1


class Removals:
    """
    The thread that removes batches. One that fails is left: the next removal of the same log, or the next start, does its work.
    """

    def __init__(self, target: Target) -> None:
        self._target: Final = target
        self._thread: Final = BackgroundThread("kohort-removal")
        self._is_stopping = False

    def submit(self, log_id: int, offset: int | None, on_removed: Callable[[int], None]) -> None:
        """Remove the batches of a log before an offset; the whole log for None. Any thread may call."""
        self._thread.submit(partial(self._run, log_id, offset, on_removed))

    def stop(self, timeout_s: float) -> None:
        self._is_stopping = True
        self._thread.stop(timeout_s)

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
            return
        with connection.transaction():
            for statement in _REMOVE_REST:
                connection.execute(statement, (log_id,))
