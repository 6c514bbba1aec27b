"""A database as the source or the target of a copy of all logs (`storage/logs/copied.py`)."""

from collections.abc import Iterable, Iterator
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import span_at
from kohort.storage.logs.copied import CopiedLog, LogSource, StoredBatch
from kohort.storage.postgres.connect import Connection
from kohort.storage.postgres.loading import load_logs
from kohort.storage.postgres.reads import READ, ROWS_MAX
from kohort.storage.postgres.statements import Byteas, Int8s
from kohort.storage.postgres.writes import pack_state

_CHUNK_BYTES: Final = 1 << 20
_MARK: Final = b"UPDATE store SET copying = $1, cluster_id = coalesce($2, cluster_id) WHERE id = 1"
_ADD_LOG: Final = b"""
INSERT INTO log (topic, partition, topic_id, leader_epoch, next_offset, start_offset, clean_offset)
VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING log_id
"""
_ADD_BATCHES: Final = b"""
INSERT INTO batch (log_id, base_offset, last_offset, max_timestamp, data)
SELECT $1, * FROM unnest($2, $3, $4, $5)
"""
_ADD_EPOCHS: Final = b"INSERT INTO epoch (log_id, leader_epoch, start_offset) SELECT $1, * FROM unnest($2, $3)"
_ADD_PRODUCERS: Final = b"INSERT INTO producer (log_id, producer_id, state) SELECT $1, * FROM unnest($2, $3)"
_ADD_ABORTED: Final = b"""
INSERT INTO aborted (log_id, producer_id, first_offset, last_offset, last_stable_offset)
SELECT $1, * FROM unnest($2, $3, $4, $5)
"""
_SET_SIZE: Final = b"UPDATE log SET size_bytes = $2 WHERE log_id = $1"
_IS_USED: Final = b"SELECT EXISTS (SELECT 1 FROM log) OR EXISTS (SELECT 1 FROM batch)"


class StoreSource:
    """
    All logs of a store, as they are at the begin: one snapshot, whatever is written meanwhile.
    """

    def __init__(self, connection: Connection, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._connection: Final = connection
        self._ids: Final[dict[TopicPartition, int]] = {}
        """The ids of the rows of logs."""

    def logs(self) -> Iterable[CopiedLog]:
        found = sorted(load_logs(self._connection), key=lambda log: log.topic_partition)
        for log in found:
            copied = CopiedLog(
                topic_partition=log.topic_partition,
                topic_id=log.topic_id,
                leader_epoch=log.leader_epoch,
                start_offset=log.start_offset,
                end_offset=log.next_offset,
                clean_offset=log.clean_offset,
                epochs=log.epochs.entries,
                producers=log.producers,
                aborted=[each for each in log.aborted if each.last_offset >= log.start_offset],
                size_bytes=log.size_bytes,
            )
            self._ids[log.topic_partition] = log.log_id
            yield copied

    def batches(self, log: CopiedLog) -> Iterator[list[StoredBatch]]:
        log_id, offset = self._ids[log.topic_partition], log.start_offset
        while True:
            values = (log_id, offset, log.end_offset, ROWS_MAX, _CHUNK_BYTES, True)
            rows = self._connection.execute(READ, values, binary=True).fetchall()
            if not rows:
                return
            chunk = [stored(data) for (data,) in rows]
            yield chunk
            offset = chunk[-1][1] + 1


class StoreTarget:
    """
    An empty store.

    Raises:
        ConfigError: it is not empty.
    """

    def __init__(self, connection: Connection, shown: str, source: str) -> None:
        row = connection.execute(_IS_USED).fetchone()
        if row is not None and row[0]:
            raise ConfigError(f"the store in {shown} has logs already: a copy needs an empty one. Nothing was changed")
        self._connection: Final = connection
        self._source: Final = source
        self._cluster_id = ""

    def begin(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._connection.execute(_MARK, (self._source, cluster_id))

    def write(self, log: CopiedLog, chunks: Iterator[list[StoredBatch]]) -> None:
        values = (
            *(*log.topic_partition, log.topic_id, log.leader_epoch, log.end_offset, log.start_offset),
            log.clean_offset,
        )
        run = self._connection.execute
        row = run(_ADD_LOG, values).fetchone()
        assert row is not None, "an INSERT of one row returns one"
        log_id, size_bytes = row[0], 0
        for chunk in chunks:
            bases, lasts, times, datas = zip(*chunk, strict=True)
            run(_ADD_BATCHES, (log_id, Int8s(bases), Int8s(lasts), Int8s(times), Byteas(datas)))
            size_bytes += sum(map(len, datas))
        run(_ADD_EPOCHS, (log_id, Int8s(epoch for epoch, _ in log.epochs), Int8s(start for _, start in log.epochs)))
        ids = Int8s(state.producer_id for state in log.producers)
        run(_ADD_PRODUCERS, (log_id, ids, Byteas(pack_state(state) for state in log.producers)))
        columns = [
            Int8s(getattr(each, name) for each in log.aborted)
            for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        ]
        run(_ADD_ABORTED, (log_id, *columns))
        run(_SET_SIZE, (log_id, size_bytes))

    def end(self) -> LogSource:
        return StoreSource(self._connection, self._cluster_id)

    def release(self) -> None:
        self._connection.execute(_MARK, (None, None))


def stored(data: bytes) -> StoredBatch:
    span = span_at(data, 0)
    assert span is not None, "a row has a whole batch"
    return span[2], span[3], span[4], data
