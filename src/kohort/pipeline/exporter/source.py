"""
The source that an exporter follows: the logs of a running cluster, of a data directory or of a store.

A log that was deleted and created again, or truncated below what was read, begins again. Positions are offsets, so compaction
does not matter: a poll ends when the log returns no further batch, not at a record that compaction may have removed.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from kohort.model.errors import ConfigError, CoordinatorError, CorruptError, WireError
from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.exporter.transactions import OpenProducer
from kohort.pipeline.sources.live import LiveLog

FAILURES = (ConfigError, CoordinatorError, CorruptError, WireError, OSError)
"""Errors of a read; the next poll may succeed."""
FAILURES_MAX = 3
"""Failures of one leader in a poll, after which its other logs wait for the next poll."""


class Position(NamedTuple):
    """The next offset to read of a log, and the id of its topic (None if the source has none)."""

    offset: int
    topic_id: str | None


class Appended(NamedTuple):
    """New batches of a log. `begins_again`: what was read of this log before does not count any more."""

    log: LiveLog
    rows: list[pa.RecordBatch]
    begins_again: bool


class Fetched(NamedTuple):
    """
    Whole batches of a log.

    Attributes:
        following: the offset behind them.
        aborted: the aborted transactions of `read_committed`: objects with `producer_id` and `first_offset`.
    """

    piece: bytes
    following: int
    aborted: Sequence[Any] = ()


class Source(ABC):
    """
    The logs of a source.

    Attributes:
        problems: sentences about logs that could not be read since `begin`.
        positions: how far each followed log was read.
        dropped: open transactions beyond a limit.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.positions: dict[TopicPartition, Position] = {}
        self.dropped = 0
        self._failures: Counter[Hashable] = Counter()
        self._first_ends: dict[tuple[str, int], int] | None = None
        self._grows = False

    def begin(self) -> None:
        """Begin a poll: forget the problems of the last one."""
        self.problems = []
        self._failures.clear()

    def is_down(self, log: LiveLog) -> bool:
        """Tell whether the leader of a log failed too often in this poll. Each failure may take as long as a timeout."""
        return self._failures[self._leader(log)] >= FAILURES_MAX

    def failed(self, exc: Exception, log: LiveLog | None = None) -> None:
        """Note a failure, at the leader of a log. The next request begins anew, because a broker may have been restarted."""
        self.problems.append(str(exc))
        if log is not None:
            self._failures[self._leader(log)] += 1
        self.close()

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
                    rows, following = self.read(log, at, decoder)
                    if following is None:
                        break
                    at = following
                    self.positions[place] = Position(at, log.topic_id)
                    yield Appended(log, rows, begins_again=False)
            except FAILURES as exc:
                self.failed(exc, log)

    def at_rest(self) -> str | None:
        """Return the source if its logs have not grown since the first poll; None if they have, or of a running cluster."""
        return None

    def is_at_rest(self, ends: dict[tuple[str, int], int]) -> bool:
        """Tell whether the ends of logs have been the same since the first call."""
        if self._first_ends is None:
            self._first_ends = ends
        self._grows = self._grows or ends != self._first_ends
        return not self._grows

    def _leader(self, log: LiveLog) -> Hashable:
        """Return what serves a log: if it fails, its other logs are likely to fail, too."""
        return log.host, log.port

    @abstractmethod
    def close(self) -> None:
        """Release connections and files; the next request opens new ones."""

    @abstractmethod
    def cluster_id(self) -> str:
        """
        Return the id of the cluster, or an empty string.

        Raises:
            ConfigError, WireError: no broker answers.
        """

    @abstractmethod
    def logs(self, topics: Collection[str] | None = None) -> list[LiveLog]:
        """
        Return the logs of some topics, or of all, with their bounds. Logs that cannot be described are a problem, and left out.

        Raises:
            ConfigError, WireError: the source cannot be read.
        """

    @abstractmethod
    def read(self, log: LiveLog, at: int, decoder: Decoder) -> tuple[list[pa.RecordBatch], int | None]:
        """Return the rows of the next batches and the offset after them; None if the log returns no batch."""

    @abstractmethod
    def fetch(self, log: LiveLog, at: int, *, bytes_max: int, is_committed: bool) -> Fetched:
        """
        Return whole batches from an offset on, at least one if there is any.

        Args:
            bytes_max: the approximate size.
            is_committed: read as `read_committed`: to the last stable offset, and with aborted transactions.
        """

    @abstractmethod
    def stable_ends(self, logs: Collection[LiveLog]) -> dict[tuple[str, int], int]:
        """Return the last stable offset of each log: the first record of its oldest open transaction, or its end."""

    @abstractmethod
    def open_transactions(self, logs: Collection[LiveLog]) -> list[OpenProducer]:
        """Return the transactions that are open in some logs."""


def _is_other(before: Position, log: LiveLog) -> bool:
    is_recreated = before.topic_id is not None and log.topic_id is not None and before.topic_id != log.topic_id
    return is_recreated or log.end < before.offset
