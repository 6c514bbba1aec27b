"""
A blocking client of a cluster: requests to any broker, to a given one, or to the coordinator of a group.

Source: Kafka AdminApiDriver and CoordinatorStrategy, for the errors that are retried.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kohort.client.addresses import Address, parse_bootstrap
from kohort.client.connection import ANY, CLIENT_ID, HINT, TIMEOUT_S, Connection, Versions, refusal
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX

T = TypeVar("T")

RETRY_FIRST_S = 0.05
RETRY_LAST_S = 1.0

RETRIABLE_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors while a group's coordinator is created, moved or loaded (Kafka CoordinatorStrategy)."""


def connect_first(addresses: Sequence[Address], connect: Callable[[Address], Connection]) -> Connection:
    """
    Connect to the first broker of a bootstrap list that answers. If none does, raise the error of the last address.

    Raises:
        ConfigError: no connection to the last address, or authentication failed there.
        WireError: the last address does not speak Kafka's protocol.
    """
    *others, last = addresses
    for address in others:
        with suppress(ConfigError, WireError):
            return connect(address)
    return connect(last)


class Client:
    """
    A client of one cluster. As a context manager it closes its connections at the end.

    Not thread-safe.

    Attributes:
        timeout_s: the longest time for one response, and for finding a coordinator.
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
    ) -> None:
        """
        Args:
            bootstrap: `host:port`, or several separated by commas, or addresses; the first that answers is used.
            security: TLS and SASL, the same for every broker.
            client_id, frame_bytes_max, hint: as for `Connection`.

        Raises:
            ConfigError: `bootstrap` is not a list of addresses.
        """
        self.timeout_s = timeout_s
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
        self._coordinators: dict[str, Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}

    def coordinator(self, group_id: str) -> Address:
        """
        Find the coordinator of a group, and remember it.

        Raises:
            ConfigError: no coordinator was found in time.
            CoordinatorError: FindCoordinator failed with an error that is not retried.
        """
        if group_id not in self._coordinators:
            self._coordinators[group_id] = self._retried(lambda: self._find_coordinator(group_id))
        return self._coordinators[group_id]

    def send_to_coordinator(
        self,
        group_id: str,
        api_key: ApiKey,
        request: Any,
        *,
        error_code: Callable[[Any], int],
        within: Versions = ANY,
    ) -> Any:
        """
        Send a request to the coordinator of a group. Retries while the coordinator is loading or has moved.

        Args:
            error_code: reads the group's error code from the response.
        """

        def once() -> Any:
            response = self.send(api_key, request, at=self.coordinator(group_id), within=within)
            code = error_code(response)
            if code in RETRIABLE_COORDINATOR_ERRORS:
                self._coordinators.pop(group_id, None)
                raise CoordinatorError(ErrorCode(code))
            return response

        return self._retried(once)

    def _find_coordinator(self, group_id: str) -> Address:
        request = messages.FindCoordinatorRequest(key=group_id, key_type=0, coordinator_keys=(group_id,))
        response = self.send(ApiKey.FIND_COORDINATOR, request)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise refusal(found.error_code, f"no coordinator for group {group_id}", found.error_message)
        return Address(found.host, found.port)

    def _retried(self, attempt: Callable[[], T]) -> T:
        """Retry on coordinator errors, with exponential backoff, until the timeout."""
        deadline = time.monotonic() + self.timeout_s
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return attempt()
            except CoordinatorError as exc:
                if exc.code not in RETRIABLE_COORDINATOR_ERRORS:
                    raise
                if time.monotonic() + pause_s > deadline:
                    raise ConfigError(
                        f"the cluster named no ready coordinator within {self.timeout_s:g} s: {exc.code.name}; is the broker "
                        "still starting? --timeout waits longer"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_LAST_S)

    def _any(self) -> Connection:
        """Return an open connection, or connect to the bootstrap list."""
        if self._connections:
            return next(iter(self._connections.values()))
        return connect_first(self._bootstrap, self._connection)

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = self._connect(address)
        return self._connections[address]
