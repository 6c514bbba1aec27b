"""
Requests of clients that the controller alone handles, at a node that is not the controller.

The frame of a request is not read here: it goes to the controller in an Envelope, with the user and the address of the client,
and the answer's frame comes back. The client gets it when this node's view of the catalog has what the answer tells.

Source: KIP-590; Kafka ForwardingManagerImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.configs.resources import BROKER, BROKER_LOGGER, NamedResource
from kohort.broker.ports import CallLater, Context, NoResponse
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, WireError
from kohort.model.limits import FORWARDED_BYTES_MAX
from kohort.server.peers.controller import ControllerChannel
from kohort.server.peers.peer import Done, Lost
from kohort.server.peers.peers import Directory
from kohort.server.peers.principals import address_bytes, principal_bytes
from kohort.server.requests.dispatch import ForwardedRoute, LongRoute, Route
from kohort.server.requests.places import place_of
from kohort.server.requests.placing import refused
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import gradual_response_encoder, request_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import gradual_request_reader, response_reader

_log: Final = logging.getLogger("kohort.server")

CURRENT_MS_MAX: Final = 10_000
"""How long an answer waits for this node's view of the catalog. Then the client is told, because the outcome is known."""
_LOOKED_AT: Final[dict[ApiKey, Callable[..., Any]]] = {
    ApiKey.ALTER_CONFIGS: m.AlterConfigsRequest,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: m.IncrementalAlterConfigsRequest,
}
_CLOSE: Final = NoResponse.CLOSE_CONNECTION

WhenCurrent = Callable[[Callable[[], None]], None]
"""Calls a function, now or later, when this node's view of the catalog has all that was committed before the call."""


