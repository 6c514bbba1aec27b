"""
Follows the logs of a store in PostgreSQL.

The ends of logs and the aborted transactions are in its tables, and so are the states of producers: the open transactions. They
are read again of the logs that have grown. A poll has one connection, and no transaction that lasts longer than a statement.
"""

from collections.abc import Collection, Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.limits import EXPORTED_OPEN_PRODUCERS_MAX
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.decode.transaction_files import AbortedTransaction, OpenTransaction
from kohort.pipeline.exporter.source import Fetched, Source
from kohort.pipeline.exporter.transactions import OpenProducer
from kohort.pipeline.sources.live import LiveLog
from kohort.pipeline.sources.positions import TopicPartition as Place
from kohort.pipeline.sources.postgres.connection import opened, refusals
from kohort.pipeline.sources.postgres.logs import PIECE_BYTES, Reader, StoredLog, logs_of
from kohort.pipeline.sources.topic_ids import Catalog
from kohort.pipeline.sources.unwritten import unwritten

if TYPE_CHECKING:
    from kohort.storage.postgres.connect import Connection

_CLUSTER_ID = b"SELECT cluster_id FROM store WHERE id = 1"
_ABORTED = b"""
SELECT producer_id, first_offset, last_offset, last_stable_offset FROM aborted
WHERE log_id = $1 AND last_offset >= $2 AND first_offset < $3 ORDER BY last_offset
"""
_PRODUCERS = (
    b"SELECT producer_id, state FROM producer WHERE log_id = $1 AND producer_id > $2 ORDER BY producer_id LIMIT $3"
)
_ROWS = 10_000


class Store(Source):
    """A store in PostgreSQL."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._logs: dict[Place, StoredLog] = {}
        self._open: dict[int, tuple[int, dict[int, OpenTransaction]]] = {}
        """By log id: its end when the states of its producers were read, and the open transactions by producer id."""
        self._catalog = Catalog(path)
        self._stack: ExitStack | None = None
        self._connection: Connection | None = None

    def close(self) -> None:
        stack, self._stack, self._connection = self._stack, None, None
        if stack is not None:
            # A connection that is lost says so again.
            with suppress(ConfigError):
                stack.close()

    def cluster_id(self) -> str:
        with self._connected() as connection:
            row = connection.execute(_CLUSTER_ID).fetchone()
        return "" if row is None else str(row[0])

    def logs(self, topics: Collection[str] | None = None) -> list[LiveLog]:
        with self._connected() as connection:
            found = {log.place: log for log in logs_of(connection, topics=topics)}
        self._logs = found if topics is None else self._logs | found
        empty = unwritten(self.path, self._catalog)
        logs = [LiveLog(*place, log.start, log.end, "", 0, log.topic_id) for place, log in found.items()]
        return logs + [
            LiveLog(*place, 0, 0, "", 0, topic_id)
            for place, topic_id in empty.items()
            if place not in found and (topics is None or place[0] in topics)
        ]

    def at_rest(self) -> str | None:
        return self.path if self.is_at_rest({place: log.end for place, log in self._logs.items()}) else None

    def read(self, log: LiveLog, at: int, decoder: Decoder) -> tuple[list[pa.RecordBatch], int | None]:
        stored = self._logs[log.place]
        with self._connected() as connection:
            piece = Reader(connection, stored, PIECE_BYTES).piece(at, log.end)
        if piece is None or piece.following <= at:
            return [], None
        # The log start may lie inside a batch.
        begin = 0 if at == log.start else at
        return list(decoder.decode(piece.data, stored.segment, Slice(begin, log.end, has_tail=True))), piece.following

    def fetch(self, log: LiveLog, at: int, *, bytes_max: int, is_committed: bool) -> Fetched:
        stored = self._logs.get(log.place)
        if stored is None:
            return Fetched(b"", at)
        until = self._stable_end(stored) if is_committed else log.end
        with self._connected() as connection:
            piece = Reader(connection, stored, bytes_max).piece(at, until)
            if piece is None or not piece.data:
                return Fetched(b"", at)
            asked = (stored.log_id, at, piece.following)
            aborted = connection.execute(_ABORTED, asked).fetchall() if is_committed else []
        return Fetched(piece.data, piece.following, [AbortedTransaction(*row) for row in aborted])

    def stable_ends(self, logs: Collection[LiveLog]) -> dict[tuple[str, int], int]:
        known = {log.log_id: self._open[log.log_id] for log in self._logs.values() if log.log_id in self._open}
        self._open = known
        self.dropped = 0
        with self._connected() as connection:
            for log in self._logs.values():
                if log.log_id not in known or known[log.log_id][0] != log.end:
                    known[log.log_id] = log.end, self._open_in(connection, log)
        return {log.place: self._stable_end(self._logs[log.place]) for log in logs if log.place in self._logs}

    def open_transactions(self, logs: Collection[LiveLog]) -> list[OpenProducer]:
        return [
            OpenProducer(TopicPartition(*log.place), producer_id, one.last_ms)
            for log in logs
            if log.place in self._logs
            for producer_id, one in self._open[self._logs[log.place].log_id][1].items()
        ]

    def _leader(self, log: LiveLog) -> Hashable:  # noqa: ARG002
        return self.path

    def _stable_end(self, log: StoredLog) -> int:
        _, opened = self._open.get(log.log_id, (0, {}))
        return min([one.first_offset for one in opened.values()], default=log.end)

    def _open_in(self, connection: "Connection", log: StoredLog) -> dict[int, OpenTransaction]:
        from kohort.storage.postgres.writes import unpack_state

        found: dict[int, OpenTransaction] = {}
        last = -1
        while rows := connection.execute(_PRODUCERS, (log.log_id, last, _ROWS), binary=True).fetchall():
            for producer_id, data in rows:
                state = unpack_state(producer_id, data)
                # It may have begun behind the end that this poll has read.
                if state.transaction_offset is None or state.transaction_offset >= log.end:
                    continue
                if len(found) < EXPORTED_OPEN_PRODUCERS_MAX:
                    found[producer_id] = OpenTransaction(state.transaction_offset, state.timestamp_ms)
                else:
                    self.dropped += 1
            last = rows[-1][0]
        return found

    @contextmanager
    def _connected(self) -> Iterator["Connection"]:
        """Provide the connection. Raises: ConfigError: the database cannot be reached, or refuses a statement."""
        if self._connection is None:
            stack = ExitStack()
            self._connection = stack.enter_context(opened(self.path))
            self._stack = stack
        with refusals(self.path):
            yield self._connection
