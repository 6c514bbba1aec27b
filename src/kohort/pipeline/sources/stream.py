"""
`spark.readStream.format("kohort")`: appended batches, each once.

The checkpoint holds the next offset of each topic partition (`positions`). A micro-batch that is repeated after a crash reads
the same ranges of the same logs, so its rows are the same, unless compaction removed records meanwhile. New partitions are read
from their first offset.

Source: PySpark 4.3, DataSourceStreamReader; KIP-98 (a batch is never split).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import EARLIEST, Positions, from_json, to_json
from kohort.pipeline.sources.ranges import Logs, RangeTask, cut_records, resolve
from kohort.pipeline.sources.tasks import read_task

POLL_INTERVAL_S = 0.1
"""Spark polls every 10 ms while there is no new data; each poll costs a directory listing, or a request."""

StreamOffset = dict[str, dict[str, int]]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches in the driver, reads them in the workers."""

    def __init__(self, options: SourceOptions, open_logs: Callable[[SourceOptions], Logs]) -> None:
        self._options = options
        self._open = open_logs
        self._logs: Logs | None = None
        self._last: Positions | None = None
        """With the trigger availableNow: the log end offsets at the start of the query."""
        self._idle_since_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers need only the options.
        return {**self.__dict__, "_logs": None}

    @property
    def logs(self) -> Logs:
        if self._logs is None:
            self._logs = self._open(self._options)
        return self._logs

    def initialOffset(self) -> StreamOffset:  # noqa: N802  (Spark's names)
        return to_json(resolve(self._options.starting, self.logs.bounds(), otherwise=EARLIEST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_records is None else ReadMaxRows(options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self._ends()

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802
        return to_json(self._ends())

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        begun = from_json(start)
        end = self._following(begun)
        if not isinstance(limit, ReadAllAvailable):
            # New partitions are read from their first offset, which need not be 0.
            begun = {**{place: first for place, (first, _) in self.logs.bounds().items()}, **begun}
        match limit:
            case ReadMaxRows(max_rows=records_max):
                end = cut_records(begun, end, records_max=records_max)
            case ReadMaxBytes(max_bytes=bytes_max):
                end = self.logs.cut(begun, end, bytes_max=bytes_max)
        return to_json(end)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[RangeTask]:
        return list(self.logs.tasks(from_json(start), from_json(end)))

    def read(self, partition: RangeTask) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    def _ends(self) -> Positions:
        return {place: end for place, (_, end) in self.logs.bounds().items()}

    def _following(self, begun: Positions) -> Positions:
        """Return the current log end offsets, none below its start. Waits if the previous poll found nothing."""
        if self._last is not None:
            ends = self._last
        else:
            if self._idle_since_s is not None:
                time.sleep(max(0.0, self._idle_since_s + POLL_INTERVAL_S - time.monotonic()))
            ends = self._ends()
        following = {**begun, **{place: max(end, begun.get(place, 0)) for place, end in ends.items()}}
        self._idle_since_s = time.monotonic() if following == begun else None
        return following
