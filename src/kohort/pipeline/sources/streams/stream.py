"""
`spark.readStream.format("kohort")`: appended batches, each once.

The checkpoint holds the next offset of each topic partition and the topic ids (`offsets`). A micro-batch that is
repeated after a crash reads the same ranges of the same logs, so its rows are the same, unless compaction removed records
meanwhile. New partitions are read from their first offset. A log that began again ends the query; with failOnDataLoss=false it
is read from its first offset.

PySpark 4.0 and 4.1 neither tell a source where a micro-batch begins nor limit it: one holds all that was appended.

Source: PySpark 4.0 and 4.2, DataSourceStreamReader; KIP-98 (a batch is never split).
"""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import open_logs
from kohort.pipeline.sources.positions import EARLIEST
from kohort.pipeline.sources.ranges import LogState, read_task, resolve
from kohort.pipeline.sources.streams.offsets import StreamOffset, StreamPosition

POLL_INTERVAL_S = 0.1
"""Spark polls every 10 ms while there is no new data; each poll costs a directory listing, or a request."""


def has_read_limits() -> bool:
    """Tell whether this PySpark limits micro-batches, as 4.2 and newer do."""
    return hasattr(DataSourceStreamReader, "getDefaultReadLimit")


class LogStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans micro-batches in the driver, reads them in the workers. Each holds all that was appended since the previous one."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.logs = open_logs(options)
        self._idle_since_s: float | None = None
        self._before: StreamPosition | None = None
        """The result of the previous poll; None at the start, also of a query that continues."""

    def __getstate__(self) -> dict[str, Any]:
        # Workers need only the options.
        return {**self.__dict__, "logs": None}

    def initialOffset(self) -> StreamOffset:  # noqa: N802  (Spark's names)
        now = self.logs.state()
        return StreamPosition(
            resolve(self._options.starting, now.bounds, otherwise=EARLIEST), dict(now.topic_ids)
        ).to_json()

    def latestOffset(self) -> StreamOffset:  # noqa: N802
        now, before = self._now(), self._before
        following = StreamPosition.end(now)
        if before is not None:
            begun = before.begun(now, fail_on_data_loss=self._options.fail_on_data_loss)
            following = StreamPosition({**begun.offsets, **following.offsets}, begun.topic_ids)
        self._idle_since_s = time.monotonic() if following == before else None
        self._before = following
        return following.to_json()

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        tasks = self._planned(start, end)
        if self._options.fail_on_data_loss:
            # After a restart this is the first sight of where a micro-batch begins.
            StreamPosition.from_json(start).begun(self.logs.state(), fail_on_data_loss=True)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition.value)

    def _planned(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        before, planned = StreamPosition.from_json(start), StreamPosition.from_json(end)
        fail_on_data_loss = self._options.fail_on_data_loss
        tasks = self.logs.tasks(*before.readable(planned, self.logs.state(), fail_on_data_loss=fail_on_data_loss))
        return [InputPartition(one) for one in tasks]

    def _now(self) -> LogState:
        """Return the logs of now. Waits if the previous poll found nothing."""
        if self._idle_since_s is not None:
            time.sleep(max(0.0, self._idle_since_s + POLL_INTERVAL_S - time.monotonic()))
        return self.logs.state()
