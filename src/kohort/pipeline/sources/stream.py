"""
`spark.readStream.format("kohort")`: appended batches, each once.

The checkpoint holds the next offset of each topic partition and the topic ids (`stream_offsets`). A micro-batch that is
repeated after a crash reads the same ranges of the same logs, so its rows are the same, unless compaction removed records
meanwhile. New partitions are read from their first offset. A log that began again ends the query; with failOnDataLoss=false it
is read from its first offset.

Source: PySpark 4.2, DataSourceStreamReader with read limits; KIP-98 (a batch is never split).
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import open_logs
from kohort.pipeline.sources.positions import EARLIEST
from kohort.pipeline.sources.ranges import LogState, cut_records, read_task, resolve
from kohort.pipeline.sources.stream_offsets import StreamOffset, StreamPosition

POLL_INTERVAL_S = 0.1
"""Spark polls every 10 ms while there is no new data; each poll costs a directory listing, or a request."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches in the driver, reads them in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.logs = open_logs(options)
        self._last: LogState | None = None
        """With the trigger availableNow: the logs at the start of the query."""
        self._idle_since_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers need only the options.
        return {**self.__dict__, "logs": None}

    def initialOffset(self) -> StreamOffset:  # noqa: N802  (Spark's names)
        now = self.logs.state()
        return StreamPosition(
            resolve(self._options.starting, now.bounds, otherwise=EARLIEST), dict(now.topic_ids)
        ).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_records is None else ReadMaxRows(options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self.logs.state()

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802
        return StreamPosition.end(self.logs.state()).to_json()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        before, now = StreamPosition.from_json(start), self._now()
        begun = before.begun(now, fail_on_data_loss=self._options.fail_on_data_loss)
        end = {**begun.offsets, **StreamPosition.end(now).offsets}
        match limit:
            case ReadMaxRows(max_rows=records_max):
                end = cut_records(begun.offsets, end, records_max=records_max)
            case ReadMaxBytes(max_bytes=bytes_max):
                end = self.logs.cut(begun.offsets, end, bytes_max=bytes_max)
        following = StreamPosition(end, begun.topic_ids)
        self._idle_since_s = time.monotonic() if following == before else None
        return following.to_json()

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        begun, planned = StreamPosition.from_json(start), StreamPosition.from_json(end)
        fail_on_data_loss = self._options.fail_on_data_loss
        tasks = self.logs.tasks(*begun.readable(planned, self.logs.state(), fail_on_data_loss=fail_on_data_loss))
        return [InputPartition(one) for one in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition.value)

    def _now(self) -> LogState:
        """Return the logs of now, or those at the start of the query. Waits if the previous poll found nothing."""
        if self._last is not None:
            return self._last
        if self._idle_since_s is not None:
            time.sleep(max(0.0, self._idle_since_s + POLL_INTERVAL_S - time.monotonic()))
        return self.logs.state()
