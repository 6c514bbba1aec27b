"""
Dispatch: API key and version of a request to its route.

A route is one version of an API: its handler (`kohort.broker.ports`), and the reader and encoder of its messages. Routes are
built when the first request of their version arrives.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kohort.broker.api_table import API_TABLE
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
from kohort.wire.templates import RepeatRead, route_repeats

Throttle: TypeAlias = Callable[[Handler], Handler]
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
        is_gradual: whether every request is handled and answered in steps.
        read: decodes a request.
        read_repeated: used instead of `read` if the handler takes repeated requests; compares with the connection's last ones.
        encode: encodes a response to a frame.
        requests: how many requests have been read.
        latency: from the start of a request to its answer; includes waiting for a flush, for records or for a group.
    """

    __slots__ = (
        "_long",
        "_plain_handler",
        "_throttle",
        "api_key",
        "encode",
        "handler",
        "is_gradual",
        "is_pipelined",
        "latency",
        "read",
        "read_repeated",
        "requests",
        "version",
    )

    def __init__(self, api_key: ApiKey, version: int, handler: Handler, throttle: Throttle | None = None) -> None:
        self.api_key = api_key
        self.version = version
        self._plain_handler = handler = without_repeats(api_key, handler)
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
        key, version, handler = self.api_key, self.version, self._plain_handler
        self._throttle = throttle
        self._long = None
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
            self._long = LongRoute(self.api_key, self.version, self._plain_handler, self._throttle)
        return self._long


def _nothing_of(_api_key: ApiKey) -> Throttle | None:
    return None


class _Both:
    """Quotas, and the testing kit around them."""

    def __init__(self, inner: Throttle, outer: Throttle) -> None:
        self._inner = inner
        self._outer = outer

    def wrap(self, handler: Handler) -> Handler:
        return self._outer(self._inner(handler))


class Dispatch:
    """
    The routes of one broker, by API key and version.

    Args:
        versions: the oldest and the newest version of each API that the broker serves.
    """

    def __init__(self, handlers: Mapping[ApiKey, Handler], versions: Mapping[ApiKey, tuple[int, int]]) -> None:
        self._handlers = handlers
        self._versions = versions
        self._throttle_of: ThrottleOf = _nothing_of
        self._intercept_of: ThrottleOf = _nothing_of
        self.routes: dict[tuple[int, int], Route] = {}
        """The routes in use so far."""

    def throttle_by(self, throttle_of: ThrottleOf) -> None:
        """Handle the next requests with the quotas of their APIs."""
        self._throttle_of = throttle_of
        self._wrap()

    def intercept_by(self, intercept_of: ThrottleOf) -> None:
        """Let the testing kit take hold of the next requests of some APIs, outside of their quotas."""
        self._intercept_of = intercept_of
        self._wrap()

    def _wrap(self) -> None:
        for route in self.routes.values():
            route.use(self._wrapper(route.api_key))

    def _wrapper(self, api_key: ApiKey) -> Throttle | None:
        throttle, intercept = self._throttle_of(api_key), self._intercept_of(api_key)
        if throttle is None or intercept is None:
            return throttle if intercept is None else intercept
        return _Both(throttle, intercept).wrap

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
        if key not in self._handlers:
            raise WireError(f"{key.api_name} is not served")
        oldest, newest = self._versions[key]
        if not oldest <= version <= newest:
            if key is ApiKey.API_VERSIONS:
                return None
            raise WireError(f"{key.api_name} version {version} is not served (served: {oldest} to {newest})")
        route = self.routes[api_key, version] = Route(key, version, self._handlers[key], self._wrapper(key))
        return route

    def api_versions_downgrade(self, correlation_id: int) -> bytes:
        """The frame that answers an unknown version of ApiVersions."""
        return api_versions_downgrade(correlation_id, self._versions[ApiKey.API_VERSIONS][1])