class Forwarding:
    """
    The way of requests to the controller.

    Args:
        when_current: see `WhenCurrent`.
    """

    def __init__(
        self, directory: Directory, channel: ControllerChannel, call_later: CallLater, when_current: WhenCurrent
    ) -> None:
        self._directory = directory
        self._channel = channel
        self._call_later = call_later
        self._when_current = when_current
        self.here: Callable[[ApiKey, int], Route] | None = None
        """The route of a request that this node handles itself."""
        self._routes: dict[tuple[ApiKey, int], Route] = {}
        self._size_bytes = 0
        """Of the requests of clients that wait."""

    def route(self, api_key: ApiKey, version: int) -> Route | None:
        """As `kohort.server.requests.dispatch.Elsewhere`."""
        if self._directory.controller == self._directory.node_id:
            return None
        route = self._routes.get((api_key, version))
        if route is None:
            handler = partial(self._look if api_key in _LOOKED_AT else self._forward, api_key, version)
            route = self._routes[api_key, version] = ForwardedRoute(api_key, version, handler)
        return route

    def ask_controller(
        self, api_key: ApiKey, version: int, request: Any, done: Done, context: Context | None = None
    ) -> None:
        """
        Have the controller handle a request of this node. `done` is called once, later: with the response, when this node's
        view has what it tells, or with `Lost`. Nobody knows what a request has changed that is lost and `was_sent`.

        Args:
            context: of the client for which this node asks; it decides with the client's rights. None for its own.
        """
        if context is None:
            self._channel.ask(api_key, version, request, partial(self._when_told, done))
            return
        frame = request_encoder(api_key, version)(0, context.client_id, request)[4:]
        envelope = _envelope(frame, context)

        def on_answer(answer: Any) -> None:
            if not isinstance(answer, Lost):
                data = answer.response_data
                if answer.error_code or data is None:
                    answer = Lost(f"the controller refuses it with the error {answer.error_code}")
                else:
                    _, offset = read_response_header(data, api_key, version)
                    answer = response_reader(api_key, version)(data, offset)
            self._when_told(done, answer)

        self._channel.ask(ApiKey.ENVELOPE, 0, envelope, on_answer)

    def _forward(
        self, api_key: ApiKey, version: int, frame: bytes, context: Context, reply: Reply[Any]
    ) -> bytes | NoResponse | None:
        """Handle the frame of a client's request; the answer is a frame without its size."""
        if self._size_bytes and self._size_bytes + len(frame) > FORWARDED_BYTES_MAX:
            context.go_on(_refusal(api_key, version, frame, ErrorCode.REQUEST_TIMED_OUT), reply)
            return None
        self._size_bytes += len(frame)
        on_answer = partial(self._on_answer, api_key, version, frame, context, reply)
        self._channel.ask(ApiKey.ENVELOPE, 0, _envelope(frame, context), on_answer)
        return None

    def _look(self, api_key: ApiKey, version: int, frame: bytes, context: Context, reply: Reply[Any]) -> None:
        """
        Handle levels of loggers, which a node has for itself, check configurations of brokers, and forward all else.

        Source: Kafka ConfigAdminManager.preprocess.
        """
        context.go_on(self._looked_at(api_key, version, frame, context, reply), reply)

    def _looked_at(
        self, api_key: ApiKey, version: int, frame: bytes, context: Context, reply: Reply[Any]
    ) -> Generator[Any, None, Any]:
        try:
            _, _, correlation_id, _, body = read_request_header(frame)
            request = yield from gradual_request_reader(api_key, version)(frame, body, API_TABLE[api_key].cost.elements)
        except WireError:
            return _CLOSE
        kinds = {resource.resource_type for resource in request.resources}
        if self.here is None or (kinds != {BROKER_LOGGER} and BROKER not in kinds):
            return self._forward(api_key, version, frame, context, reply)
        route = self.here(api_key, version).long
        encode = partial(_encoded, route, correlation_id)
        asked, then = request, encode
        if BROKER in kinds:
            brokers = [resource for resource in request.resources if resource.resource_type == BROKER]
            asked = _LOOKED_AT[api_key](resources=brokers, validate_only=True)
            then = partial(self._forward_rest, api_key, version, frame, request, context, reply, encode)
        response = route.handler(asked, context, lambda late: context.go_on(then(late), reply))
        if isinstance(response, Generator):
            response = yield from response
        return None if response is None else (yield from then(response))

    def _forward_rest(
        self,
        api_key: ApiKey,
        version: int,
        frame: bytes,
        request: Any,
        context: Context,
        reply: Reply[Any],
        encode: Callable[[Any], Generator[Any, None, bytes]],
        checked: Any,
    ) -> Generator[Any, None, Any]:
        """Forward what this node does not refuse of a change of configurations."""
        refused = {_resource(result): result for result in checked.responses if result.error_code}
        rest = [resource for resource in request.resources if _resource(resource) not in refused]
        if not refused:
            return self._forward(api_key, version, frame, context, reply)
        if not rest:
            return (yield from encode(checked))

        def merged(answer: bytes) -> Generator[Any, None, bytes]:
            response = response_reader(api_key, version)(answer, read_response_header(answer, api_key, version)[1])
            found = refused | {_resource(result): result for result in response.responses}
            yield
            response.responses = [found[_resource(each)] for each in request.resources if _resource(each) in found]
            return (yield from encode(response))

        def on_answer(answer: Any) -> None:
            if isinstance(answer, NoResponse):
                reply(answer)
            else:
                context.go_on(merged(answer), reply)

        less = _LOOKED_AT[api_key](resources=rest, validate_only=request.validate_only)
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        less_frame = request_encoder(api_key, version)(correlation_id, context.client_id, less)[4:]
        return self._forward(api_key, version, less_frame, context, on_answer)

    def _on_answer(
        self, api_key: ApiKey, version: int, frame: bytes, context: Context, reply: Reply[Any], answer: Any
    ) -> None:
        self._size_bytes -= len(frame)
        if isinstance(answer, Lost):
            _log.warning("forward.lost api=%s error=%r", api_key.api_name, answer.reason)
            code = ErrorCode.REQUEST_TIMED_OUT
        elif answer.error_code == ErrorCode.INVALID_REQUEST:
            # The request itself is malformed, and this node has not read it.
            reply(_CLOSE)
            return
        elif not answer.error_code and answer.response_data and answer.response_data[:4] == frame[4:8]:
            self._when_told(reply, answer.response_data)
            return
        else:
            # As in Kafka, clients are not told what is wrong between the nodes.
            _log.error("forward.refused api=%s error=%d", api_key.api_name, answer.error_code)
            is_known = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            code = ErrorCode.UNSUPPORTED_VERSION if is_known else ErrorCode.UNKNOWN_SERVER_ERROR
        context.go_on(_refusal(api_key, version, frame, code), reply)

    def _when_told(self, done: Done, answer: Any) -> None:
        """Pass on an answer when this node's view is as new as it."""
        if isinstance(answer, Lost):
            done(answer)
            return
        waiting = [done]

        def pass_on() -> None:
            if waiting:
                waiting.pop()(answer)
                cancel()

        cancel = self._call_later(CURRENT_MS_MAX, pass_on)
        self._when_current(pass_on)


def _resource(named: NamedResource) -> tuple[int, str]:
    return named.resource_type, named.resource_name


def _encoded(route: LongRoute, correlation_id: int, response: Any) -> Generator[Any, None, bytes]:
    """An answer of this node, as a frame without its size."""
    frame = yield from route.encode(correlation_id, response)
    return frame[4:]


def _envelope(frame: bytes, context: Context) -> m.EnvelopeRequest:
    return m.EnvelopeRequest(
        request_data=frame,
        request_principal=principal_bytes(context.principal),
        client_host_address=address_bytes(context.client_host),
    )


def _refusal(api_key: ApiKey, version: int, frame: bytes, code: ErrorCode) -> Generator[Any, None, Any]:
    """The answer to a request that no controller has answered: Kafka's getErrorResponse."""
    try:
        _, _, correlation_id, _, body = read_request_header(frame)
        request = yield from gradual_request_reader(api_key, version)(frame, body, API_TABLE[api_key].cost.elements)
    except WireError:
        return _CLOSE
    yield
    response = refused(place_of(api_key, version), request, code, None, is_deep=False)
    yield
    answer = yield from gradual_response_encoder(api_key, version)(correlation_id, response)
    return answer[4:]
