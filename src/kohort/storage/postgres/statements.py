"""
The statements of the writer.

They are of SQL that databases which speak PostgreSQL's protocol have in common. Parameters are arrays, one element a row: a
statement is prepared once, whatever it writes.
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from psycopg.adapt import Dumper
from psycopg.pq import Format

from kohort.storage.postgres.writes import LogWrite

if TYPE_CHECKING:
    from psycopg import Connection

_INT8: Final = 20
_INT8S: Final = 1016
_BYTEA: Final = 17
_BYTEAS: Final = 1001
_pack_int8: Final = Struct(">iq").pack
_pack_length: Final = Struct(">i").pack
_pack_empty: Final = Struct(">iiI").pack
_pack_head: Final = Struct(">iiIii").pack


class Int8s(list[int]):
    """An array of bigint."""


class Byteas(list[bytes]):
    """An array of bytea."""


class _Int8sDumper(Dumper):
    """The library's own dumpers of lists look for the smallest type of integers, and so prepare several statements."""

    oid = _INT8S
    format = Format.BINARY

    def dump(self, obj: Int8s) -> bytes:
        if not obj:
            return _pack_empty(0, 0, _INT8)
        return _pack_head(1, 0, _INT8, len(obj), 1) + b"".join([_pack_int8(8, value) for value in obj])


class _ByteasDumper(Dumper):
    oid = _BYTEAS
    format = Format.BINARY

    def dump(self, obj: Byteas) -> bytes:
        if not obj:
            return _pack_empty(0, 0, _BYTEA)
        parts = [_pack_head(1, 0, _BYTEA, len(obj), 1)]
        for value in obj:
            parts.append(_pack_length(len(value)))
            parts.append(value)
        return b"".join(parts)


def register_arrays(connection: "Connection") -> None:
    connection.adapters.register_dumper(Int8s, _Int8sDumper)
    connection.adapters.register_dumper(Byteas, _ByteasDumper)


_APPEND: Final = b"""
WITH wanted AS (
  SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)
    AS w (log_id, attempt, stored_epoch, leader_epoch, base_offset, next_offset, size_bytes)
), locked AS (
  SELECT log.log_id FROM log JOIN wanted ON wanted.log_id = log.log_id
  WHERE log.state = 0 AND log.attempt = wanted.attempt
    AND log.leader_epoch = wanted.stored_epoch AND log.next_offset = wanted.base_offset
  ORDER BY log.log_id FOR NO KEY UPDATE OF log SKIP LOCKED
), moved AS (
  UPDATE log SET leader_epoch = wanted.leader_epoch, next_offset = wanted.next_offset,
    size_bytes = log.size_bytes + wanted.size_bytes
  FROM wanted JOIN locked ON locked.log_id = wanted.log_id
  WHERE log.log_id = wanted.log_id
  RETURNING log.log_id
), new_batches AS (
  INSERT INTO batch (log_id, base_offset, last_offset, max_timestamp, data)
  SELECT b.* FROM unnest($8, $9, $10, $11, $12) AS b (log_id, base_offset, last_offset, max_timestamp, data)
    JOIN moved ON moved.log_id = b.log_id
), new_epochs AS (
  INSERT INTO epoch (log_id, start_offset, leader_epoch)
  SELECT e.* FROM unnest($13, $14, $15) AS e (log_id, start_offset, leader_epoch) JOIN moved ON moved.log_id = e.log_id
  ON CONFLICT (log_id, start_offset) DO UPDATE SET leader_epoch = excluded.leader_epoch
), new_producers AS (
  INSERT INTO producer (log_id, producer_id, state)
  SELECT p.* FROM unnest($16, $17, $18) AS p (log_id, producer_id, state) JOIN moved ON moved.log_id = p.log_id
  ON CONFLICT (log_id, producer_id) DO UPDATE SET state = excluded.state
), new_aborted AS (
  INSERT INTO aborted (log_id, last_offset, producer_id, first_offset, last_stable_offset)
  SELECT a.* FROM unnest($19, $20, $21, $22, $23)
    AS a (log_id, last_offset, producer_id, first_offset, last_stable_offset) JOIN moved ON moved.log_id = a.log_id
)
SELECT log_id FROM moved
"""
"""
The rows of the logs are locked in one order; those that another one has locked are left out. A row has to be as this node knows
it: no other one has raised the leader epoch, appended, or resolved an attempt.
"""
_MAKE_ROWS: Final = b"""
INSERT INTO log (topic, partition, topic_id)
SELECT * FROM unnest($1::text[], $2::integer[], $3::uuid[])
ON CONFLICT (topic, partition, topic_id) WHERE state = 0 DO NOTHING
"""
_FIND_ROWS: Final = b"""
SELECT log.topic, log.partition, log.topic_id, log.log_id, log.attempt FROM log
JOIN unnest($1::text[], $2::integer[], $3::uuid[]) AS w (topic, partition, topic_id)
  ON log.topic = w.topic AND log.partition = w.partition AND log.topic_id = w.topic_id
WHERE log.state = 0
"""
_ROW: Final = b"SELECT state, attempt, leader_epoch, next_offset FROM log WHERE log_id = $1"
_LOCK_ROWS: Final = b"SELECT log_id FROM log WHERE log_id = ANY($1) ORDER BY log_id FOR NO KEY UPDATE"
_RAISE_ATTEMPTS: Final = b"""
UPDATE log SET attempt = attempt + 1 FROM unnest($1, $2) AS w (log_id, leader_epoch)
WHERE log.log_id = w.log_id AND log.leader_epoch <= w.leader_epoch
"""
_ROWS: Final = b"SELECT log_id, state, attempt, leader_epoch, next_offset FROM log WHERE log_id = ANY($1)"
_BATCH_AT: Final = b"""
SELECT data FROM batch WHERE log_id = $1 AND last_offset >= $2 ORDER BY last_offset LIMIT 1
"""
_MOVE_START: Final = b"""
UPDATE log SET start_offset = greatest(start_offset, $2)
WHERE log_id IN (SELECT log_id FROM log WHERE log_id = $1 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING log_id
"""
_BASE_OF: Final = b"""
SELECT base_offset FROM batch WHERE log_id = $1 AND last_offset >= $2 ORDER BY last_offset LIMIT 1
"""
_SET_STATE: Final = b"""
UPDATE log SET state = $2
WHERE log_id IN (SELECT log_id FROM log WHERE log_id = $1 AND state = 0 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING log_id
"""


