"""
The listener for metrics: a minimal HTTP/1.1 server on a port of its own.

`GET /metrics` (or HEAD) is answered in Prometheus' text format, `/health` with 200 if the event loop answers at all, and
`/ready` with 200, or with 503 and the reasons. The connection is closed after the answer. Any other request gets an error. A
request that is too large or arrives too slowly is cut off, and so is a client that does not take its answer. The number of
connections and the bytes of their answers have bounds.

The text is made on the event loop, in steps of a millisecond between which other clients have their turns, and once for all
scrapers that ask meanwhile. It takes as much time as thousands of requests: a program with other clients that cannot wait for
one step, or whose metrics change at known times, gives a function that makes it elsewhere.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from kohort.model.limits import SCRAPE_BYTES_MAX, SCRAPERS_MAX
from kohort.model.text import printable

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
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


STEP_SECONDS = 0.001
"""How long the text is made before other clients of the event loop have their turns."""
_number: Callable[[float], str] = floatToGoString
_PIECE_LINES = 100
_PIECE_BYTES = 64 * 1024
"""A part of an answer that is handed to the socket at once: many scrapers share one text, and each has a part of its own."""


class Family(Protocol):
    """A family of metrics, such as prometheus-client's. Its samples may be made while they are asked for."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def documentation(self) -> str: ...

    @property
    def samples(self) -> Iterable[Sample]: ...


Headers: TypeAlias = Mapping[str, Sequence[str]]
"""The values of each header, by its name in lower case."""
Refuse: TypeAlias = Callable[[Headers], tuple[int, str] | None]
"""Tells with which status and sentence a request is refused; None if it is not."""
MakeText: TypeAlias = Callable[[bool], Awaitable[bytes]]
"""Makes the text of the metrics; the argument tells whether it is compressed by gzip."""


def text_of(families: Iterable[Family | None]) -> Iterator[bytes]:
    """
    Make the text of metrics in small pieces.

    Control characters in labels are escaped: clients choose some of them, and people look at the page.

    Args:
        families: None stands for a step of work without a family; its piece is empty.
    """
    for family in families:
        if family is None:
            yield b""
            continue
        kind = family.type
        name = f"{family.name}_total" if kind == "counter" else family.name
        about = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines = [f"# HELP {name} {about}\n# TYPE {name} {kind}\n"]
        for sample in family.samples:
            lines.append(_line(sample))
            if len(lines) == _PIECE_LINES:
                yield "".join(lines).encode()
                lines.clear()
        yield "".join(lines).encode()


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_label(text)}"' for name, text in sorted(sample.labels.items()))
    braced = f"{{{labels}}}" if labels else ""
    return f"{sample.name}{braced} {_number(sample.value)}\n"


