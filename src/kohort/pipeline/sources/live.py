"""
Logs of a running cluster, over the wire: `kafka://HOST:PORT`, several with commas between.

Everything is read up to where each log ended when it was asked, read_uncommitted, so that the pipeline sees what a segment file
would show it: the batches of a Fetch response are those of the log, byte for byte. The versions are fixed ones that every
broker since Kafka 2.7 serves: Metadata 9, ListOffsets 5, Fetch 12, SaslHandshake 1, SaslAuthenticate 2. `security` says how to
connect.

Source: Kafka protocol guide; KIP-227 (Fetch without a session).
"""

import socket
import ssl
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kohort.model.errors import ConfigError, ErrorCode, WireError
from kohort.pipeline.decode.batches import HEADER_BYTES, PREFIX_BYTES
from kohort.pipeline.sources.security import PLAINTEXT, Security
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader

SCHEME = "kafka://"
_CLIENT_ID = "kohort-pipeline"
_TIMEOUT_S = 30.0
_FETCH_BYTES = 32 << 20
_FRAME_BYTES_MAX = 256 << 20
_FETCH_WAIT_MS = 500
_METADATA, _LIST_OFFSETS, _FETCH = 9, 5, 12
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 1, 2
_EARLIEST, _LATEST = -2, -1
_PORT = 9092


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


class Connection:
    """One connection to one broker; requests follow each other. A context manager."""

    def __init__(self, host: str, port: int, security: Security = PLAINTEXT) -> None:
        """
        Raises:
            ConfigError: nobody answers there, the broker's certificate is not trusted, or it does not let us in.
        """
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._hint = (
            "" if security.is_encrypted or security.mechanism else "; a listener with TLS or SASL needs options"
        )
        try:
            self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_S)
        except (OSError, UnicodeError) as exc:
            raise ConfigError(f"no broker answers at {self.address}: {exc}") from exc
        try:
            if security.is_encrypted:
                self._encrypt(host, security)
            if security.mechanism is not None:
                self._authenticate(security, security.mechanism)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """
        Send a request and wait for its response.

        Raises:
            ConfigError: the broker falls silent, closes the connection or does not speak Kafka's protocol.
        """
        self._correlation_id += 1
        try:
            self._socket.sendall(request_encoder(api_key, version)(self._correlation_id, _CLIENT_ID, request))
            (size,) = struct.unpack(">i", self._receive(4))
            if not 0 < size <= _FRAME_BYTES_MAX:
                raise WireError(f"a frame of {size} bytes")
            frame = self._receive(size)
            correlation_id, at = read_response_header(frame, api_key, version)
            if correlation_id != self._correlation_id:
                raise WireError("an answer to another request")
            return response_reader(api_key, version)(frame, at)
        except OSError as exc:
            raise ConfigError(
                f"the broker at {self.address} did not answer {api_key.api_name} ({exc}){self._hint}"
            ) from exc
        except WireError as exc:
            raise ConfigError(f"{self.address} does not speak Kafka's protocol: {exc}{self._hint}") from exc

    def _encrypt(self, host: str, security: Security) -> None:
        try:
            self._socket = security.context().wrap_socket(self._socket, server_hostname=host)
        except (OSError, ssl.CertificateError) as exc:
            raise ConfigError(f"no TLS with the broker at {self.address}: {exc}") from exc

    def _authenticate(self, security: Security, mechanism: str) -> None:
        request = messages.SaslHandshakeRequest(mechanism=mechanism)
        told = self.ask(ApiKey.SASL_HANDSHAKE, _SASL_HANDSHAKE, request)
        if told.error_code:
            offered = ", ".join(told.mechanisms) or "none"
            raise ConfigError(f"the broker at {self.address} does not offer {mechanism}; it has {offered}")
        security.authenticate(self._exchange)

    def _exchange(self, auth_bytes: bytes) -> bytes:
        request = messages.SaslAuthenticateRequest(auth_bytes=auth_bytes)
        told = self.ask(ApiKey.SASL_AUTHENTICATE, _SASL_AUTHENTICATE, request)
        if told.error_code:
            reason = told.error_message or ErrorCode(told.error_code).name
            raise ConfigError(f"the broker at {self.address} does not let us in: {reason}")
        return bytes(told.auth_bytes)

    def _receive(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the connection was closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


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
        metadata = connection.ask(ApiKey.METADATA, _METADATA, request)
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
    addresses = [part.strip() for part in path.removeprefix(SCHEME).split(",") if part.strip()]
    failure = ConfigError(f"{path} names no broker; write {SCHEME}HOST:PORT")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, str(_PORT)
        try:
            return Connection(host.strip("[]"), int(port), security)
        except ValueError:
            failure = ConfigError(f"{address!r} is no address of a broker; write {SCHEME}HOST:PORT")
        except ConfigError as exc:
            failure = exc
    raise failure


def _ends(address: tuple[str, int], places: list[tuple[str, int]], security: Security) -> list[LiveLog]:
    with Connection(*address, security) as connection:
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
    response = connection.ask(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, request)
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
    with Connection(log.host, log.port, security) as connection:
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
    response = connection.ask(ApiKey.FETCH, _FETCH, request)
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
        base_offset, length = struct.unpack_from(">qi", piece, end)
        after = end + PREFIX_BYTES + length
        if length < HEADER_BYTES - PREFIX_BYTES or after > len(piece):
            break
        (last_offset_delta,) = struct.unpack_from(">i", piece, end + 23)
        end, following = after, base_offset + last_offset_delta + 1
    return end, following


def _refuse(code: int, place: str) -> None:
    if code:
        raise ConfigError(f"{place} cannot be read: {ErrorCode(code).name}")
