"""
The logs of a store: a row of table `log` for each, and its batches.

The row has the exact log start and the exact next offset, both of committed batches: readers see no others. A piece of a log is
read by one statement together with its row, so both are of one instant. The log start may lie inside a batch, and compaction
leaves gaps. Batches before the log start that are not removed yet are not read. Logs of state 1 (of no topic) and 2 (deleted)
are none of the source.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.model.ids import uuid_text
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.segments import NOT_SERVED, Segment
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.postgres.connection import opened

if TYPE_CHECKING:
    from kohort.storage.postgres.connect import Connection

PIECE_BYTES = 4 << 20
"""Bytes of batches that one statement returns, and one more batch."""
_SMALL_BYTES = 64 << 10
_ROWS = 256
_ROWS_MAX = 1 << 14
"""Batches that one statement looks at. Their number follows their size."""
_NEWEST_BATCHES = 1000
"""Batches whose timestamps tell when a log was last written. Records of topics are not in the order of time."""
STORED = "stored"
"""The name of the segment in rows; there is no file."""
_LAST_OFFSET = (1 << 63) - 1

_LOGS = b"""
SELECT topic, partition, start_offset, next_offset, log_id, size_bytes, topic_id FROM log
WHERE state = 0 AND ($1 OR topic = ANY($2::text[])) ORDER BY log_id
"""
# A batch whose bytes are too much is not read: its size is known without them.
_PIECE = b"""
SELECT log.start_offset, log.next_offset, found.last_offset, found.data FROM log LEFT JOIN LATERAL (
  SELECT last_offset, data FROM (
    SELECT last_offset, data, octet_length(data) AS size, sum(octet_length(data)) OVER (ORDER BY last_offset) AS total
    FROM (
      SELECT last_offset, data FROM batch
      WHERE batch.log_id = $1 AND last_offset >= greatest($2, log.start_offset) AND base_offset < $3
        AND last_offset <= coalesce(
          (SELECT last_offset FROM batch WHERE log_id = $1 AND last_offset >= $3 - 1 ORDER BY last_offset LIMIT 1), $3
        )
      ORDER BY last_offset LIMIT $4
    ) AS next
  ) AS summed
  WHERE total <= $5 OR total = size
) AS found ON true
WHERE log.log_id = $1 AND log.state = 0
ORDER BY found.last_offset
"""
_LATEST = b"""
SELECT log.topic, max(newest.max_timestamp) FROM log CROSS JOIN LATERAL (
  SELECT max_timestamp FROM batch
  WHERE batch.log_id = log.log_id AND last_offset >= log.start_offset ORDER BY last_offset DESC LIMIT $2
) AS newest
WHERE log.log_id = ANY($1::bigint[]) GROUP BY log.topic
"""


@dataclass(frozen=True, slots=True, order=True)
class StoredLog:
    """
    The log of a partition at an instant: offsets from `start` to before `end`.

    Attributes:
        log_id: a topic that is created again has other logs.
        size_bytes: about that of its batches.
        topic_id: None if it has none.
    """

    topic: str
    partition: int
    start: int
    end: int
    log_id: int
    size_bytes: int
    topic_id: str | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def segment(self) -> Segment:
        return Segment(self.topic, self.partition, self.start, STORED, self.size_bytes)


class Piece(NamedTuple):
    """
    Consecutive batches of a log, and its bounds at that instant.

    Attributes:
        data: whole batches; empty if there are no more.
        following: the offset behind them.
    """

    data: bytes
    following: int
    start: int
    end: int


def list_logs(
    path: str, *, topics: Collection[str] | None = None, partitions: Collection[int] | None = None
) -> list[StoredLog]:
    """
    Return the logs of a store, sorted. None stands for every topic that clients can read, every partition.

    Raises:
        ConfigError: the store cannot be read.
    """
    with opened(path) as connection:
        return logs_of(connection, topics=topics, partitions=partitions)


def logs_of(
    connection: "Connection", *, topics: Collection[str] | None = None, partitions: Collection[int] | None = None
) -> list[StoredLog]:
    """As `list_logs`, over a connection."""
    found: dict[TopicPartition, StoredLog] = {}
    for topic, partition, start, end, log_id, size_bytes, uuid in connection.execute(
        _LOGS, (topics is None, sorted(topics or ()))
    ):
        # Of a topic that was deleted and created again, the later one.
        topic_id = uuid_text(uuid) if uuid.int else None
        log = StoredLog(topic, partition, start, end, log_id, size_bytes, topic_id)
        found[log.place] = log
    unserved = NOT_SERVED if topics is None else frozenset[str]()
    return sorted(
        log
        for log in found.values()
        if log.topic not in unserved and (partitions is None or log.partition in partitions)
    )


def chosen_logs(options: SourceOptions) -> list[StoredLog]:
    """
    Return the logs of a store that the options choose.

    Raises:
        ConfigError: the store cannot be read.
    """
    logs = list_logs(options.path, topics=options.topics, partitions=options.partitions)
    return [log for log in logs if options.matches(*log.place)]


class Reader:
    """Reads one log, piece by piece."""

    def __init__(self, connection: "Connection", log: StoredLog, bytes_max: int = PIECE_BYTES) -> None:
        self._connection = connection
        self._log = log
        self._bytes_max = bytes_max
        self._rows = _ROWS

    def piece(self, at: int, end: int = _LAST_OFFSET) -> Piece | None:
        """
        Return the batches from the one that holds an offset, or the next one, to the last that begins before `end`: as many as
        fit, at least one if there is any. None if the log was deleted.
        """
        values = (self._log.log_id, at, end, self._rows, self._bytes_max)
        rows = self._connection.execute(_PIECE, values, prepare=True, binary=True).fetchall()
        if not rows:
            return None
        start, next_offset, last_offset, _ = rows[-1]
        if last_offset is None:
            return Piece(b"", max(at, min(end, next_offset)), start, next_offset)
        # As many rows as fit the next time, and some more.
        self._rows = min(max(2 * len(rows), 16), _ROWS_MAX)
        return Piece(b"".join([row[3] for row in rows]), last_offset + 1, start, next_offset)

    def grow(self) -> None:
        """Let the next piece be larger: who looks for one record reads little at first."""
        self._bytes_max = min(4 * self._bytes_max, PIECE_BYTES)


def batches_from(connection: "Connection", log: StoredLog, offset: int) -> Iterator[Scan]:
    """Yield the batches from an offset to the end of a log, in pieces that become larger; no more if it was deleted."""
    reader = Reader(connection, log, _SMALL_BYTES)
    while offset < log.end and (piece := reader.piece(offset, log.end)) is not None and piece.data:
        yield from scans(piece.data, check_crc=False)
        offset = piece.following
        reader.grow()


def latest_ms(connection: "Connection", logs: Collection[StoredLog]) -> dict[str, int]:
    """Return the greatest timestamp of each topic that has a batch, from the newest batches of its logs."""
    rows: Any = connection.execute(_LATEST, ([log.log_id for log in logs], _NEWEST_BATCHES))
    return dict(rows)
