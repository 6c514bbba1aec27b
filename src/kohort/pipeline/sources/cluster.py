"""Ranges of the logs of a running cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from kohort.client.cluster import Client
from kohort.client.security import Security
from kohort.model.errors import ConfigError
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources import live
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.positions import Positions, TopicPartition
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import LogState, RangeTask, check_loss

FETCHED = "fetched"
"""The name of the segment in rows; there is no file."""


class FetchTask(RangeTask):
    """A task that fetches a range of one partition from its leader; with `tells_end`, a row with the end offset follows."""

    def __init__(
        self,
        task: int,
        log: live.LiveLog,
        security: Security,
        *,
        fail_on_data_loss: bool = True,
        tells_end: bool = False,
    ) -> None:
        super().__init__(task)
        self.log = log
        self.security = security
        self.fail_on_data_loss = fail_on_data_loss
        self.tells_end = tells_end

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of the range.

        Raises:
            ConfigError: the leader moved or does not answer; or records were deleted since the plan, and that is an error.
                Otherwise they are a row of kind damage.
        """
        log, at = self.log, self.log.start
        stretch = Slice(log.start, log.end, has_tail=True)
        with live.open_leader(log, self.security) as client:
            while at < log.end:
                segment = Segment(log.topic, log.partition, log.start, FETCHED, 0)
                try:
                    piece, following = live.fetch(client, log, at)
                except live.RecordsDeletedError as exc:
                    if self.fail_on_data_loss:
                        raise
                    following = self._first_remaining(client, at)
                    problem = f"offsets {at} to {following} were deleted before they were read: {exc}"
                    yield from decoder.damage_rows([Corruption(0, 0, problem, at)], segment)
                else:
                    yield from decoder.decode(piece, segment, stretch)
                    note.add(bytes_read=len(piece))
                at = following
        if self.tells_end:
            # An empty segment at the end gives the row.
            yield from decoder.decode(b"", Segment(log.topic, log.partition, log.end, FETCHED, 0))

    def _first_remaining(self, client: Client, at: int) -> int:
        """Return the first offset of the same log after deleted ones, at most the end of the range."""
        end, topic_id = self.log.end, self.log.topic_id
        listed = live.describe_logs(client, topics={self.log.topic}, partitions={self.log.partition})
        starts = (one.start for one in listed if one.topic_id == topic_id and one.start > at)
        return min(next(starts, end), end)


def chosen_logs(options: SourceOptions) -> list[live.LiveLog]:
    """
    Return the logs of a cluster that the options choose.

    Raises:
        ConfigError: no broker answers, or a partition has no leader.
    """
    logs = live.list_logs(options.path, topics=options.topics, partitions=options.partitions, security=options.security)
    return [log for log in logs if options.matches(log.topic)]


def split(logs: Sequence[live.LiveLog], tasks_min: int | None) -> list[live.LiveLog]:
    """Split ranges of offsets, the longest ones into most parts, so that there are at least about `tasks_min`."""
    total = sum(log.end - log.start for log in logs)
    if tasks_min is None or total == 0 or tasks_min <= len(logs):
        return list(logs)
    found = []
    for log in logs:
        count = max(1, -(-(log.end - log.start) * tasks_min // total))
        bounds = [log.start + (log.end - log.start) * part // count for part in range(count + 1)]
        parts = [replace(log, start=start, end=end) for start, end in pairwise(bounds) if start < end]
        found += parts or [log]
    return found


class ClusterLogs:
    """`ranges.Logs` of a cluster."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topic_ids: dict[str, str] = {}
        """As of the last `state`. Tasks read these topics, and no others of the same names."""

    def state(self) -> LogState:
        logs = chosen_logs(self._options)
        bounds = {(log.topic, log.partition): (log.start, log.end) for log in logs}
        self._topic_ids = {log.topic: log.topic_id for log in logs if log.topic_id is not None}
        return LogState(bounds, self._topic_ids)

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        ranges = (self._range(log, start, end) for log in chosen_logs(self._options))
        return [
            FetchTask(task, log, self._options.security, fail_on_data_loss=self._options.fail_on_data_loss)
            for task, log in enumerate(
                split([one for one in ranges if one.start < one.end], self._options.min_partitions)
            )
        ]

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:  # noqa: ARG002
        raise ConfigError("how many bytes records are is not known over the wire: use maxRecordsPerTrigger there")

    def _range(
        self, log: live.LiveLog, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> live.LiveLog:
        place = (log.topic, log.partition)
        begin = start.get(place, log.start)
        until = end.get(place, begin)
        if self._options.fail_on_data_loss and begin < until:
            check_loss(place, log.start, begin)
        topic_id = self._topic_ids.get(log.topic, log.topic_id)
        return replace(log, start=max(begin, log.start), end=until, topic_id=topic_id)
