"""
A pass of the cleaner over the rows of one log, on any thread: of every key the newest record stays.

The rules and the rewriting of batches are those of the cleaner on disk (`storage/cleaning`). The log is read and written some
hundred KiB at a time. What a piece leaves is one transaction, which takes effect only if the log is as it was: not deleted,
led by this node, with the same log start. Its last statement is the one that locks the row of the log, so that it delays
appends by its commit alone. Offsets never change. A reader sees the batches before a transaction, or those after it; a pass
that is killed leaves a log of which a part was compacted, and the next pass begins anew.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import psycopg

from kohort.model.errors import CorruptError
from kohort.storage.cleaning.job import PassResult, PassTerms
from kohort.storage.cleaning.rules import Compaction
from kohort.storage.log import LogConfig
from kohort.storage.postgres.connect import Connection
from kohort.storage.postgres.reads import READ, ROWS_MAX
from kohort.storage.postgres.statements import Byteas, Int8s
from kohort.storage.producer_states import AbortedTxn
from kohort.wire.batch_header import MAGIC
from kohort.wire.batches import check_crc, read_header

SEGMENT_BYTES: Final = 1024 * 1024
"""The size from which on a segment ends. The last one, like the active segment on a disk, is not compacted."""
_CHUNK_BYTES: Final = 256 * 1024
_SURVEY_ROWS: Final = 50_000
"""Batches that one statement of a survey goes through: more than a segment has."""

# A segment ends at its size, where the compacted part ends, and where the time enters another `segment.ms`.
_SURVEY: Final = b"""
SELECT min(base_offset), sum(size)::bigint, max(max_timestamp), (array_agg(max_timestamp ORDER BY last_offset))[1],
  count(*)
