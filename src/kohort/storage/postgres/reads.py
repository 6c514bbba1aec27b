"""Reads of batches from the database, on any thread: each takes a connection that is idle, or makes one."""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg

from kohort.model.limits import LOG_READS_MAX
from kohort.storage.postgres.connect import Connection, Target, connect, sentence

T = TypeVar("T")

ROWS_MAX: Final = 1024
"""Batches that one statement looks at, as long as nobody knows how large they are."""
_SMALL_ROWS_MAX: Final = 16 * ROWS_MAX

# The bytes of a batch that is too much are not read: its size is known without them.
_FITTING: Final = b"""
FROM (
  SELECT data, last_offset, octet_length(data) AS size,
    sum(octet_length(data)) OVER (ORDER BY last_offset ROWS UNBOUNDED PRECEDING) AS total
  FROM (
    SELECT data, last_offset FROM batch WHERE log_id = $1 AND last_offset >= $2 AND last_offset < $3
    ORDER BY last_offset LIMIT $4
  ) AS found
) AS summed
WHERE total <= $5 OR (total = size AND $6)
"""
READ: Final = b"SELECT data " + _FITTING + b"ORDER BY last_offset"
"""The batches of a log, $1, from the offset $2 on and below $3: of $4 those that fit into $5 bytes, and the first if $6."""
# One value: a row for each of many small batches would hold the interpreter's lock for milliseconds.
_READ_JOINED: Final = b"SELECT count(*), max(last_offset), string_agg(data, ''::bytea ORDER BY last_offset) " + _FITTING
_NEXT_AT_LEAST: Final = b"""
SELECT last_offset, data FROM batch
WHERE log_id = $1 AND last_offset >= $2 AND last_offset < $3 AND max_timestamp >= $4
ORDER BY last_offset LIMIT 1
"""
_NEWEST: Final = b"""
SELECT max_timestamp, last_offset FROM batch WHERE log_id = $1 AND last_offset >= $2 AND last_offset < $3
ORDER BY max_timestamp DESC, last_offset LIMIT 1
"""


class DatabaseReadError(OSError):
    """The database has not answered a read."""


class BatchReads:
    """
    Reads of batches; the methods are those of `StoredBatches`.

    Short statements of their own, so that no snapshot holds up the vacuum of the database.
    """

    def __init__(self, target: Target) -> None:
        self._target: Final = target
        self._lock: Final = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    def read(self, log_id: int, offset: int, up_to: int, bytes_max: int) -> tuple[bytes, int]:
        values = (log_id, offset, up_to, ROWS_MAX, bytes_max, True)
        count, last_offset, data = self._run(lambda connection: _rows(connection, _READ_JOINED, values))[0]
        if not count:
            return b"", up_to
        if count == ROWS_MAX:
            # They are small: the second statement looks at as many as may fit.
            room = bytes_max - len(data)
            values = (log_id, last_offset + 1, up_to, min(room * count // len(data), _SMALL_ROWS_MAX), room, False)
            more, last, rest = self._run(lambda connection: _rows(connection, _READ_JOINED, values))[0]
            if more:
                data, last_offset = data + rest, last
        return data, last_offset + 1

    def next_at_least(self, log_id: int, offset: int, up_to: int, timestamp_ms: int) -> tuple[int, bytes] | None:
        values = (log_id, offset, up_to, timestamp_ms)
        rows = self._run(lambda connection: _rows(connection, _NEXT_AT_LEAST, values))
        return (rows[0][0], rows[0][1]) if rows else None

    def newest(self, log_id: int, offset: int, up_to: int) -> tuple[int, int] | None:
        rows = self._run(lambda connection: _rows(connection, _NEWEST, (log_id, offset, up_to)))
        return (rows[0][0], rows[0][1]) if rows else None

    def _run(self, work: Callable[[Connection], T]) -> T:
        """
        Work with a connection. One that was idle may be lost by now; the work is done again with a new one.

        Raises:
            DatabaseReadError: the database has not answered.
        """
        while True:
            with self._lock:
                if self._is_closed:
                    raise DatabaseReadError("the store is closed")
                connection = self._idle.pop() if self._idle else None
            was_idle = connection is not None
            try:
                if connection is None:
                    connection = connect(self._target)
                result = work(connection)
            except psycopg.Error as error:
                is_lost = connection is None or connection.broken
                if connection is not None:
                    connection.close()
                if was_idle and is_lost:
                    continue
                raise DatabaseReadError(
                    f"the database {self._target.shown} has not answered: {sentence(error)}"
                ) from None
            self._give_back(connection)
            return result

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < LOG_READS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _rows(connection: Connection, statement: bytes, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values, prepare=True, binary=True).fetchall()
