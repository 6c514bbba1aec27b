"""One request of a connection between its arrival and its reply."""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Final

from kohort.model.context import ClientInformation
from kohort.model.principals import ANONYMOUS, Principal
from kohort.server.connections.client_connections import ClientConnections, ServedEndpoint
from kohort.server.connections.client_socket import ClientSocket
from kohort.server.requests.dispatch import Route
from kohort.server.requests.slices import Steps

NOT_TIMED: Final = 0.0


class InFlightRequest:
    """
    One request between its arrival and its reply; also the `kohort.model.context.RequestContext` of its handler, and the
    `Reply` that the handler calls: a bound method would be made for every request.

    Attributes:
        answer: the frame to send once it is known; empty if there is none to send.
        chain: the works that its handler left for later turns, with the function that takes the result of each.
        is_long: whether the answer is encoded in steps.
        began_at: the time of its start, in seconds; `NOT_TIMED` for most requests.
        size_bytes: of the request; 0 until the request has its place in the order of replies.
    """

    is_forwarded: ClassVar[bool] = False

    __slots__ = (
        "answer",
        "api_version",
        "began_at",
        "chain",
        "client_id",
        "connection",
        "correlation_id",
        "is_long",
        "route",
        "size_bytes",
    )

    def __init__(
        self, connection: "AnsweringConnection", route: Route, correlation_id: int, client_id: str, began_at: float
    ) -> None:
        self.connection = connection
        self.route = route
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.answer: bytes | None = None
        self.chain: deque[tuple[Steps, Callable[[Any], None]]] | None = None
        self.is_long = False
        self.began_at = began_at
        self.size_bytes = 0

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.endpoint.listener

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    def when_disconnected(self, key: Hashable, forget: Callable[[], None], /) -> Callable[[], None]:
        forgetting = self.connection.forgetting
        if forgetting is None:
            forgetting = self.connection.forgetting = {}
        forgetting[key] = forget
        return partial(_take_back, forgetting, key)

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        self.connection.parked = self, forget

    @property
    def client(self) -> ClientInformation:
        return self.connection.client

    def identify(self, software_name: str, software_version: str, /) -> None:
        self.connection.identify(software_name, software_version)

    def throttle(self, throttle_ms: int, /) -> None:
        self.connection.throttle(throttle_ms)

    def go_on(self, steps: Steps, reply: Callable[[Any], None], /) -> None:
        self.is_long = True
        if self.chain is None:
            self.chain = deque()
            self.connection.begin_chain(self)
        self.chain.append((steps, reply))

    def record_latency(self) -> None:
        if self.began_at != NOT_TIMED:
            self.route.record_latency(perf_counter() - self.began_at)

    def __call__(self, response: Any) -> None:
        """Answer the request; called once, possibly in a later turn."""
        self.connection.on_response(self, response)


def _take_back(forgetting: dict[Hashable, Callable[[], None]], key: Hashable) -> None:
    forgetting.pop(key, None)


class AnsweringConnection(ClientSocket):
    """
    A connection as its requests know it; `ClientConnection` implements it. A base class and no protocol, because compiled code
    calls the methods of a class directly.

    Attributes:
        forgetting: functions, by key, that are called when the connection ends; None if nothing is to be forgotten.
        parked: the last request that is to be forgotten if the client disconnects, and the function that forgets it.
        principal: its user.
        begin_again: begins a re-authentication, and tells whether it did; None if the session has no end.
    """

    def __init__(self, shared: ClientConnections, endpoint: ServedEndpoint, host: str) -> None:
        super().__init__(shared, endpoint, host)
        self.forgetting: dict[Hashable, Callable[[], None]] | None = None
        self.parked: tuple[InFlightRequest, Callable[[], None]] | None = None
        self.principal: Principal = ANONYMOUS
        self.begin_again: Callable[[], bool] | None = None

    @property
    def client(self) -> ClientInformation:
        raise NotImplementedError

    def identify(self, software_name: str, software_version: str) -> None:
        raise NotImplementedError

    def throttle(self, throttle_ms: int) -> None:
        raise NotImplementedError

    def on_response(self, pending: InFlightRequest, response: Any) -> None:
        raise NotImplementedError

    def on_long(
        self, pending: InFlightRequest, result: Any, error: Exception | None, *, is_encoding: bool = False
    ) -> None:
        raise NotImplementedError

    def begin_chain(self, pending: InFlightRequest) -> None:
        raise NotImplementedError

    def end_chain(self, error: Exception | None) -> None:
        raise NotImplementedError
