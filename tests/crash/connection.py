"""A blocking connection to a broker, with several requests in flight."""

import socket
from types import TracebackType
from typing import Any, Final, Self

from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader

WAIT_SECONDS_MAX: Final = 120.0


class Connection:
    """
    One socket; requests are answered in their order.

    Raises:
        ConnectionError: the broker closed the connection.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()

    def send(self, api_key: int, version: int, request: Any) -> None:
        self._socket.sendall(request_encoder(api_key, version)(1, "crash", request))

    def receive(self, api_key: int, version: int) -> Any:
        size = self._file.read(4)
        frame = self._file.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
        if not frame or len(frame) != int.from_bytes(size, "big"):
            raise ConnectionResetError("the broker closed the connection")
        return response_reader(api_key, version)(frame, 4 + API_KEYS[api_key].response_header_version(version))

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        self.send(api_key, version, request)
        return self.receive(api_key, version)
