"""
From the first bytes of a frame to the function that answers it.

A route is an API key, the versions served, and a handler `handler(request, call, reply)`. A handler that can answer at once
returns the response; one that must wait returns None, and `reply(response)` is called later. Readers and encoders are built
per API and version when the first such request arrives.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kohort.model.errors import WireError
from kohort.wire.apis import APIS, ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.readers import request_reader

Handler = Callable[[Any, Any, Callable[[Any], None]], Any]

NO_RESPONSE: Final = object()
"""What a handler returns, or replies, when the protocol wants no answer (Produce with acks=0)."""
CLOSE: Final = object()
"""What a handler returns, or replies, when the protocol wants the connection closed instead of an answer."""

PIPELINED = frozenset({ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT})
"""
APIs of which a connection may have several requests in work.

Apache Kafka works on one request of a connection at a time. These take effect in order as they arrive and only their replies
wait for the disk, so no client can see the difference, provided that what is in work is all of one API: a read that
follows a write on the same connection still waits for it.
"""


class Route:
    """One version of one API: how to read it, who answers, how to write the answer."""

    __slots__ = ("api_key", "encode", "handler", "is_flexible", "is_pipelined", "read", "version")

    def __init__(self, api_key: ApiKey, version: int, handler: Handler) -> None:
        self.api_key = api_key
        self.version = version
        self.handler = handler
        self.read: Callable[[bytes, int], Any] = request_reader(api_key, version)
        self.encode: Callable[[int, Any], bytes] = response_encoder(api_key, version)
        self.is_flexible = version >= APIS[api_key].flexible_from
        self.is_pipelined = api_key in PIPELINED


class Dispatch:
    """The routes of one listener."""

    def __init__(self, handlers: Mapping[ApiKey, tuple[Handler, int, int]]) -> None:
        self._handlers = dict(handlers)
        self._routes: dict[int, Route] = {}
        """By API key and version in one number, as the frame has them in its first four bytes."""

    def versions(self) -> Iterable[tuple[ApiKey, int, int]]:
        """What is served: (key, oldest version, newest version)."""
        return ((key, oldest, newest) for key, (_, oldest, newest) in sorted(self._handlers.items()))

    def route(self, frame: bytes) -> Route:
        """
        Raises:
            WireError: the frame is too short, or names an API or a version that is not served.
        """
        key_and_version = int.from_bytes(frame[:4], "big")
        route = self._routes.get(key_and_version)
        if route is None:
            route = self._routes[key_and_version] = self._make(frame, key_and_version)
        return route

    def _make(self, frame: bytes, key_and_version: int) -> Route:
        if len(frame) < 8:
            raise WireError(f"a frame of {len(frame)} bytes holds no request header")
        key, version = key_and_version >> 16, key_and_version & 0xFFFF
        try:
            handler, oldest, newest = self._handlers[ApiKey(key)]
        except (KeyError, ValueError):
            raise WireError(f"API key {key} is not served") from None
        if not oldest <= version <= newest:
            raise WireError(f"{ApiKey(key).name} version {version} is not served (served: {oldest} to {newest})")
        return Route(ApiKey(key), version, handler)