def append(connection: "Connection", writes: Sequence[LogWrite]) -> set[int]:
    """Append to logs, each as a whole, and return the ids of those that took it: not those whose rows are locked."""
    ids, attempts, stored, epochs, bases, nexts, sizes = (Int8s() for _ in range(7))
    batches: tuple[Int8s, Int8s, Int8s, Int8s] = (Int8s(), Int8s(), Int8s(), Int8s())
    datas, states = Byteas(), Byteas()
    begun: tuple[Int8s, Int8s, Int8s] = (Int8s(), Int8s(), Int8s())
    producers: tuple[Int8s, Int8s] = (Int8s(), Int8s())
    aborted: tuple[Int8s, Int8s, Int8s, Int8s, Int8s] = (Int8s(), Int8s(), Int8s(), Int8s(), Int8s())
    for write in writes:
        log_id = write.log.log_id
        ids.append(log_id)
        attempts.append(write.log.attempt)
        stored.append(write.stored_epoch)
        epochs.append(write.leader_epoch)
        bases.append(write.base_offset)
        nexts.append(write.next_offset)
        sizes.append(write.size_bytes)
        for base_offset, last_offset, max_timestamp_ms, data in write.batches:
            _add(batches, log_id, base_offset, last_offset, max_timestamp_ms)
            datas.append(data)
        for leader_epoch, start_offset in write.epochs:
            _add(begun, log_id, start_offset, leader_epoch)
        for producer_id, state in write.producers:
            _add(producers, log_id, producer_id)
            states.append(state)
        for each in write.aborted:
            _add(aborted, log_id, each.last_offset, each.producer_id, each.first_offset, each.last_stable_offset)
    values: list[Any] = [
        ids,
        attempts,
        stored,
        epochs,
        bases,
        nexts,
        sizes,
        *batches,
        datas,
        *begun,
        *producers,
        states,
    ]
    return {row[0] for row in connection.execute(_APPEND, [*values, *aborted], prepare=True, binary=True)}


def _add(columns: Sequence[Int8s], *values: int) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def make_rows(connection: "Connection", writes: Sequence[LogWrite]) -> None:
    """Make the rows of new logs, or find those that an earlier attempt has made."""
    logs = [write.log for write in writes]
    names = (
        [log.topic_partition.topic for log in logs],
        [log.topic_partition.partition for log in logs],
        [log.topic_id for log in logs],
    )
    connection.execute(_MAKE_ROWS, names)
    found = {row[:3]: row for row in connection.execute(_FIND_ROWS, names)}
    for log in logs:
        row = found.get((*log.topic_partition, log.topic_id))
        if row is not None:
            log.log_id, log.attempt = row[3], row[4]


class Row:
    """The row of a log: its state, attempt, leader epoch and next offset."""

    def __init__(self, state: int, attempt: int, leader_epoch: int, next_offset: int) -> None:
        self.state = state
        self.attempt = attempt
        self.leader_epoch = leader_epoch
        self.next_offset = next_offset


def read_row(connection: "Connection", log_id: int) -> Row | None:
    found = connection.execute(_ROW, (log_id,)).fetchone()
    return None if found is None else Row(*found)


def raise_attempts(connection: "Connection", writes: Sequence[LogWrite]) -> dict[int, tuple[Row, bytes | None]]:
    """
    Make final what became of these writes: rows are locked and written, so no earlier statement takes effect after this. The
    row of a log that another node has claimed stays: no earlier statement of this node takes effect on it.
    Returns by log the row, and the batch at the base offset of the write.
    """
    ids = Int8s(write.log.log_id for write in writes)
    with connection.transaction():
        connection.execute(_LOCK_ROWS, (ids,))
        connection.execute(_RAISE_ATTEMPTS, (ids, Int8s(write.leader_epoch for write in writes)))
        rows = {row[0]: Row(*row[1:]) for row in connection.execute(_ROWS, (ids,))}
        found: dict[int, tuple[Row, bytes | None]] = {}
        for write in writes:
            row = rows.get(write.log.log_id)
            if row is None:
                continue
            batch = None
            if write.batches and row.next_offset > write.base_offset:
                read = connection.execute(_BATCH_AT, (write.log.log_id, write.base_offset), binary=True).fetchone()
                batch = None if read is None else bytes(read[0])
            found[write.log.log_id] = row, batch
    return found


def move_start(connection: "Connection", log_id: int, offset: int) -> bool:
    """Raise a log start; False if the row is locked."""
    return connection.execute(_MOVE_START, (log_id, offset)).rowcount > 0


def base_of(connection: "Connection", log_id: int, offset: int) -> int | None:
    """The base offset of the batch that holds an offset."""
    found = connection.execute(_BASE_OF, (log_id, offset)).fetchone()
    return None if found is None else int(found[0])


def set_state(connection: "Connection", log_id: int, state: int) -> bool:
    """Set the state of a live log; False if its row is locked, or it is not live."""
    return connection.execute(_SET_STATE, (log_id, state)).rowcount > 0
