"""
Requests of a login in the hands of the testing kit.

A login has no handlers: the authenticator takes its frames. A `LoginRequest` gives one frame a handler that lets the
authenticator take it, so that faults, holds and the journal are around it as around any handler. Without them there is no such
object.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol, cast

from kohort.broker.ports import Context, NoResponse
from kohort.model.context import ClientInformation
from kohort.model.errors import WireError
from kohort.model.principals import Principal
from kohort.security.sasl.authenticator import Step
from kohort.server.connections.client_connections import ServedEndpoint
from kohort.server.requests.dispatch import Route, Throttle
from kohort.wire.apis import ApiKey
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.message_classes import message_classes
from kohort.wire.readers import response_reader

_APIS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_SIZE: Final = 4


class LoginConnection(Protocol):
    """The connection of a login, as its requests know it."""

    endpoint: ServedEndpoint
    client_host: str

    @property
    def is_open(self) -> bool: ...
    @property
    def principal(self) -> Principal | None:
        """The user of a session that is authenticated again; None before the first authentication."""

    @property
    def port(self) -> int:
        """Of the client."""

    def send(self, part: bytes) -> None: ...
    def authenticate(self, frame: bytes, take: Callable[[Step], None]) -> None:
        """Give a frame to the authenticator, and its step to a function, possibly in a later turn."""

    def on_answer(self, request: "LoginRequest", answer: bytes | None) -> None:
        """Take the answer to a request; None if the connection is closed instead."""


class LoginRequest:
    """
    One request of a login; also the context of its handler.

    Attributes:
        step: what the authenticator made of the request; None as long as it has not seen it.
        forget: what is called when the connection ends before the answer.
        throttle_ms: how long the connection is not read after the answer.
    """

    is_forwarded: ClassVar[bool] = False

    def __init__(
        self, connection: LoginConnection, route: Route, frame: bytes, correlation_id: int, client_id: str
    ) -> None:
        self.connection = connection
        self.route = route
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = connection.client_host
        self.listener = connection.endpoint.listener
        self.client = ClientInformation(port=connection.port)
        self.principal = connection.principal or ""
        self.step: Step | None = None
        self.forget: Callable[[], None] | None = None
        self.throttle_ms = 0
        self._frame = frame

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        self.forget = forget

    def throttle(self, throttle_ms: int, /) -> None:
        self.throttle_ms = throttle_ms

    def ask(self, intercept: Throttle, request: Any) -> None:
        """Let the request go its way."""
        context = cast("Context", self)  # It has what the testing kit asks of one.
        response = intercept(self._handle)(request, context, self._reply)
        if response is not None:
            self._reply(response)

    def _handle(self, _request: Any, _context: Any, reply: Callable[[Any], None]) -> None:
        def take(step: Step) -> None:
            self.step = step
            reply(self._decoded(step.answer))

        self.connection.authenticate(self._frame, take)

    def _decoded(self, answer: bytes) -> Any:
        if not answer:
            return NoResponse.CLOSE_CONNECTION
        key, version = self.route.api_key, self.route.version
        frame = answer[_SIZE:]
        _, body = read_response_header(frame, key, version)
        return _message(response_reader(key, version)(frame, body), message_classes(f"{key.api_name}Response"))

    def _reply(self, response: Any) -> None:
        if response is NoResponse.CLOSE_CONNECTION:
            answer = None
        elif response is NoResponse.NO_OP:
            answer = b""
        else:
            answer = self.route.encode(self.correlation_id, response)
        self.connection.on_answer(self, answer)

    @property
    def is_refused(self) -> bool:
        """Whether a fault has answered instead of the authenticator, and the login cannot go on, as after any failure."""
        return self.step is None and self.route.api_key is not ApiKey.API_VERSIONS


def _message(value: Any, classes: Mapping[str, type]) -> Any:
    """The message that a reader has decoded, as an answer of a handler."""
    if isinstance(value, tuple):
        return tuple(_message(each, classes) for each in value)
    built: Any = classes.get(type(value).__name__)
    if built is None:
        return value
    return built(**{name: _message(getattr(value, name), classes) for name in built.__struct_fields__})


def taken(connection: LoginConnection, frame: bytes) -> tuple[LoginRequest, Throttle, Any] | None:
    """
    A request of a login for the testing kit, with its wrapper and the decoded frame. None if there is nothing to do with it.

    The authenticator refuses a frame that is malformed, and a request that is not of a login.
    """
    api = int.from_bytes(frame[:2], "big")
    dispatch = connection.endpoint.dispatch
    intercept = dispatch.interceptor(ApiKey(api)) if api in _APIS else None
    if intercept is None:
        return None
    try:
        _, version, correlation_id, client_id, body = read_request_header(frame)
        route = dispatch.route(api, version)
        if route is None:
            return None
        return LoginRequest(connection, route, frame, correlation_id, client_id), intercept, route.read(frame, body)
    except WireError:
        return None
