"""A minimal client for preparing measures. `kohort.client` is not used: frames are prepared in advance and sent many times."""

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kohort.client.cluster import RETRIABLE_COORDINATOR_ERRORS
from kohort.model.errors import ErrorCode
from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader

CLIENT_ID: Final = "bench"
CORRELATION_ID: Final = 7
"""Correlation id of every request. One request is in flight on a connection, and equal requests get equal responses."""
READY_SECONDS_MAX: Final = 60.0
RETRY_SECONDS: Final = 0.02
RETRIABLE: Final = RETRIABLE_COORDINATOR_ERRORS | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class RefusedError(Exception):
    """The server returned an error code."""


def open_socket(port: int) -> socket.socket:
    """Open a blocking socket to a server on this machine, with TCP_NODELAY."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS_MAX)
    opened.settimeout(None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def request_frame(api_key: int, version: int, request: Any) -> bytes:
    """Encode a request, with its size."""
    return request_encoder(api_key, version)(CORRELATION_ID, CLIENT_ID, request)


def read_frame(connection: socket.socket) -> bytes:
    """
    Read the next frame, with its size.

    Raises:
        ConnectionError: the server closed the connection.
        TimeoutError: the server sends nothing, because it has no room for the connection, for example.
    """
    data = b""
    wanted = 4
    while len(data) < wanted:
        connection.settimeout(READY_SECONDS_MAX)
        try:
            chunk = connection.recv(65_536)
        except TimeoutError:
            raise TimeoutError(f"the server sent nothing for {READY_SECONDS_MAX:.0f} s") from None
        finally:
            connection.settimeout(None)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data += chunk
        if len(data) >= 4:
            wanted = 4 + int.from_bytes(data[:4], "big")
    return data


def decode(api_key: int, version: int, frame: bytes) -> Any:
    """Decode the response in a frame with its size."""
    offset = 8 + API_KEYS[api_key].response_header_version(version)
    return response_reader(api_key, version)(frame, offset)


def send(connection: socket.socket, api_key: int, version: int, request: Any) -> Any:
    """Send a request and return its response."""
    connection.sendall(request_frame(api_key, version, request))
    return decode(api_key, version, read_frame(connection))


def send_all(connections: Sequence[socket.socket], frames: Sequence[bytes]) -> list[bytes]:
    """Send requests round-robin, one in flight on each connection, and return the response frames in order."""
    answers = []
    for begin in range(0, len(frames), len(connections)):
        batch = list(zip(connections, frames[begin : begin + len(connections)], strict=False))
        for connection, frame in batch:
            connection.sendall(frame)
        answers += [read_frame(connection) for connection, _ in batch]
    return answers


def send_all_until_ready(
    connections: Sequence[socket.socket],
    api_key: int,
    version: int,
    requests: Sequence[Any],
    code_of: Callable[[Any], int],
) -> list[Any]:
    """
    Send requests as `send_all` does, decode the responses, and retry on errors of a server that is not ready.

    Raises:
        RefusedError: another error code, or not ready in time.
    """
    deadline = time.monotonic() + READY_SECONDS_MAX
    responses: list[Any] = [None] * len(requests)
    left = list(range(len(requests)))
    while left:
        answers = send_all(connections, [request_frame(api_key, version, requests[index]) for index in left])
        again = []
        for index, answer in zip(left, answers, strict=True):
            responses[index] = decode(api_key, version, answer)
            code = code_of(responses[index])
            if code in RETRIABLE and time.monotonic() < deadline:
                again.append(index)
            elif code:
                raise RefusedError(f"{API_KEYS[api_key].api_name} returned {ErrorCode(code).name}")
        left = again
        if left:
            time.sleep(RETRY_SECONDS)
    return responses


def send_until_ready(
    connection: socket.socket, api_key: int, version: int, request: Any, code_of: Callable[[Any], int]
) -> Any:
    """
    Send a request as `send` does, and retry on errors of a server that is not ready.

    Raises:
        RefusedError: another error code, or not ready in time.
    """
    return send_all_until_ready([connection], api_key, version, [request], code_of)[0]
