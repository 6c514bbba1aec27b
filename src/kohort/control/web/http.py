"""
The control API's HTTP/1.1: h11 over asyncio's streams, one task a connection, several requests one after the other.

The module is imported with `--control-port` only. A request that waits holds its own connection and nothing else; it ends when
its client goes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from kohort.control.web.problems import PROBLEM_JSON, Problem
from kohort.model.limits import CONTROL_BODY_BYTES_MAX, CONTROL_CONNECTIONS_MAX
from kohort.security.http_access import Headers, HttpAccess

_log: Final = logging.getLogger("kohort.control")
JSON: Final = "application/json"
IDLE_SECONDS_MAX: Final = 60.0
LINGER_SECONDS_MAX: Final = 2.0
_READ_BYTES: Final = 64 * 1024
_QUICK_SECONDS: Final = 0.05
"""Most answers come sooner; the connection of others is watched."""
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH"})


class Request(NamedTuple):
    """One request: `path` is its decoded parts."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes


class Response(NamedTuple):
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}


Handle = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """
    Args:
        handle: answers a request; raises `Problem`.
    """

    def __init__(self, handle: Handle, access: HttpAccess) -> None:
        self._handle = handle
        self._access = access
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listening)

    async def close(self) -> None:
        """Stop listening, and end the requests that wait."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await _Connection(self, reader, writer).serve()
        except (OSError, TimeoutError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass  # The client has gone, or does not speak HTTP.
        except asyncio.CancelledError:
            pass  # The server is closed; a task of asyncio's streams reports a cancellation as an error.
        finally:
            self._connections.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    @property
    def is_full(self) -> bool:
        return len(self._connections) > CONTROL_CONNECTIONS_MAX

    async def answer(self, request: h11.Request, body: bytes) -> Response:
        """The answer to a request, also if it is refused or fails."""
        method = request.method.decode("ascii")
        try:
            refusal = self._access.refusal(_headers(request), is_change=method in _CHANGES and bool(body))
            if refusal is not None:
                raise Problem(refusal.status, "refused", refusal.sentence)
            return await self._handle(_request(request, method, body))
        except Problem as problem:
            more = {"WWW-Authenticate": "Bearer"} if problem.status == HTTPStatus.UNAUTHORIZED else {}
            return Response(problem.status, problem.body(), PROBLEM_JSON, more)
        except Exception:  # noqa: BLE001 -- a defect fails its request, never the process
            _log.exception("control.failed method=%s target=%r", method, request.target)
            defect = Problem(500, "failed", "The request failed; the log of the broker has the reason.")
            return Response(500, defect.body(), PROBLEM_JSON)


class _Connection:
    """One connection of a client."""

    def __init__(self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=32 * 1024)

    async def serve(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS_MAX):
                    request, body = await self._read()
            except h11.RemoteProtocolError as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    problem = Problem(error.error_status_hint or 400, "not-http", f"This is not HTTP: {error}")
                    await self._write(Response(problem.status, problem.body(), PROBLEM_JSON), is_last=True)
                return
            if request is None:
                return
            if body is None:
                large = Problem(413, "too-large", f"A body has at most {CONTROL_BODY_BYTES_MAX} bytes.")
                await self._write(Response(413, large.body(), PROBLEM_JSON), is_last=True)
                await self._linger()
                return
            if self._server.is_full:
                full = Problem(503, "too-many", "There are too many connections to the control port.")
                await self._write(Response(503, full.body(), PROBLEM_JSON), is_last=True)
                return
            response = await self._while_connected(self._server.answer(request, body))
            if response is None:
                return
            await self._write(response, has_body=request.method != b"HEAD")
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _read(self) -> tuple[h11.Request | None, bytes | None]:
        """The next request with its body: no request at the end of the connection, no body if it is too large."""
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    self._writer.write(self._http.send(go_on) or b"")
                self._http.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                request = event
                if _length(event) > CONTROL_BODY_BYTES_MAX:
                    return request, None
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > CONTROL_BODY_BYTES_MAX:
                    return request, None
            elif isinstance(event, h11.EndOfMessage):
                return request, bytes(body)
            else:
                return None, b""

    async def _while_connected(self, answering: Any) -> Response | None:
        """The answer; None if the client goes first, which ends the wait."""
        task: asyncio.Task[Response] = asyncio.ensure_future(answering)
        try:
            await asyncio.wait([task], timeout=_QUICK_SECONDS)
            while not task.done():
                if self._reader.at_eof():
                    return None
                reading = asyncio.ensure_future(self._reader.read(1))
                waited: set[asyncio.Task[Any]] = {task, reading}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    with suppress(asyncio.CancelledError):
                        await reading
                elif data := reading.result():
                    self._http.receive_data(data)
                elif not task.done():
                    return None
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _linger(self) -> None:
        """Read on for a while: bytes that nobody reads would reset the connection, and the client would lose the answer."""
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS_MAX):
                while await self._reader.read(_READ_BYTES):
                    pass

    async def _write(self, response: Response, *, has_body: bool = True, is_last: bool = False) -> None:
        headers = {"Content-Length": str(len(response.body)), "Cache-Control": "no-store", **response.headers}
        if response.body:
            headers["Content-Type"] = response.content_type
        if is_last:
            headers["Connection"] = "close"
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        parts = [self._http.send(head) or b""]
        if has_body and response.body:
            parts.append(self._http.send(h11.Data(data=response.body)) or b"")
        parts.append(self._http.send(h11.EndOfMessage()) or b"")
        self._writer.write(b"".join(parts))
        await self._writer.drain()


def _headers(request: h11.Request) -> Headers:
    found: dict[str, list[str]] = {}
    for name, value in request.headers:
        found.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))
    return found


def _length(request: h11.Request) -> int:
    lengths = [int(value) for name, value in request.headers if name == b"content-length" and value.isdigit()]
    return max(lengths, default=0)


def _request(request: h11.Request, method: str, body: bytes) -> Request:
    target = urlsplit(request.target.decode("latin-1"))
    path = tuple(unquote(part) for part in target.path.split("/") if part)
    return Request(method, path, dict(parse_qsl(target.query, keep_blank_values=True)), body)
