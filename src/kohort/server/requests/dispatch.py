"""
Dispatch: API key and version of a request to its route.

A route is one version of an API: its handler (`kohort.broker.ports`), and the reader and encoder of its messages. Routes are
built when the first request of their version arrives.
"""

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.ports import Handler
from kohort.model.errors import WireError
from kohort.server.metrics.latency import TIMED_AT_FIRST, TIMED_EVERY, LatencyHistogram
from kohort.server.requests.splitting import in_parts, without_repeats
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import GradualEncoder, gradual_response_encoder, response_encoder
from kohort.wire.generated.gradual import GradualReader
from kohort.wire.headers import api_versions_downgrade
from kohort.wire.readers import gradual_request_reader, request_reader
from kohort.wire.schema import message
from kohort.wire.templates import DecodedOnce, RepeatRead, route_repeats

Throttle: TypeAlias = Callable[[Handler], Handler]
Elsewhere: TypeAlias = "Callable[[ApiKey, int], Route | None]"
"""The route of a request that another node handles; None if this one does, at the moment."""
ThrottleOf: TypeAlias = Callable[[ApiKey], Throttle | None]


class LongRoute:
    """
    How long requests of one version of one API are served: each of these works in steps, as a generator.

    Attributes:
        read: as `Route.read`.
        handler: as `Route.handler`; may return a generator that returns the response.
        encode: as `Route.encode`.
        elements_max: a request with more elements is refused.
        request_schema, response_schema: by which long messages are freed in steps.
    """

    __slots__ = ("elements_max", "encode", "handler", "read", "request_schema", "response_schema")

    def __init__(self, api_key: ApiKey, version: int, handler: Handler, throttle: Throttle | None) -> None:
        self.read: GradualReader = gradual_request_reader(api_key, version)
        handler = in_parts(api_key, version, handler)
        self.handler: Handler = handler if throttle is None else throttle(handler)
        self.encode: GradualEncoder = gradual_response_encoder(api_key, version)
        self.request_schema = message(f"{api_key.api_name}Request")
        self.response_schema = message(f"{api_key.api_name}Response")
        self.elements_max = API_TABLE[api_key].cost.elements


class Route:
    """
    One version of one API.

    Args:
        throttle: wraps the handler so that it throttles clients that exceed a quota; None without quotas.

    Attributes:
        plain_handler: the handler alone: without quotas, and without the testing kit.
        is_gradual: whether every request is handled and answered in steps.
        read: decodes a request.
        read_repeated: used instead of `read` if the handler takes repeated requests; compares with the connection's last ones.
        encode: encodes a response to a frame.
        requests: how many requests have been read.
        latency: from the start of a request to its answer; includes waiting for a flush, for records or for a group.
    """

    __slots__ = (
        "_long",
        "_throttle",
        "api_key",
        "encode",
        "handler",
        "is_gradual",
        "is_pipelined",
        "latency",
        "plain_handler",
        "read",
        "read_repeated",
        "requests",
        "version",
    )

    def __init__(self, api_key: ApiKey, version: int, handler: Handler, throttle: Throttle | None = None) -> None:
        self.api_key = api_key
        self.version = version
        self.plain_handler = handler = without_repeats(api_key, handler)
        self.handler: Handler
        self._throttle: Throttle | None
        self.is_gradual = API_TABLE[api_key].is_gradual
        self._long: LongRoute | None
        self.read: Callable[[bytes, int], Any] = request_reader(api_key, version)
        self.read_repeated: RepeatRead | None
        self.encode: Callable[[int, Any], bytes]
        self.is_pipelined: bool
        self.requests = 0
        self.latency = LatencyHistogram()
        self.use(throttle)

    def use(self, throttle: Throttle | None) -> None:
        """
        Handle the next requests with or without quotas.

        With quotas, a connection has one request in flight, as in Kafka, and repeated requests are decoded as usual.
        """
        key, version, handler = self.api_key, self.version, self.plain_handler
        self._throttle = throttle
        self._long = None
        if version <= API_TABLE[key].repeated_until:
            handler = DecodedOnce(handler)
        self.read_repeated, self.encode = route_repeats(key, version, handler, response_encoder(key, version))
        self.handler = handler
        self.is_pipelined = API_TABLE[key].is_pipelined
        if throttle is not None:
            self.read_repeated = None
            self.handler = throttle(handler)
            self.is_pipelined = False

    def record_latency(self, seconds: float) -> None:
        """Count the duration of a request that was timed, for all that were not."""
        self.latency.record(seconds, 1 if self.requests <= TIMED_AT_FIRST else TIMED_EVERY)

    @property
    def long(self) -> LongRoute:
        if self._long is None:
            self._long = LongRoute(self.api_key, self.version, self.plain_handler, self._throttle)
        return self._long


class ForwardedRoute(Route):
    """
    A version of an API that another node handles: a request is its frame, and an answer is a frame without its size.

    Quotas and the testing kit are those of the node that handles it.
    """

    def __init__(self, api_key: ApiKey, version: int, handler: Handler) -> None:
        super().__init__(api_key, version, handler)
        self.is_gradual = False

    def use(self, _throttle: Throttle | None) -> None:
        self._throttle = None
        self._long = None
        self.read = _whole
        self.read_repeated = None
        self.encode = _framed
        self.handler = self.plain_handler
        self.is_pipelined = False

    @property
    def long(self) -> LongRoute:
        return _LONG_FORWARDED


