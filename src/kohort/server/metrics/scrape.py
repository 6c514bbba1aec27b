"""
The listener for metrics: a minimal HTTP/1.1 server on a port of its own.

`GET /metrics` (or HEAD) is answered in Prometheus' text format, and the connection is closed. Any other request gets an error.
A request that is too large or arrives too slowly is cut off.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_log = logging.getLogger("kohort.server")

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 10.0
_END = b"\r\n\r\n"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}


class Scrape(asyncio.Protocol):
    """
    One connection of a scraper, for one request.

    Args:
        collect: returns the metrics as they are now.
    """

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collector = _Collector(collect)
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        if _END in self._received:
            method, target = _request_line(self._received)
            self._answer(*self._decide(method, target), has_body=method != "HEAD")
        elif len(self._received) > REQUEST_BYTES_MAX:
            self._answer(400, b"The request is too long.\n")

    def _decide(self, method: str, target: str) -> tuple[int, bytes]:
        if not target:
            return 400, b"This is not an HTTP request.\n"
        if target.partition("?")[0] != "/metrics":
            return 404, b"Only /metrics is served.\n"
        if method not in ("GET", "HEAD"):
            return 405, b"Only GET is answered.\n"
        try:
            return 200, generate_latest(self._collector)
        except Exception:  # noqa: BLE001 -- a defect in a metric fails the scrape, never the broker
            _log.exception("metrics.failed")
            return 500, b"The metrics cannot be computed; the broker's log has the reason.\n"

    def _answer(self, status: int, body: bytes, *, has_body: bool = True) -> None:
        assert self._transport is not None
        head = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {CONTENT_TYPE_PLAIN_0_0_4}",
            f"Content-Length: {len(body)}",
            *(["Allow: GET, HEAD"] if status == 405 else []),
            "Connection: close",
        ]
        self._transport.write("\r\n".join(head).encode() + _END + (body if has_body else b""))
        self._transport.close()


class _Collector(Collector):
    """The metrics of a node in the place of prometheus-client's registry."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def _request_line(request: bytes) -> tuple[str, str]:
    """Method and target; both empty if this is not an HTTP/1 request."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    is_http = len(words) == 3 and words[2].startswith("HTTP/1.")
    return (words[0], words[1]) if is_http else ("", "")
