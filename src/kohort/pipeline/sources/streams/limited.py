"""
Streams whose micro-batches have a limit, and that stop at the ends of their logs with the trigger availableNow.

Source: PySpark 4.2, DataSourceStreamReader and pyspark.sql.streaming.datasource.
"""

import time

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.ranges import LogState, cut_records
from kohort.pipeline.sources.streams.offsets import StreamOffset, StreamPosition
from kohort.pipeline.sources.streams.stream import LogStreamReader


class LimitedLogStreamReader(LogStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans each micro-batch from the end of the previous one."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._last: LogState | None = None
        """With the trigger availableNow: the logs at the start of the query."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's names)
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_records is None else ReadMaxRows(options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self.logs.state()

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802
        return StreamPosition.end(self.logs.state()).to_json()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # type: ignore[override]  # noqa: N802
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
        return self._planned(start, end)

    def _now(self) -> LogState:
        return super()._now() if self._last is None else self._last