def _label(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")


class ScrapeListener:
    """
    A listener of scrapers. Each connection has one request.

    Args:
        collect: returns the metrics as they are now, and None between steps of its work.
        not_ready: returns the reasons, as sentences, for which clients should not use the server now.
        make_text: makes the text of the metrics instead of `collect`.
        has_gzip: `make_text` can compress.
        aliases: other names of `PATHS`.
        refuse: who may not have metrics, nor the reasons of `not_ready`; everyone may by default.

    Attributes:
        connections: their number.
        answer_bytes: the size of the texts that they have not taken yet, each counted once.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Family | None]] = list,
        not_ready: Callable[[], list[str]] = list,
        *,
        make_text: MakeText | None = None,
        has_gzip: bool = False,
        aliases: Mapping[str, str] = MappingProxyType({}),
        refuse: Refuse = lambda _headers: None,
    ) -> None:
        self._collect = collect
        self._not_ready = not_ready
        self._make_text = make_text or self._text_in_steps
        self._has_gzip = has_gzip
        self._aliases = aliases
        self._refuse = refuse
        self.connections = 0
        self.answer_bytes = 0
        self._readers: dict[int, int] = {}
        """By the identity of a text, which its readers keep: how many there are."""
        self._making: dict[bool, asyncio.Task[bytes]] = {}

    async def start(self, **where: Any) -> asyncio.Server:
        """Listen. The arguments are those of `asyncio.start_server`."""
        return await asyncio.start_server(self._serve, limit=REQUEST_BYTES_MAX + 1 - len(_END), **where)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        self.connections += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):  # the client has gone, or is too slow
            writer.transport.abort()
        finally:
            self.connections -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connections > SCRAPERS_MAX:
            await _write(writer, 503, b"There are too many scrapers.\n")
            return
        try:
            request = await reader.readuntil(_END)
        except asyncio.LimitOverrunError:
            await _write(writer, 400, b"The request is too long.\n")
            return
        method, target = _request_line(request)
        path = target.partition("?")[0]
        path = self._aliases.get(path, path)
        has_body = method != "HEAD"
        refused = self._refuse(_headers(request))
        if not path:
            await _write(writer, 400, b"This is not an HTTP request.\n")
        elif path not in PATHS:
            await _write(writer, 404, b"Only /metrics, /health and /ready are served.\n", has_body=has_body)
        elif method not in ("GET", "HEAD"):
            await _write(writer, 405, b"Only GET is answered.\n")
        elif path == "/health":
            await _write(writer, 200, b'{"status": "ok"}\n', JSON, has_body=has_body)
        elif path == "/ready":
            reasons = self._not_ready()
            body: dict[str, object] = {"status": "not ready" if reasons else "ready"}
            if reasons and refused is None:
                body["reasons"] = reasons
            text = json.dumps(body).encode() + b"\n"
            await _write(writer, 503 if reasons else 200, text, JSON, has_body=has_body)
        elif refused is not None:
            status, sentence = refused
            await _write(writer, status, f"{sentence}\n".encode(), has_body=has_body)
        else:
            await self._scrape(writer, has_body=has_body, is_gzip=self._has_gzip and _accepts_gzip(request))

    async def _scrape(self, writer: asyncio.StreamWriter, *, has_body: bool, is_gzip: bool) -> None:
        try:
            text = await self._text(is_gzip)
        except Exception:  # noqa: BLE001 -- a defect in a metric fails the scrape, never the server
            _log.exception("metrics.failed")
            await _write(writer, 500, b"The metrics cannot be computed; the log has the reason.\n")
            return
        if not self._lend(text):
            await _write(writer, 503, b"Other scrapers have not taken their answers yet.\n")
            return
        try:
            await _write(writer, 200, text, CONTENT_TYPE_PLAIN_0_0_4, has_body=has_body, is_gzip=is_gzip)
        finally:
            self._give_back(text)

    async def _text(self, is_gzip: bool) -> bytes:
        """The text of the metrics. Whoever asks while one is made gets the same."""
        task = self._making.get(is_gzip)
        if task is None:
            task = self._making[is_gzip] = asyncio.get_running_loop().create_task(self._made(is_gzip))
        return await asyncio.shield(task)

    async def _made(self, is_gzip: bool) -> bytes:
        try:
            return await self._make_text(is_gzip)
        finally:
            del self._making[is_gzip]

    async def _text_in_steps(self, _is_gzip: bool) -> bytes:
        pieces = []
        began_at = perf_counter()
        for piece in text_of(self._collect()):
            pieces.append(piece)
            if perf_counter() - began_at >= STEP_SECONDS:
                await asyncio.sleep(0)
                began_at = perf_counter()
        return b"".join(pieces)

    def _lend(self, text: bytes) -> bool:
        """Count a reader of a text; False if other texts take too much memory already."""
        count = self._readers.get(id(text), 0)
        if not count:
            if self.answer_bytes and self.answer_bytes + len(text) > SCRAPE_BYTES_MAX:
                return False
            self.answer_bytes += len(text)
        self._readers[id(text)] = count + 1
        return True

    def _give_back(self, text: bytes) -> None:
        self._readers[id(text)] -= 1
        if not self._readers[id(text)]:
            del self._readers[id(text)]
            self.answer_bytes -= len(text)


async def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    content_type: str = TEXT,
    *,
    has_body: bool = True,
    is_gzip: bool = False,
) -> None:
    """Write an answer, as fast as the client takes it."""
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        *(["Content-Encoding: gzip"] if is_gzip else []),
        *(["Allow: GET, HEAD"] if status == 405 else []),
        *(["WWW-Authenticate: Bearer"] if status == 401 else []),
        "Connection: close",
    ]
    writer.write("\r\n".join(head).encode() + _END)
    rest = memoryview(body if has_body else b"")
    while rest:
        writer.write(rest[:_PIECE_BYTES])
        rest = rest[_PIECE_BYTES:]
        await writer.drain()


def _accepts_gzip(request: bytes) -> bool:
    lines = request.lower().split(b"\r\n")
    return any(line.startswith(b"accept-encoding:") and b"gzip" in line for line in lines)


def _headers(request: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in request.decode("latin-1").split("\r\n")[1:]:
        name, separator, value = line.partition(":")
        if separator:
            found.setdefault(name.strip().lower(), []).append(value.strip())
    return found


def _request_line(request: bytes) -> tuple[str, str]:
    """Method and target; both empty if this is not an HTTP/1 request."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    is_http = len(words) == 3 and words[2].startswith("HTTP/1.")
    return (words[0], words[1]) if is_http else ("", "")
