"""
Follows logs of a running cluster: what was appended since the last poll, as rows of the decoder.

A log that was deleted and created again, or truncated below what was read, begins again. Positions are offsets, so compaction
does not matter: a poll ends when the log returns no further batch, not at a record that compaction may have removed.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from kohort.client.addresses import Address
from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, WireError
from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.exporter.transactions import OpenProducer
from kohort.pipeline.sources import live
from kohort.pipeline.sources.live import LiveLog
from kohort.wire import messages
from kohort.wire.apis import ApiKey

FAILURES = (ConfigError, CoordinatorError, WireError, OSError)
"""Errors of a request to a broker; the next poll may succeed."""
FAILURES_MAX = 3
"""Failures of one leader in a poll, after which its other logs wait for the next poll."""
_SEGMENT = "fetched"

Leader: TypeAlias = tuple[str, int]


class Position(NamedTuple):
    """The next offset to read of a log, and the id of its topic (None if the broker has none)."""

    offset: int
    topic_id: str | None


class Appended(NamedTuple):
    """New batches of a log. `begins_again`: what was read of this log before does not count any more."""

    log: LiveLog
    rows: list[pa.RecordBatch]
    begins_again: bool


@dataclass(slots=True)
class Cluster:
    """
    A running cluster, with connections that stay open between polls.

    Attributes:
        problems: sentences about logs and brokers that could not be read since `begin`.
        positions: how far each followed log was read.
    """

    source: str
    security: Security = PLAINTEXT
    problems: list[str] = field(default_factory=list)
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    _client: Client | None = None
    _failures: Counter[Leader] = field(default_factory=Counter)

    def begin(self) -> None:
        """Begin a poll: forget the problems of the last one."""
        self.problems = []
        self._failures.clear()

    def is_down(self, log: LiveLog) -> bool:
        """Tell whether the leader of a log failed too often in this poll. Each failure may take as long as a timeout."""
        return self._failures[log.host, log.port] >= FAILURES_MAX

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = live.open_client(self.source, self.security)
        return self._client

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def logs(self, topics: Collection[str] | None = None) -> list[LiveLog]:
        """
        Return the logs of some topics, or of all, with their bounds. Logs without a leader are a problem, and left out.

        Raises:
            ConfigError, WireError: no broker answers.
        """
        return live.describe_logs(self.client, topics=topics, on_problem=self.problems.append)

    def cluster_id(self) -> str:
        """
        Return the id of the cluster.

        Raises:
            ConfigError, WireError: no broker answers.
        """
        response = self.client.send(ApiKey.METADATA, messages.MetadataRequest(topics=()))
        return response.cluster_id or ""

    def appended(self, logs: Collection[LiveLog], decoder: Decoder) -> Iterator[Appended]:
        """Yield what was appended to some logs since the last call, piece by piece. A log that cannot be read is a problem."""
        for log in logs:
            if self.is_down(log):
                continue
            place = TopicPartition(log.topic, log.partition)
            before = self.positions.get(place)
            begins_again = before is not None and _is_other(before, log)
            at = log.start if before is None or begins_again else max(before.offset, log.start)
            if begins_again:
                self.positions[place] = Position(at, log.topic_id)
                yield Appended(log, [], begins_again=True)
            try:
                while at < log.end:
                    rows, following = self._read(log, at, decoder)
                    if following is None:
                        break
                    at = following
                    self.positions[place] = Position(at, log.topic_id)
                    yield Appended(log, rows, begins_again=False)
            except FAILURES as exc:
                self.failed(exc, log)

    def stable_ends(self, logs: Collection[LiveLog]) -> dict[tuple[str, int], int]:
        """Return the last stable offset of each log: the first record of its oldest open transaction, or its end."""
        found: dict[tuple[str, int], int] = {}
        for leader in sorted({(log.host, log.port) for log in logs}):
            listed = [(log.topic, log.partition) for log in logs if (log.host, log.port) == leader]
            try:
                found |= live.list_offsets(
                    self.client,
                    Address(*leader),
                    listed,
                    live.LATEST,
                    is_committed=True,
                    on_problem=self.problems.append,
                )
            except FAILURES as exc:
                self.failed(exc)
        return found

    def open_transactions(self, logs: Collection[LiveLog]) -> list[OpenProducer]:
        """Return the transactions that are open in some logs, as their leaders tell (DescribeProducers)."""
        found: list[OpenProducer] = []
        for log in logs:
            if self.is_down(log):
                continue
            request = messages.DescribeProducersRequest(
                topics=[
                    messages.DescribeProducersRequestTopicRequest(name=log.topic, partition_indexes=[log.partition])
                ]
            )
            try:
                response = self.client.send(ApiKey.DESCRIBE_PRODUCERS, request, at=Address(log.host, log.port))
            except FAILURES as exc:
                self.failed(exc, log)
                continue
            found += [
                OpenProducer(TopicPartition(log.topic, log.partition), producer.producer_id, producer.last_timestamp)
                for topic in response.topics
                for one in topic.partitions
                for producer in one.active_producers
                if producer.current_txn_start_offset >= 0
            ]
        return found

    def failed(self, exc: Exception, log: LiveLog | None = None) -> None:
        """Note a failure, at the leader of a log. Connections are made anew, because a broker may have been restarted."""
        self.problems.append(str(exc))
        if log is not None:
            self._failures[log.host, log.port] += 1
        self.close()

    def _read(self, log: LiveLog, at: int, decoder: Decoder) -> tuple[list[pa.RecordBatch], int | None]:
        """Return the rows of the next batches and the offset after them; None if the log returns no batch."""
        fetched = live.fetch_partition(self.client, log, at)
        piece = b"" if fetched is None else bytes(fetched.records or b"")
        whole, following = live.whole_batches(piece)
        if not whole:
            return [], None
        segment = Segment(log.topic, log.partition, at, _SEGMENT, whole)
        # A fetched batch may begin before the offset: it was read already.
        return list(decoder.decode(piece[:whole], segment, Slice(at, following, has_tail=True))), following


def _is_other(before: Position, log: LiveLog) -> bool:
    is_recreated = before.topic_id is not None and log.topic_id is not None and before.topic_id != log.topic_id
    return is_recreated or log.end < before.offset
