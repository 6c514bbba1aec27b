"""
A blocking client of a cluster: requests to any broker, to a given one, to a coordinator, or to the leader of a partition.

Source: Kafka AdminApiDriver, CoordinatorStrategy and PartitionLeaderStrategy, for the errors that are retried.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any, Self, TypeVar

from kohort.client.addresses import Address, parse_bootstrap
from kohort.client.connection import ANY, CLIENT_ID, HINT, TIMEOUT_S, Connection, RefusedError, Versions, refusal
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX

T = TypeVar("T")

RETRY_FIRST_S = 0.05
RETRY_LAST_S = 1.0

_NO_COORDINATOR = "the cluster named no ready coordinator"

RETRIABLE_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors while a coordinator is created, moved or loaded (Kafka CoordinatorStrategy)."""

RETRIABLE_LEADER_ERRORS = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors while a partition moves to another leader, or waits for its replicas."""

_BY_NAME = Versions(4, 1 << 15)
"""Versions of Metadata with `allow_auto_topic_creation`."""


class CoordinatorKind(IntEnum):
    """The kind of object that a coordinator looks after: the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def subject(self) -> str:
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


class Client:
    """
    A client of one cluster. As a context manager it closes its connections at the end.

    Not thread-safe.

    Attributes:
        timeout_s: the longest time for one response, and for finding a coordinator or a leader.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        timeout_s: float = TIMEOUT_S,
        security: Security = PLAINTEXT,
        *,
        client_id: str = CLIENT_ID,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        hint: str = HINT,
        starting_s: float = 0.0,
    ) -> None:
        """
        Args:
            starting_s: how long to wait for a broker that is starting, while nobody listens.
            bootstrap: `host:port`, or several separated by commas, or addresses; the first that answers is used.
            security: TLS and SASL, the same for every broker.
            client_id, frame_bytes_max, hint: as for `Connection`.

        Raises:
            ConfigError: `bootstrap` is not a list of addresses.
        """
        self.timeout_s = timeout_s
        self._starting_s = starting_s
        self._bootstrap = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else bootstrap
        self._connect = partial(
            Connection,
            timeout_s=timeout_s,
            security=security,
            client_id=client_id,
            frame_bytes_max=frame_bytes_max,
            hint=hint,
        )
        self._connections: dict[Address, Connection] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def send(self, api_key: ApiKey, request: Any, *, at: Address | None = None, within: Versions = ANY) -> Any:
        """
        Send a request to the broker at an address, or to any broker, and return the response.

        Error codes in the response are not checked. Raises the errors of `Connection.send`.
        """
        connection = self._any() if at is None else self._connection(at)
        return connection.send(api_key, request, within=within)

    def serves(self, api_key: ApiKey) -> bool:
        """Tell whether the first connected broker supports an API."""
        return api_key in self._any().versions

    def brokers(self) -> dict[int, Address]:
        """Return the addresses of the brokers, by broker id."""
        response = self.send(ApiKey.METADATA, messages.MetadataRequest(topics=()))
        return broker_addresses(response)

    def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Address:
        """
        Find the coordinator of a group or of a transactional id, and remember it.

        Raises:
            ConfigError: no coordinator was found in time.
            CoordinatorError: FindCoordinator failed with an error that is not retried.
        """
        if (kind, key) not in self._coordinators:
            self._coordinators[kind, key] = self.retried(
                lambda: self._find_coordinator(key, kind), RETRIABLE_COORDINATOR_ERRORS, _NO_COORDINATOR
            )
        return self._coordinators[kind, key]

    def send_to_coordinator(
        self,
        key: str,
        api_key: ApiKey,
        request: Any,
        *,
        error_code: Callable[[Any], int],
        within: Versions = ANY,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
    ) -> Any:
        """
        Send a request to the coordinator of a group or of a transactional id. Retries while it is loading or has moved.

        Args:
            error_code: reads the error code of the group or transactional id from the response.
        """

        def once() -> Any:
            response = self.send(api_key, request, at=self.coordinator(key, kind), within=within)
            if error_code(response) in RETRIABLE_COORDINATOR_ERRORS:
                self._coordinators.pop((kind, key), None)
            return response

        return self._resent(once, error_code, RETRIABLE_COORDINATOR_ERRORS, _NO_COORDINATOR)

    def send_to_broker(
        self,
        address: Address,
        api_key: ApiKey,
        request: Any,
        *,
        error_code: Callable[[Any], int],
        within: Versions = ANY,
    ) -> Any:
        """Send a request about all coordinators of a broker. Retries while they are loading."""
        return self._resent(
            lambda: self.send(api_key, request, at=address, within=within),
            error_code,
            RETRIABLE_COORDINATOR_ERRORS,
            f"the coordinators of {address} were not ready",
        )

    def leader(self, topic_partition: TopicPartition) -> Address:
        """
        Find the leader of a partition.

        Raises:
            ConfigError: the topic or the partition does not exist.
            CoordinatorError: the partition has no leader (LEADER_NOT_AVAILABLE), or the broker returned another error.
        """
        topic, index = topic_partition
        request = messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        response = self.send(ApiKey.METADATA, request, within=_BY_NAME)
        (found,) = response.topics
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise ConfigError(f"topic {topic!r} does not exist; see: kohort topics list")
        if found.error_code:
            raise refusal(found.error_code, f"topic {topic}")
        leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
        if index not in leaders:
            raise ConfigError(f"topic {topic} has no partition {index}; it has {len(leaders)}")
        address = broker_addresses(response).get(leaders[index])
        if address is None:
            raise CoordinatorError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition} has no leader")
        return address

    def send_to_leader(
        self,
        topic_partition: TopicPartition,
        api_key: ApiKey,
        request: Any,
        *,
        error_code: Callable[[Any], int],
        within: Versions = ANY,
    ) -> Any:
        """
        Send a request to the leader of a partition. Retries while the leader changes or lacks replicas.

        Args:
            error_code: reads the error code of the partition from the response.
        """
        return self._resent(
            lambda: self.send(api_key, request, at=self.leader(topic_partition), within=within),
            error_code,
            RETRIABLE_LEADER_ERRORS,
            f"{topic_partition} has no ready leader",
        )

    def _resent(
        self, send: Callable[[], Any], error_code: Callable[[Any], int], retriable: Collection[ErrorCode], failure: str
    ) -> Any:
        def once() -> Any:
            response = send()
            code = error_code(response)
            if code in retriable:
                raise CoordinatorError(ErrorCode(code))
            return response

        return self.retried(once, retriable, failure)

    def retried(self, attempt: Callable[[], T], retriable: Collection[ErrorCode], failure: str) -> T:
        """
        Retry on some errors, with exponential backoff, until the timeout.

        Args:
            failure: the sentence of the error at the timeout.
        """
        deadline = time.monotonic() + self.timeout_s
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return attempt()
            except CoordinatorError as exc:
                if exc.code not in retriable:
                    raise
                if time.monotonic() + pause_s > deadline:
                    hint = "is the broker still starting? " if exc.code in RETRIABLE_COORDINATOR_ERRORS else ""
                    raise ConfigError(
                        f"{failure} within {self.timeout_s:g} s: {exc.code.name}; {hint}--timeout waits longer"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_LAST_S)

    def _find_coordinator(self, key: str, kind: CoordinatorKind) -> Address:
        request = messages.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))
        response = self.send(ApiKey.FIND_COORDINATOR, request)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise refusal(found.error_code, f"no coordinator for {kind.subject} {key}", found.error_message)
        return Address(found.host, found.port)

    def _any(self) -> Connection:
        """Return an open connection, or connect to the first broker of the bootstrap list that answers."""
        if self._connections:
            return next(iter(self._connections.values()))
        until_s = time.monotonic() + self._starting_s
        while True:
            try:
                return self._first()
            except RefusedError:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(RETRY_FIRST_S)

    def _first(self) -> Connection:
        *others, last = self._bootstrap
        for address in others:
            with suppress(ConfigError, WireError):
                return self._connection(address)
        return self._connection(last)

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = self._connect(address)
        return self._connections[address]


def broker_addresses(metadata: Any) -> dict[int, Address]:
    """Return the addresses of the brokers in a Metadata response, by broker id."""
    return {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
