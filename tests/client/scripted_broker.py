"""A broker that says what a test wants: a listener whose answers come from a function."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from kohort.wire import messages
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.frames import FrameReader
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader

Answer = Callable[[ApiKey, int, Any], Any]
"""(API, version, request) to a response; bytes are sent as they are, None is silence, CLOSE ends the connection."""

CLOSE = object()


class ScriptedBroker:
    """
    Serves connections one after the other, until it is left.

    Attributes:
        asked: API and version of every request, in order.
        was_asked: set with the first of them.
    """

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self.asked: list[tuple[ApiKey, int]] = []
        self.was_asked = threading.Event()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # A client may leave in the middle of it.
            with connection, suppress(ConnectionError):
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        frames = FrameReader()
        while chunk := connection.recv(1 << 16):
            for frame in frames.feed(chunk):
                reply = self._reply(frame)
                if reply is CLOSE:
                    return
                connection.sendall(reply)

    def _reply(self, frame: bytes) -> Any:
        key, version, correlation_id, _, offset = read_request_header(frame)
        api = API_KEYS[key]
        self.asked.append((api, version))
        self.was_asked.set()
        response = self._answer(api, version, request_reader(api, version)(frame, offset))
        if response is None:
            return b""
        if response is CLOSE or isinstance(response, bytes):
            return response
        return response_encoder(api, version)(correlation_id, response)


def versions(**ranges: tuple[int, int]) -> Any:
    """A response of ApiVersions: for each API by its name here, the oldest and the newest version."""
    known = {"API_VERSIONS": (0, 4), **ranges}
    return messages.ApiVersionsResponse(
        api_keys=[
            messages.ApiVersionsResponseApiVersion(api_key=ApiKey[name], min_version=oldest, max_version=newest)
            for name, (oldest, newest) in known.items()
        ]
    )
