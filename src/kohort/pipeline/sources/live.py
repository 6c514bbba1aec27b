"""
Logs of a running cluster, over the wire: `kafka://HOST:PORT`, several brokers separated by commas.

Each log is read up to its log end offset at the start, with isolation level read_uncommitted, so that the pipeline sees the
same batches as in a segment file. The API versions are Metadata 9 to 12, ListOffsets 5 and Fetch 12, which every broker
since Kafka 2.7 supports. Fetch 13 names the topic by its id, so that a topic that was created again is not read in its place.

Source: Kafka protocol guide; KIP-227 (Fetch without a session).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from kohort.client.addresses import Address
from kohort.client.cluster import Client, broker_addresses
from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import uuid_from_text, uuid_text
from kohort.pipeline.decode.segments import NOT_SERVED
from kohort.pipeline.sources.options import SCHEME
from kohort.pipeline.sources.positions import TopicPartition
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
