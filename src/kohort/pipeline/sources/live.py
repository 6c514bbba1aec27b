"""
Logs of a running cluster, over the wire: `kafka://HOST:PORT`, several with commas between.

Everything is read up to where each log ended when it was asked, read_uncommitted, so that the pipeline sees what a segment file
would show it: the batches of a Fetch response are those of the log, byte for byte. The versions are fixed ones that every
broker since Kafka 2.7 serves: Metadata 9, ListOffsets 5, Fetch 12.

Source: Kafka protocol guide; KIP-227 (Fetch without a session).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

from kohort.client.addresses import Address, parse_bootstrap
from kohort.client.cluster import connect_first
from kohort.client.connection import Connection, Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES, LAST_OFFSET_DELTA_AT, LOG_OVERHEAD_BYTES, fields_struct
from kohort.wire.primitives import INT32

_PREFIX = fields_struct("base_offset", "length")

SCHEME = "kafka://"
_CLIENT_ID = "kohort-pipeline"
_TIMEOUT_S = 30.0
_FETCH_BYTES = 32 << 20
_FRAME_BYTES_MAX = 256 << 20
_FETCH_WAIT_MS = 500
_METADATA, _LIST_OFFSETS, _FETCH = Versions(9, 9), Versions(5, 5), Versions(12, 12)
_EARLIEST, _LATEST = -2, -1
_HINT = "a listener with TLS or SASL needs options: kafka.security.protocol and so on"


@dataclass(frozen=True, slots=True, order=True)
class LiveLog:
    """The log of a partition as it was when it was asked for: offsets from `start` to before `end`, at its leader."""

    topic: str
    partition: int
    start: int
    end: int
    host: str
    port: int


def is_live(path: str) -> bool:
    """Whether a source is a running cluster."""
    return path.startswith(SCHEME)


def list_logs(
    path: str,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    security: Security = PLAINTEXT,
) -> list[LiveLog]:
    """
    The logs of a cluster, in order; None means every topic, every partition. A topic that is not there has none.

    Raises:
        ConfigError: no broker answers, or a partition has no leader.
    """
    with first_broker(path, security) as connection:
        asked = None if topics is None else [messages.MetadataRequestTopic(name=name) for name in sorted(topics)]
        request = messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        metadata = connection.send(ApiKey.METADATA, request, within=_METADATA)
    brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    led: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for topic in metadata.topics:
        for one in topic.partitions:
            if partitions is None or one.partition_index in partitions:
                if one.leader_id not in brokers:
                    raise ConfigError(f"{topic.name}-{one.partition_index} has no leader now")
                led.setdefault(brokers[one.leader_id], []).append((topic.name, one.partition_index))
    return sorted(log for address, places in led.items() for log in _ends(address, places, security))


def first_broker(path: str, security: Security = PLAINTEXT) -> Connection:
    """A connection to the first of the brokers that answers."""
    brokers = path.removeprefix(SCHEME)
    if not brokers.strip(", "):
        raise ConfigError(f"{path} names no broker; write {SCHEME}HOST:PORT")
    return connect_first(parse_bootstrap(brokers), partial(_connect, security=security))


def _connect(address: Address, security: Security) -> Connection:
    """
    Raises:
        ConfigError: nobody answers there, the broker's certificate is not trusted, or it does not let us in.
        WireError: what answers there does not speak Kafka's protocol.
    """
    return Connection(address, _TIMEOUT_S, security, client_id=_CLIENT_ID, frame_bytes_max=_FRAME_BYTES_MAX, hint=_HINT)


def _ends(address: tuple[str, int], places: list[tuple[str, int]], security: Security) -> list[LiveLog]:
    with _connect(Address(*address), security) as connection:
        starts, ends = (_offsets(connection, places, timestamp) for timestamp in (_EARLIEST, _LATEST))
    return [LiveLog(*place, starts[place], ends[place], *address) for place in places]


def _offsets(connection: Connection, places: list[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
    topics = [
        messages.ListOffsetsTopic(
            name=topic,
            partitions=[
                messages.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
                for name, partition in places
                if name == topic
            ],
        )
        for topic in sorted({name for name, _ in places})
    ]
    request = messages.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    response = connection.send(ApiKey.LIST_OFFSETS, request, within=_LIST_OFFSETS)
    found: dict[tuple[str, int], int] = {}
    for topic in response.topics:
        for one in topic.partitions:
            _refuse(one.error_code, f"{topic.name}-{one.partition_index}")
            found[topic.name, one.partition_index] = one.offset
    return found


def read(log: LiveLog, security: Security = PLAINTEXT) -> Iterator[bytes]:
    """
    The batches of a log, some megabytes at a time, each piece whole batches only.

    Raises:
        ConfigError: the leader moved or fell silent meanwhile, or the log's begin was deleted; reading it again helps.
    """
    at = log.start
    with _connect(Address(log.host, log.port), security) as connection:
        while at < log.end:
            piece = _fetch(connection, log, at)
            whole, following = whole_batches(piece)
            if not whole:
                raise ConfigError(f"{log.topic}-{log.partition} gives nothing at offset {at}, and ends at {log.end}")
            at = following
            yield piece[:whole]


def _fetch(connection: Connection, log: LiveLog, at: int) -> bytes:
    partition = messages.FetchRequestFetchPartition(
        partition=log.partition,
        current_leader_epoch=-1,
        fetch_offset=at,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
    )
    request = messages.FetchRequest(
        replica_id=-1,
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[messages.FetchRequestFetchTopic(topic=log.topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = connection.send(ApiKey.FETCH, request, within=_FETCH)
    _refuse(response.error_code, f"{log.topic}-{log.partition}")
    for topic in response.responses:
        for one in topic.partitions:
            _refuse(one.error_code, f"{log.topic}-{log.partition}")
            return bytes(one.records or b"")
    return b""


def whole_batches(piece: bytes) -> tuple[int, int]:
    """How many bytes at the front are whole batches, and the offset that follows them; a broker cuts the last one off."""
    end = following = 0
    while end + HEADER_BYTES <= len(piece):
        base_offset, length = _PREFIX.unpack_from(piece, end)
        after = end + LOG_OVERHEAD_BYTES + length
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > len(piece):
            break
        (last_offset_delta,) = INT32.unpack_from(piece, end + LAST_OFFSET_DELTA_AT)
        end, following = after, base_offset + last_offset_delta + 1
    return end, following


def _refuse(code: int, place: str) -> None:
    if code:
        raise ConfigError(f"{place} cannot be read: {ErrorCode(code).name}")
