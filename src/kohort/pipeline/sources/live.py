"""
Logs of a running cluster, over the wire: `kafka://HOST:PORT`, several brokers separated by commas.

Each log is read up to its log end offset at the start, with isolation level read_uncommitted, so that the pipeline sees the
same batches as in a segment file. The API versions are Metadata 9 to 12, ListOffsets 5 and Fetch 12, which every broker
since Kafka 2.7 supports. Fetch 13 names the topic by its id, so that a topic that was created again is not read in its place.

Source: Kafka protocol guide; KIP-227 (Fetch without a session).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa

from kohort.client.addresses import Address
from kohort.client.cluster import Client, broker_addresses
from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import uuid_from_text, uuid_text
from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import NOT_SERVED, Segment
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.sources.options import SCHEME, SourceOptions
from kohort.pipeline.sources.positions import Positions, TopicPartition
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import LogState, RangeTask, check_loss
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES, LAST_OFFSET_DELTA_AT, LOG_OVERHEAD_BYTES, fields_struct
from kohort.wire.primitives import INT32

_PREFIX = fields_struct("base_offset", "length")

_CLIENT_ID = "kohort-pipeline"
_TIMEOUT_S = 30.0
FETCH_BYTES = 32 << 20
_FRAME_BYTES_MAX = 256 << 20
_FETCH_WAIT_MS = 500
_METADATA, _LIST_OFFSETS, _FETCH, _FETCH_BY_ID = Versions(9, 12), Versions(5, 5), Versions(12, 12), Versions(12, 13)
FETCHED = "fetched"
"""The name of the segment in rows; there is no file."""
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets for the first offset, and for the end offset."""
_HINT = "a listener with TLS or SASL needs options: kafka.security.protocol and so on"

OnProblem: TypeAlias = Callable[[str], None]
"""Called with a sentence about a log that cannot be read."""


def _fail(problem: str) -> None:
    raise ConfigError(problem)


_DELETED = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


class RecordsDeletedError(ConfigError):
    """The records at an offset were deleted, by retention or with their topic."""


@dataclass(frozen=True, slots=True, order=True)
class LiveLog:
    """
    The log of a partition at an instant: offsets from `start` to before `end`, and the address of the leader.

    Attributes:
        topic_id: None with brokers before Kafka 2.8.
    """

    topic: str
    partition: int
    start: int
    end: int
    host: str
    port: int
    topic_id: str | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


def is_live(path: str) -> bool:
    """Tell whether a source is a running cluster."""
    return path.startswith(SCHEME)


def list_logs(
    path: str,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    security: Security = PLAINTEXT,
) -> list[LiveLog]:
    """
    Return the logs of a cluster, sorted. None stands for every topic, every partition. Missing topics have no log.

    Raises:
        ConfigError: no broker answers, a partition has no leader, or a topic is named that clients cannot read.
    """
    if unserved := sorted(NOT_SERVED.intersection(topics or ())):
        raise ConfigError(f"brokers do not serve {unserved[0]} to clients; read it from the data directory of a broker")
    with open_client(path, security) as client:
        return describe_logs(client, topics=topics, partitions=partitions)


