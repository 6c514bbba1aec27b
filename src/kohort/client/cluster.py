"""
A cluster as somebody asks it who is not in a hurry: any broker, a certain one, or a group's coordinator wherever it is now.

Source: Kafka AdminApiDriver, CoordinatorStrategy, for what is asked again.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from kohort.client.addresses import Address, parse_bootstrap
from kohort.client.connection import ANY, TIMEOUT_S, Connection, Versions, refusal
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.wire import messages
from kohort.wire.apis import ApiKey

T = TypeVar("T")

RETRY_FIRST_S = 0.05
RETRY_LAST_S = 1.0

COORDINATOR_NOT_YET = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""What a cluster answers while a group's coordinator is being found, moved or loaded (Kafka CoordinatorStrategy)."""


def first_answering(addresses: Sequence[Address], connect: Callable[[Address], Connection]) -> Connection:
    """
    A connection to the first broker of a bootstrap list that answers as one; what keeps the last one from it is raised.

    Raises:
        ConfigError: nobody answers at the last address, or it does not let us in.
        WireError: what answers there does not speak Kafka's protocol.
    """
    *others, last = addresses
    for address in others:
        with suppress(ConfigError, WireError):
            return connect(address)
    return connect(last)


class Client:
    """
    A cluster, asked by one command. A context manager: leaving it closes its connections.

    Attributes:
        timeout_s: how long one answer, and the search for a coordinator, may take.
    """

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S, security: Security = PLAINTEXT) -> None:
        """
        Args:
            bootstrap: `host:port`, or several with commas between; the first that answers is used.
            security: how to connect to any of its brokers.

        Raises:
            ConfigError: `bootstrap` is no list of addresses.
        """
        self.timeout_s = timeout_s
        self._security = security
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._coordinators: dict[str, Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask(self, api_key: ApiKey, request: Any, *, at: Address | None = None, within: Versions = ANY) -> Any:
        """
        Ask the broker at an address, or any; raises as `Connection.ask`. Whether the response itself holds an error is for
        the caller to see.
        """
        connection = self._any() if at is None else self._connection(at)
        return connection.ask(api_key, request, within=within)

    def serves(self, api_key: ApiKey) -> bool:
        """Whether the broker that we ask first knows an API."""
        return api_key in self._any().versions

    def brokers(self) -> dict[int, Address]:
        """Where the brokers listen, by id."""
        response = self.ask(ApiKey.METADATA, messages.MetadataRequest(topics=()))
        return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}

    def coordinator(self, group_id: str) -> Address:
        """
        Where the group's coordinator listens.

        Raises:
            ConfigError: none was found in time.
            CoordinatorError: the cluster refuses to name one.
        """
        if group_id not in self._coordinators:
            self._coordinators[group_id] = self._retried(lambda: self._find_coordinator(group_id))
        return self._coordinators[group_id]

    def ask_coordinator(
        self,
        group_id: str,
        api_key: ApiKey,
        request: Any,
        *,
        error_code: Callable[[Any], int],
        within: Versions = ANY,
    ) -> Any:
        """
        Ask the coordinator of a group, again and elsewhere while it says that it is not ready or no longer the one.

        Args:
            error_code: what the response says of this group.
        """

        def once() -> Any:
            response = self.ask(api_key, request, at=self.coordinator(group_id), within=within)
            code = error_code(response)
            if code in COORDINATOR_NOT_YET:
                self._coordinators.pop(group_id, None)
                raise CoordinatorError(ErrorCode(code))
            return response

        return self._retried(once)

    def _find_coordinator(self, group_id: str) -> Address:
        request = messages.FindCoordinatorRequest(key=group_id, key_type=0, coordinator_keys=(group_id,))
        response = self.ask(ApiKey.FIND_COORDINATOR, request)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise refusal(found.error_code, f"no coordinator for group {group_id}", found.error_message)
        return Address(found.host, found.port)

    def _retried(self, attempt: Callable[[], T]) -> T:
        """Repeat what says "not yet", with growing pauses, for as long as one answer may take."""
        deadline = time.monotonic() + self.timeout_s
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return attempt()
            except CoordinatorError as exc:
                if exc.code not in COORDINATOR_NOT_YET:
                    raise
                if time.monotonic() + pause_s > deadline:
                    raise ConfigError(
                        f"the cluster named no ready coordinator within {self.timeout_s:g} s: {exc.code.name}"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_LAST_S)

    def _any(self) -> Connection:
        """A connection that is open, else the first broker of the bootstrap list that answers."""
        if self._connections:
            return next(iter(self._connections.values()))
        return first_answering(self._bootstrap, self._connection)

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self.timeout_s, self._security)
        return self._connections[address]
