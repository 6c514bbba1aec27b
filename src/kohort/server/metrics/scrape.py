"""
The listener for metrics: a minimal HTTP/1.1 server on a port of its own.

`GET /metrics` (or HEAD) is answered in Prometheus' text format, `/health` with 200 if the event loop answers at all, and
`/ready` with 200, or with 503 and the reasons. The connection is closed after the answer. Any other request gets an error. A
request that is too large or arrives too slowly is cut off.

The values are collected on the event loop. Their text is made on another thread, because the metrics of thousands of partitions
take a second.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_log = logging.getLogger("kohort.server")

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


class Scrape(asyncio.Protocol):
    """
    One connection of a scraper, for one request.

    Args:
        collect: returns the metrics as they are now.
        not_ready: returns the reasons, as sentences, for which clients should not use the broker now.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]], not_ready: Callable[[], list[str]] = list) -> None:
        self._collect = collect
        self._not_ready = not_ready
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._rendering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._rendering is not None:
            return
        self._received += data
        if _END in self._received:
            method, target = _request_line(self._received)
            self._decide(method, target.partition("?")[0])
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
        try:
            collector = _Collected(list(self._collect()))
            body = await asyncio.to_thread(generate_latest, collector)
        except Exception:  # noqa: BLE001 -- a defect in a metric fails the scrape, never the broker
            _log.exception("metrics.failed")
            self._answer(500, b"The metrics cannot be computed; the broker's log has the reason.\n")
            return
        self._answer(200, body, CONTENT_TYPE_PLAIN_0_0_4, has_body=has_body)

    def _answer(self, status: int, body: bytes, content_type: str = TEXT, *, has_body: bool = True) -> None:
        if self._transport is None:  # the client has gone
            return
        head = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
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


def _request_line(request: bytes) -> tuple[str, str]:
    """Method and target; both empty if this is not an HTTP/1 request."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    is_http = len(words) == 3 and words[2].startswith("HTTP/1.")
    return (words[0], words[1]) if is_http else ("", "")