def describe_logs(
    client: Client,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    on_problem: OnProblem = _fail,
) -> list[LiveLog]:
    """
    Return the logs of a cluster, sorted; arguments as for `list_logs`.

    Args:
        on_problem: called with a sentence about logs that cannot be described; they are left out. By default the sentence is
            raised as a ConfigError.
    """
    names = None if topics is None else [messages.MetadataRequestTopic(name=name) for name in sorted(topics)]
    request = messages.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    metadata = client.send(ApiKey.METADATA, request, within=_METADATA)
    brokers = broker_addresses(metadata)
    led: dict[Address, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            if partitions is None or one.partition_index in partitions:
                if one.leader_id in brokers:
                    led.setdefault(brokers[one.leader_id], []).append((topic.name, one.partition_index))
                else:
                    on_problem(f"{topic.name}-{one.partition_index} has no leader now")
    ids = {topic.name: uuid_text(topic.topic_id) for topic in metadata.topics if topic.topic_id}
    logs: list[LiveLog] = []
    for leader, listed in led.items():
        starts, ends = (list_offsets(client, leader, listed, at, on_problem=on_problem) for at in (EARLIEST, LATEST))
        there = [one for one in listed if one in starts and one in ends]
        logs += [LiveLog(*one, starts[one], ends[one], *leader, ids.get(one[0])) for one in there]
    return sorted(logs)


def open_client(source: str | Address, security: Security = PLAINTEXT) -> Client:
    """
    Return a client of the cluster of a source, or of one broker.

    Raises:
        ConfigError: the source names no broker.
    """
    if isinstance(source, str) and not source.removeprefix(SCHEME).strip(", "):
        raise ConfigError(f"{source} names no broker; write {SCHEME}HOST:PORT")
    bootstrap = source.removeprefix(SCHEME) if isinstance(source, str) else [source]
    return Client(bootstrap, _TIMEOUT_S, security, client_id=_CLIENT_ID, frame_bytes_max=_FRAME_BYTES_MAX, hint=_HINT)


def list_offsets(
    client: Client,
    leader: Address,
    listed: Collection[TopicPartition],
    timestamp: int,
    *,
    is_committed: bool = False,
    on_problem: OnProblem = _fail,
) -> dict[TopicPartition, int]:
    """
    Return offsets by partition, as the leader tells them.

    Args:
        timestamp: `EARLIEST` or `LATEST`.
        is_committed: ask as a `read_committed` reader, whose latest offset is the last stable offset.
        on_problem: as for `describe_logs`.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in listed:
        by_topic.setdefault(topic, []).append(partition)
    topics = [
        messages.ListOffsetsTopic(
            name=topic,
            partitions=[
                messages.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
                for partition in partitions
            ],
        )
        for topic, partitions in sorted(by_topic.items())
    ]
    request = messages.ListOffsetsRequest(replica_id=-1, isolation_level=int(is_committed), topics=topics)
    response = client.send(ApiKey.LIST_OFFSETS, request, at=leader, within=_LIST_OFFSETS)
    found: dict[TopicPartition, int] = {}
    for told in response.topics:
        for one in told.partitions:
            if one.error_code:
                on_problem(_unreadable(f"{told.name}-{one.partition_index}", one.error_code))
            else:
                found[told.name, one.partition_index] = one.offset
    return found


def open_leader(log: LiveLog, security: Security = PLAINTEXT) -> Client:
    """Return a client of the broker that leads a log."""
    return open_client(Address(log.host, log.port), security)


def fetch(client: Client, log: LiveLog, at: int, bytes_max: int = FETCH_BYTES) -> tuple[bytes, int]:
    """
    Return whole batches from an offset on, at least one, and the offset behind them.

    Args:
        client: of the leader.
        bytes_max: the approximate size; a first batch that is larger is returned too (KIP-74).

    Raises:
        ConfigError: the leader moved, or the offset was deleted. A new read may succeed.
    """
    fetched = fetch_partition(client, log, at, bytes_max=bytes_max)
    piece = b"" if fetched is None else bytes(fetched.records or b"")
    whole, following = whole_batches(piece)
    if not whole:
        raise ConfigError(f"{log.topic}-{log.partition} returned no batch at offset {at}; its end offset is {log.end}")
    return piece[:whole], following


def fetch_partition(
    client: Client, log: LiveLog, at: int, *, bytes_max: int = FETCH_BYTES, is_committed: bool = False
) -> Any:
    """
    Fetch from an offset of a log on, and return the partition of the response; None if there is none.

    Args:
        bytes_max: a limit of the records; one batch is returned in any case.
        is_committed: read as `read_committed`; the result then has `aborted_transactions`.

    Raises:
        ConfigError: the leader moved or does not answer.
        RecordsDeletedError: the offset was deleted, or the topic, which may have been created again.
    """
    partition = messages.FetchRequestFetchPartition(
        partition=log.partition,
        current_leader_epoch=-1,
        fetch_offset=at,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
    )
    topic_id = None if log.topic_id is None else uuid_from_text(log.topic_id)
    request = messages.FetchRequest(
        replica_id=-1,
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(is_committed),
        session_id=0,
        session_epoch=-1,
        topics=[messages.FetchRequestFetchTopic(topic=log.topic, topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    within = _FETCH if topic_id is None else _FETCH_BY_ID
    response = client.send(ApiKey.FETCH, request, at=Address(log.host, log.port), within=within)
    _check(response.error_code, f"{log.topic}-{log.partition}")
    for topic in response.responses:
        for one in topic.partitions:
            _check(one.error_code, f"{log.topic}-{log.partition}")
            return one
    return None


def whole_batches(piece: bytes) -> tuple[int, int]:
    """Return the size of the complete batches at the front, and the offset after them. A broker may truncate the last batch."""
    end = following = 0
    while end + HEADER_BYTES <= len(piece):
        base_offset, length = _PREFIX.unpack_from(piece, end)
        after = end + LOG_OVERHEAD_BYTES + length
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > len(piece):
            break
        (last_offset_delta,) = INT32.unpack_from(piece, end + LAST_OFFSET_DELTA_AT)
        end, following = after, base_offset + last_offset_delta + 1
    return end, following


def _check(code: int, partition: str) -> None:
    if code in _DELETED or code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise RecordsDeletedError(_unreadable(partition, code))
    if code:
        raise ConfigError(_unreadable(partition, code))


def _unreadable(partition: str, code: int) -> str:
    reason = " (its topic was deleted, and maybe created again)" if code in _DELETED else ""
    return f"{partition} cannot be read: {ErrorCode(code).name}{reason}"


@dataclass(frozen=True, slots=True)
class FetchTask(RangeTask):
    """
    A task that fetches a range of one partition from its leader.

    Attributes:
        is_first: it begins with the log, whose start may lie inside a batch: then it has all of that batch.
        tells_end: a row with the end offset follows.
    """

    task: int
    log: LiveLog
    security: Security
    fail_on_data_loss: bool = field(default=True, kw_only=True)
    is_first: bool = field(default=False, kw_only=True)
    tells_end: bool = field(default=False, kw_only=True)

    @property
    def places(self) -> Collection[TopicPartition]:
        return (self.log.place,)

    @property
    def offsets(self) -> int:
        return self.log.end - self.log.start

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows of the range.

        Raises:
            ConfigError: the leader moved or does not answer; or records were deleted since the plan, and that is an error.
                Otherwise they are a row of kind damage.
        """
        log, at = self.log, self.log.start
        stretch = Slice(0 if self.is_first else log.start, log.end, has_tail=True)
        with open_leader(log, self.security) as client:
            while at < log.end:
                segment = Segment(log.topic, log.partition, log.start, FETCHED, 0)
                try:
                    piece, following = fetch(client, log, at)
                except RecordsDeletedError as exc:
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
        listed = describe_logs(client, topics={self.log.topic}, partitions={self.log.partition})
        starts = (one.start for one in listed if one.topic_id == topic_id and one.start > at)
        return min(next(starts, end), end)


def chosen_logs(options: SourceOptions) -> list[LiveLog]:
    """
    Return the logs of a cluster that the options choose.

    Raises:
        ConfigError: no broker answers, or a partition has no leader.
    """
    logs = list_logs(options.path, topics=options.topics, partitions=options.partitions, security=options.security)
    return [log for log in logs if options.matches(*log.place)]


def split(logs: Sequence[LiveLog], options: SourceOptions) -> list[LiveLog]:
    """Split ranges of offsets, the longest ones into most parts, into tasks of the number and size that the options ask for."""
    total = sum(log.end - log.start for log in logs)
    tasks_min = options.min_partitions or 0
    part_max = min(options.records_per_task or total, total // tasks_min if tasks_min > len(logs) else total)
    found = []
    for log in logs:
        count = max(1, -(-(log.end - log.start) // max(1, part_max)))
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
        bounds = {log.place: (log.start, log.end) for log in logs}
        self._topic_ids = {log.topic: log.topic_id for log in logs if log.topic_id is not None}
        return LogState(bounds, self._topic_ids)

    def tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Sequence[RangeTask]:
        logs = chosen_logs(self._options)
        firsts = {log.place: log.start for log in logs}
        ranges = (self._range(log, start, end) for log in logs)
        return [
            FetchTask(
                task,
                log,
                self._options.security,
                fail_on_data_loss=self._options.fail_on_data_loss,
                is_first=log.start == firsts[log.place],
            )
            for task, log in enumerate(split([one for one in ranges if one.start < one.end], self._options))
        ]

    def cut(self, start: Positions, end: Positions, *, bytes_max: int) -> Positions:  # noqa: ARG002
        raise ConfigError("how many bytes records are is not known over the wire: use maxRecordsPerTrigger there")

    def _range(self, log: LiveLog, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> LiveLog:
        begin = start.get(log.place, log.start)
        until = end.get(log.place, begin)
        if self._options.fail_on_data_loss and begin < until:
            check_loss(log.place, log.start, begin)
        topic_id = self._topic_ids.get(log.topic, log.topic_id)
        return replace(log, start=max(begin, log.start), end=until, topic_id=topic_id)
