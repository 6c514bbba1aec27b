"""
The listener for metrics: a minimal HTTP/1.1 server on a port of its own.

`GET /metrics` (or HEAD) is answered in Prometheus' text format, `/health` with 200 if the event loop answers at all, and
`/ready` with 200, or with 503 and the reasons. The connection is closed after the answer. Any other request gets an error. A
request that is too large or arrives too slowly is cut off, and so is a client that does not take its answer. The number of
connections and the bytes of their answers have bounds.

The values are collected on the event loop. Their text is made on another thread, because the metrics of thousands of partitions
take a second.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kohort.model.limits import SCRAPE_BYTES_MAX, SCRAPERS_MAX

_log = logging.getLogger("kohort.scrape")

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 10.0
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
PATHS = ("/metrics", "/health", "/ready")
_END = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


Render = Callable[[list[Metric], bool], bytes]
"""Makes the text of metrics, on another thread; the second argument tells whether it is compressed by gzip."""


def plain(families: list[Metric], is_gzip: bool) -> bytes:  # noqa: ARG001 -- a `Render`
    """Return the text of metrics, never compressed."""
    return generate_latest(_Collected(families))


@dataclass(slots=True)
class ScrapeLimits:
    """What the connections of one listener hold: their number, and the bytes of answers."""

    connections: int = 0
    answer_bytes: int = 0


class Scrape(asyncio.Protocol):
    """
    One connection of a scraper, for one request.

    Args:
        collect: returns the metrics as they are now.
        not_ready: returns the reasons, as sentences, for which clients should not use the server now.
        limits: shared by the connections of a listener.
        render: makes the text of the metrics.
        has_gzip: `render` can compress.
        aliases: other names of `PATHS`.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        not_ready: Callable[[], list[str]] = list,
        *,
        limits: ScrapeLimits | None = None,
        render: Render = plain,
        has_gzip: bool = False,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._collect = collect
        self._not_ready = not_ready
        self._limits = limits or ScrapeLimits()
        self._render = render
        self._has_gzip = has_gzip
        self._aliases = aliases
        self._answer_bytes = 0
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._rendering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self._transport.abort)
        self._limits.connections += 1
        if self._limits.connections > SCRAPERS_MAX:
            self._answer(503, b"There are too many scrapers.\n")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._transport = None
        self._limits.connections -= 1
        self._limits.answer_bytes -= self._answer_bytes
        self._answer_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._rendering is not None:
            return
        self._received += data
        if _END in self._received:
            method, target = _request_line(self._received)
            path = target.partition("?")[0]
            self._decide(method, self._aliases.get(path, path))
        elif len(self._received) > REQUEST_BYTES_MAX:
            self._answer(400, b"The request is too long.\n")

    def _decide(self, method: str, path: str) -> None:
        has_body = method != "HEAD"
        if not path:
            self._answer(400, b"This is not an HTTP request.\n")
        elif path not in PATHS:
            self._answer(404, b"Only /metrics, /health and /ready are served.\n", has_body=has_body)
        elif method not in ("GET", "HEAD"):
            self._answer(405, b"Only GET is answered.\n")
        elif path == "/health":
            self._answer(200, b'{"status": "ok"}\n', JSON, has_body=has_body)
        elif path == "/ready":
            reasons = self._not_ready()
            body = {"status": "not ready", "reasons": reasons} if reasons else {"status": "ready"}
            self._answer(503 if reasons else 200, json.dumps(body).encode() + b"\n", JSON, has_body=has_body)
        else:
            self._rendering = asyncio.get_running_loop().create_task(self._scrape(has_body=has_body))

    async def _scrape(self, *, has_body: bool) -> None:
        is_gzip = self._has_gzip and _accepts_gzip(self._received)
        try:
            families = list(self._collect())
            body = await asyncio.to_thread(self._render, families, is_gzip)
        except Exception:  # noqa: BLE001 -- a defect in a metric fails the scrape, never the server
            _log.exception("metrics.failed")
            self._answer(500, b"The metrics cannot be computed; the log has the reason.\n")
            return
        if self._transport is None:
            return
        if self._limits.answer_bytes and self._limits.answer_bytes + len(body) > SCRAPE_BYTES_MAX:
            self._answer(503, b"Other scrapers have not taken their answers yet.\n")
            return
        self._answer_bytes = len(body)
        self._limits.answer_bytes += self._answer_bytes
        self._answer(200, body, CONTENT_TYPE_PLAIN_0_0_4, has_body=has_body, is_gzip=is_gzip)

    def _answer(
        self, status: int, body: bytes, content_type: str = TEXT, *, has_body: bool = True, is_gzip: bool = False
    ) -> None:
        if self._transport is None:  # the client has gone
            return
        head = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            *(["Content-Encoding: gzip"] if is_gzip else []),
            *(["Allow: GET, HEAD"] if status == 405 else []),
            "Connection: close",
        ]
        self._transport.write("\r\n".join(head).encode() + _END + (body if has_body else b""))
        self._transport.close()


class _Collected(Collector):
    """Metrics in the place of prometheus-client's registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _accepts_gzip(request: bytes) -> bool:
    lines = request.lower().split(b"\r\n")
    return any(line.startswith(b"accept-encoding:") and b"gzip" in line for line in lines)


def _request_line(request: bytes) -> tuple[str, str]:
    """Method and target; both empty if this is not an HTTP/1 request."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    is_http = len(words) == 3 and words[2].startswith("HTTP/1.")
    return (words[0], words[1]) if is_http else ("", "")