FROM (
  SELECT base_offset, last_offset, max_timestamp, size, last_offset >= $5 AS is_dirty,
    (sum(size) OVER passed - size) / $6 AS by_size, max(max_timestamp) OVER passed / $7 AS by_time
  FROM (
    SELECT base_offset, last_offset, max_timestamp, octet_length(data) AS size FROM batch
    WHERE log_id = $1 AND last_offset >= $2 AND last_offset < $3 ORDER BY last_offset LIMIT $4
  ) AS found WINDOW passed AS (ORDER BY last_offset)
) AS marked GROUP BY is_dirty, by_size, by_time ORDER BY 1
"""
_ABORTED: Final = b"""
SELECT producer_id, first_offset, last_offset, last_stable_offset FROM aborted
WHERE log_id = $1 AND last_offset >= $2 AND first_offset < $3 ORDER BY last_offset
"""
_REMOVE: Final = b"DELETE FROM batch WHERE log_id = $1 AND last_offset = ANY($2)"
_REPLACE: Final = b"""
UPDATE batch SET data = w.data, max_timestamp = w.max_timestamp
FROM unnest($2, $3, $4) AS w (last_offset, max_timestamp, data)
WHERE batch.log_id = $1 AND batch.last_offset = w.last_offset
"""
_FORGET_ABORTED: Final = b"DELETE FROM aborted WHERE log_id = $1 AND last_offset = ANY($2)"
_IF_OWNED: Final = b"WHERE log_id = $1 AND state = 0 AND attempt = $2 AND leader_epoch <= $3 AND start_offset = $4"
_SHRINK: Final = b"UPDATE log SET size_bytes = size_bytes - $5 " + _IF_OWNED
_MARK_CLEAN: Final = b"UPDATE log SET clean_offset = $5 " + _IF_OWNED


class ObsoleteError(Exception):
    """The log is not as it was at the begin of the pass, or the pass was told to end. What it has done so far is right."""


class RowSegment(msgspec.Struct, frozen=True):
    """A run of batches, which is to the cleaner what a segment is on a disk."""

    base_offset: int
    size_bytes: int
    newest_ms: int
    rolling_timestamp_ms: int


class OwnedLog(msgspec.Struct, frozen=True):
    """The row of a log as its leader knows it; its leader epoch may be an older one."""

    log_id: int
    attempt: int
    leader_epoch: int
    start_offset: int


class Job(msgspec.Struct, frozen=True):
    """
    The input of a pass.

    Attributes:
        segments: those that may be compacted, from the begin of the log.
        first_uncleanable_offset: behind them.
    """

    log: OwnedLog
    segments: list[RowSegment]
    first_uncleanable_offset: int
    terms: PassTerms


class Report(msgspec.Struct, frozen=True):
    """
    What is committed: bytes that are gone, and of the aborted transactions with markers from one offset to another, the offsets
    of the markers of those that are left.
    """

    gone_bytes: int
    begin: int
    end: int
    aborted: frozenset[int]


def roll_at(config: LogConfig) -> tuple[int, int]:
    """The size from which on a segment ends, and the milliseconds of which each multiple ends one."""
    return min(config.segment_bytes, SEGMENT_BYTES), max(min(config.segment_ms, config.max_compaction_lag_ms), 1)


def survey(
    connection: Connection,
    log_id: int,
    known: list[RowSegment],
    *,
    start_offset: int,
    end_offset: int,
    clean_offset: int,
    config: LogConfig,
) -> list[RowSegment]:
    """The segments of a log up to an offset, of which some are known: all but the last one stay."""
    segments = known[:-1]
    offset = known[-1].base_offset if known else start_offset
    while True:
        values = (log_id, offset, end_offset, _SURVEY_ROWS, clean_offset, *roll_at(config))
        rows = connection.execute(_SURVEY, values).fetchall()
        found = [RowSegment(*row[:4]) for row in rows]
        if sum(row[4] for row in rows) < _SURVEY_ROWS:
            return segments + found
        segments += found[:-1]
        offset = found[-1].base_offset


class Pass:
    """
    Args:
        report: called after each commit.
        pace: called with the bytes that were read and written; it may wait.
    """

    def __init__(
        self,
        connection: Connection,
        job: Job,
        report: Callable[[Report], None],
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        pace: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._connection: Final = connection
        self._job: Final = job
        self._log: Final = job.log
        self._report: Final = report
        self._is_stopped: Final = is_stopped
        self._pace: Final = pace
        self._bytes_read = self._bytes_written = 0
        rows = connection.execute(_ABORTED, (self._log.log_id, self._log.start_offset, job.first_uncleanable_offset))
        self._aborted: Final = [AbortedTxn(*row) for row in rows]
        self._kept: Final[set[int]] = set()
        """Offsets of the markers of aborted transactions that stay."""
        self._rules: Final = Compaction(job.terms, self._aborted)

    def run(self) -> PassResult:
        """
        Raises:
            ObsoleteError: the log has changed.
            CorruptError: a batch is damaged; it stays as it is.
            psycopg.Error: the database cannot do it.
        """
        started_s = time.monotonic()
        # An earlier pass may have ended without knowing that its last transaction was committed.
        self._tell(0, self._log.start_offset, self._job.first_uncleanable_offset, self._aborted)
        self._build_map()
        end_offset = self._rules.latest_offset + 1
        self._rules.keep_aborted_in(lambda aborted: self._kept.add(aborted.last_offset))
        begin = self._log.start_offset
        for segment, end in self._segments():
            if segment.base_offset >= end_offset:
                break
            for chunk in self._chunks(begin, end):
                self._compact(chunk)
            begin = end
        self._check_owned(self._connection.execute(_MARK_CLEAN, (*self._owned, end_offset)))
        return PassResult(
            end_offset=end_offset,
            map_utilization=self._rules.map_utilization,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            invalid_records=self._rules.invalid_records,
            elapsed_s=time.monotonic() - started_s,
        )

    @property
    def _owned(self) -> tuple[int, int, int, int]:
        log = self._log
        return log.log_id, log.attempt, log.leader_epoch, log.start_offset

    def _segments(self) -> Iterator[tuple[RowSegment, int]]:
        """The segments, and the offsets behind them."""
        segments = self._job.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self._job.first_uncleanable_offset]
        yield from zip(segments, ends, strict=True)

    def _build_map(self) -> None:
        first_dirty = self._job.terms.first_dirty_offset
        for segment, end in self._segments():
            if end <= first_dirty:
                continue
            for chunk in self._chunks(max(segment.base_offset, first_dirty), end):
                if not self._rules.add(chunk):
                    return
            if not self._rules.end_segment(end):
                return

    def _chunks(self, offset: int, end: int) -> Iterator[list[bytes]]:
        while True:
            if self._is_stopped():
                raise ObsoleteError
            values = (self._log.log_id, offset, end, ROWS_MAX, _CHUNK_BYTES, True)
            rows = self._connection.execute(READ, values, prepare=True, binary=True).fetchall()
            if not rows:
                return
            chunk = [data for (data,) in rows]
            for data in chunk:
                header = read_header(data)
                if header.magic != MAGIC or not check_crc(data):
                    raise CorruptError(f"the batch at offset {header.base_offset} is damaged")
            size = sum(map(len, chunk))
            self._bytes_read += size
            self._pace(size)
            yield chunk
            offset = read_header(chunk[-1]).next_offset

    def _compact(self, chunk: list[bytes]) -> None:
        """Put what stays of these batches in their place."""
        headers = [read_header(data) for data in chunk]
        retained = {read_header(data).last_offset: data for batches in self._rules.retain(chunk) for data in batches}
        self._bytes_written += sum(map(len, retained.values()))
        removed, replaced = Int8s(), Int8s()
        timestamps, datas = Int8s(), Byteas()
        gone_bytes = 0
        for header, data in zip(headers, chunk, strict=True):
            left = retained.get(header.last_offset)
            if left is None:
                removed.append(header.last_offset)
                gone_bytes += len(data)
            elif left is not data:
                replaced.append(header.last_offset)
                timestamps.append(read_header(left).max_timestamp)
                datas.append(left)
                gone_bytes += len(data) - len(left)
        begin, end = headers[0].base_offset, headers[-1].next_offset
        here = [each for each in self._aborted if begin <= each.last_offset < end]
        kept = [each for each in here if each.last_offset in self._kept]
        if not removed and not replaced and len(kept) == len(here):
            return
        forgotten = Int8s(each.last_offset for each in here if each.last_offset not in self._kept)
        log_id = self._log.log_id
        with self._connection.transaction():
            for count, statement, values in (
                (len(removed), _REMOVE, (log_id, removed)),
                (len(replaced), _REPLACE, (log_id, replaced, timestamps, datas)),
                (len(forgotten), _FORGET_ABORTED, (log_id, forgotten)),
            ):
                if count and self._connection.execute(statement, values).rowcount != count:
                    raise ObsoleteError
            self._check_owned(self._connection.execute(_SHRINK, (*self._owned, gone_bytes)))
        self._tell(gone_bytes, begin, end, kept)
        self._pace(sum(map(len, datas)))

    def _check_owned(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        if cursor.rowcount != 1:
            raise ObsoleteError

    def _tell(self, gone_bytes: int, begin: int, end: int, aborted: list[AbortedTxn]) -> None:
        self._report(Report(gone_bytes, begin, end, frozenset(each.last_offset for each in aborted)))
