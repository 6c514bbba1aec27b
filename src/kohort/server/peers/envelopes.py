"""
Envelope (58), version 0: a request of a client that another node has forwarded to the controller.

The request in it is read, decided and handled as if its client had sent it here: with the client's user, address, client id and
version. Its answer goes back as bytes.

Source: KIP-590; Kafka ControllerApis.handleRequest, EnvelopeUtils, RequestContext.buildResponseEnvelopePayload.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, ClassVar

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.ports import Context, NoResponse
from kohort.machine.shard import Reply
from kohort.model.context import ClientInformation
from kohort.model.errors import ErrorCode, WireError
from kohort.model.principals import Principal
from kohort.server.peers.peers import Directory
from kohort.server.peers.principals import read_address, read_principal
from kohort.server.requests.dispatch import Dispatch, LongRoute
from kohort.server.requests.places import answer_place_of
from kohort.server.requests.placing import codes_of
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.headers import read_request_header

Steps = Generator[Any, None, Any]


class Envelopes:
    """
    Handler of Envelope.

    Args:
        dispatch: of this node, with the handlers behind their checks.
        listener: the only one at which nodes ask each other. On any other an Envelope closes its connection.
    """

    def __init__(self, directory: Directory, dispatch: Dispatch, listener: str) -> None:
        self._directory = directory
        self._dispatch = dispatch
        self._listener = listener

    @property
    def is_controller(self) -> bool:
        return self._directory.controller == self._directory.node_id

    def envelope(self, request: m.EnvelopeRequest, context: Context, reply: Reply[Any]) -> Steps:
        if context.listener != self._listener:
            return NoResponse.CLOSE_CONNECTION
        if not self.is_controller:
            return _refused(ErrorCode.NOT_CONTROLLER)
        try:
            principal = read_principal(request.request_principal or b"")
        except WireError:
            return _refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        frame = bytes(request.request_data)
        api_key, version = API_KEYS.get(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
        if api_key is None or not API_TABLE[api_key].is_forwarded:
            return _refused(ErrorCode.INVALID_REQUEST)
        if not self._dispatch.serves(api_key, version):
            return _refused(ErrorCode.UNSUPPORTED_VERSION)
        try:
            host = read_address(request.client_host_address)
            _, _, correlation_id, client_id, body = read_request_header(frame)
            route = self._dispatch.here(api_key, version)
            inner = yield from route.long.read(frame, body, route.long.elements_max)
        except WireError:
            return _refused(ErrorCode.INVALID_REQUEST)
        route.requests += 1
        opened = EnvelopedRequest(self, api_key, route.long, version, correlation_id, client_id, host, principal)
        opened.outer, opened.outer_reply = context, reply
        yield
        response = route.long.handler(inner, opened, opened.reply)
        if isinstance(response, Generator):
            response = yield from response
        return None if response is None else (yield from opened.answer(response))


def _refused(code: ErrorCode) -> m.EnvelopeResponse:
    return m.EnvelopeResponse(error_code=code)


class EnvelopedRequest:
    """The request in an Envelope; also the `kohort.model.context.RequestContext` of its handler."""

    is_forwarded: ClassVar[bool] = True

    outer: Context
    """Of the Envelope."""
    outer_reply: Reply[m.EnvelopeResponse]

    def __init__(
        self,
        envelopes: Envelopes,
        api_key: ApiKey,
        route: LongRoute,
        api_version: int,
        correlation_id: int,
        client_id: str,
        client_host: str,
        principal: Principal,
    ) -> None:
        self._envelopes = envelopes
        self._api_key = api_key
        self._route = route
        self._correlation_id = correlation_id
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.principal = principal

    @property
    def listener(self) -> str:
        return self.outer.listener

    @property
    def client(self) -> ClientInformation:
        return self.outer.client

    def identify(self, software_name: str, software_version: str, /) -> None:
        """Do nothing: the node that forwards knows the library of its client."""

    def when_disconnected(self, key: Hashable, forget: Callable[[], None], /) -> Callable[[], None]:
        return self.outer.when_disconnected(key, forget)

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        self.outer.when_abandoned(forget)

    def throttle(self, throttle_ms: int, /) -> None:
        """Do nothing: the answer tells the client for how long it is to wait. The connection belongs to a node."""

    def go_on(self, steps: Steps, reply: Callable[[Any], None], /) -> None:
        self.outer.go_on(steps, reply)

    def reply(self, response: Any) -> None:
        """Answer the request; called once, possibly in a later turn."""
        self.outer.go_on(self.answer(response), self.outer_reply)

    def answer(self, response: Any) -> Steps:
        """The answer to the Envelope."""
        if isinstance(response, NoResponse):
            return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        place = answer_place_of(self._api_key, self.api_version)
        if not self._envelopes.is_controller and ErrorCode.NOT_CONTROLLER in codes_of(place, response):
            return _refused(ErrorCode.NOT_CONTROLLER)
        frame = yield from self._route.encode(self._correlation_id, response)
        return m.EnvelopeResponse(response_data=frame[4:])