class _LongForwarded(LongRoute):
    """The answers of `ForwardedRoute` that come after work in steps."""

    def __init__(self) -> None:
        self.encode = _framed_in_steps


def _whole(frame: bytes, _body: int) -> bytes:
    return frame


def _framed(_correlation_id: int, answer: bytes) -> bytes:
    return len(answer).to_bytes(4, "big") + answer


def _framed_in_steps(correlation_id: int, answer: bytes) -> Generator[None, None, bytes]:
    yield
    return _framed(correlation_id, answer)


_LONG_FORWARDED: Final = _LongForwarded()


def _nothing_of(_api_key: ApiKey) -> Throttle | None:
    return None


class _Layers:
    """Wrappers of a handler, the innermost first."""

    def __init__(self, layers: list[Throttle]) -> None:
        self._layers = layers

    def wrap(self, handler: Handler) -> Handler:
        for layer in self._layers:
            handler = layer(handler)
        return handler


class Dispatch:
    """
    The routes of one broker, by API key and version.

    Args:
        versions: the oldest and the newest version of each API that the broker serves.
        outermost: wraps the handlers of some APIs, outside of quotas and of the testing kit.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        versions: Mapping[ApiKey, tuple[int, int]],
        outermost: Mapping[ApiKey, Throttle] = MappingProxyType({}),
    ) -> None:
        self._handlers = handlers
        self._versions = versions
        self._outermost = outermost
        self._throttle_of: ThrottleOf = _nothing_of
        self._intercept_of: ThrottleOf = _nothing_of
        self.routes: dict[tuple[int, int], Route] = {}
        """The routes in use so far, but for those of `here`."""
        self._of_nodes: dict[ApiKey, Handler] = {}
        self._elsewhere: Elsewhere | None = None
        self._changing: dict[tuple[int, int], Route] = {}
        """In a cluster of many nodes: the routes of APIs that the controller alone handles, as this node handles them."""

    def join(self, handlers: Mapping[ApiKey, Handler], elsewhere: Elsewhere) -> None:
        """
        Serve the other nodes of a cluster, too.

        Args:
            handlers: of the APIs between nodes.
            elsewhere: asked at each request of an API that the controller alone handles.
        """
        self._of_nodes.update(handlers)
        self._versions = {**self._versions, **{key: (key.oldest, key.newest_stable) for key in handlers}}
        self._elsewhere = elsewhere

    @property
    def used(self) -> list[Route]:
        """The routes that this node has handled requests of so far."""
        return [*self.routes.values(), *self._changing.values()]

    def throttle_by(self, throttle_of: ThrottleOf) -> None:
        """Handle the next requests with the quotas of their APIs."""
        self._throttle_of = throttle_of
        self._wrap()

    def intercept_by(self, intercept_of: ThrottleOf) -> None:
        """Let the testing kit take hold of the next requests of some APIs, outside of their quotas."""
        self._intercept_of = intercept_of
        self._wrap()

    def _wrap(self) -> None:
        for route in self.used:
            route.use(self._wrapper(route.api_key))

    def _wrapper(self, api_key: ApiKey) -> Throttle | None:
        layers = [self._throttle_of(api_key), self._intercept_of(api_key), self._outermost.get(api_key)]
        found = [each for each in layers if each is not None]
        return _Layers(found).wrap if found else None

    def interceptor(self, api_key: ApiKey) -> Throttle | None:
        """The wrapper of the testing kit, for handlers that are no routes; None while it has nothing to do with an API."""
        return self._intercept_of(api_key)

    def route(self, api_key: int, version: int) -> Route | None:
        """
        Find or build a route. Return None for an unknown version of ApiVersions, which has an answer of its own.

        Raises:
            WireError: the API or the version is not served.
        """
        route = self.routes.get((api_key, version))
        if route is not None:
            return route
        key = API_KEYS[api_key]
        handlers = self._of_nodes if key.is_between_nodes else self._handlers
        if key not in handlers:
            raise WireError(f"{key.api_name} is not served")
        oldest, newest = self._versions[key]
        if not oldest <= version <= newest:
            if key is ApiKey.API_VERSIONS:
                return None
            raise WireError(f"{key.api_name} version {version} is not served (served: {oldest} to {newest})")
        if self._elsewhere is not None and API_TABLE[key].is_forwarded:
            # Not among the routes in use, so that the next request asks again.
            return self._elsewhere(key, version) or self.here(key, version)
        route = self.routes[api_key, version] = Route(key, version, handlers[key], self._wrapper(key))
        return route

    def serves(self, key: ApiKey, version: int) -> bool:
        """Whether a version of an API has a handler."""
        oldest, newest = self._versions.get(key, (0, -1))
        return key in self._handlers and oldest <= version <= newest

    def here(self, key: ApiKey, version: int) -> Route:
        """The route of an API that the controller alone handles, as it is served if this node is the controller."""
        route = self._changing.get((key, version))
        if route is None:
            route = self._changing[key, version] = Route(key, version, self._handlers[key], self._wrapper(key))
        return route

    def api_versions_downgrade(self, correlation_id: int) -> bytes:
        """The frame that answers an unknown version of ApiVersions."""
        return api_versions_downgrade(correlation_id, self._versions[ApiKey.API_VERSIONS][1])
