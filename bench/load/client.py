"""One connection, one request at a time: what a measure needs before it begins."""

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
"""Of every request: with one request in flight nothing is to be told apart, and equal requests have equal answers."""
READY_SECONDS_MAX: Final = 60.0
NOT_YET_SECONDS: Final = 0.02
NOT_YET: Final = RETRIABLE_COORDINATOR_ERRORS | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class RefusedError(Exception):
    """The server answered with an error code."""


def open_socket(port: int) -> socket.socket:
    """A blocking socket to the server on this machine, without Nagle's algorithm."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS_MAX)
    opened.settimeout(None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def request_frame(api_key: int, version: int, request: Any) -> bytes:
    """The bytes of a request, ready to be sent any number of times."""
    return request_encoder(api_key, version)(CORRELATION_ID, CLIENT_ID, request)


def read_frame(connection: socket.socket) -> bytes:
    """
    The next frame with its size.

    Raises:
        ConnectionError: the server closed the connection.
    """
    data = b""
    wanted = 4
    while len(data) < wanted:
        chunk = connection.recv(65_536)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data += chunk
        if len(data) >= 4:
            wanted = 4 + int.from_bytes(data[:4], "big")
    return data


def decode(api_key: int, version: int, frame: bytes) -> Any:
    """The response in a frame that still has its size."""
    offset = 8 + API_KEYS[api_key].response_header_version(version)
    return response_reader(api_key, version)(frame, offset)


def ask(connection: socket.socket, api_key: int, version: int, request: Any) -> Any:
    """One request and its response."""
    connection.sendall(request_frame(api_key, version, request))
    return decode(api_key, version, read_frame(connection))


def ask_all(connections: Sequence[socket.socket], frames: Sequence[bytes]) -> list[bytes]:
    """The answers to many requests, in their order: one in flight on each connection, dealt out in turn."""
    answers = []
    for begin in range(0, len(frames), len(connections)):
        volley = list(zip(connections, frames[begin : begin + len(connections)], strict=False))
        for connection, frame in volley:
            connection.sendall(frame)
        answers += [read_frame(connection) for connection, _ in volley]
    return answers


def ask_all_until_ready(
    connections: Sequence[socket.socket],
    api_key: int,
    version: int,
    requests: Sequence[Any],
    code_of: Callable[[Any], int],
) -> list[Any]:
    """
    As `ask_all`, decoded; whom the server tells that it is not ready yet asks again.

    Raises:
        RefusedError: any other error, or not ready for too long.
    """
    deadline = time.monotonic() + READY_SECONDS_MAX
    responses: list[Any] = [None] * len(requests)
    left = list(range(len(requests)))
    while left:
        answers = ask_all(connections, [request_frame(api_key, version, requests[index]) for index in left])
        again = []
        for index, answer in zip(left, answers, strict=True):
            responses[index] = decode(api_key, version, answer)
            code = code_of(responses[index])
            if code in NOT_YET and time.monotonic() < deadline:
                again.append(index)
            elif code:
                raise RefusedError(f"{API_KEYS[api_key].api_name} was answered with {ErrorCode(code).name}")
        left = again
        if left:
            time.sleep(NOT_YET_SECONDS)
    return responses


def ask_until_ready(
    connection: socket.socket, api_key: int, version: int, request: Any, code_of: Callable[[Any], int]
) -> Any:
    """
    As `ask`, and again while the server says that it is not ready yet.

    Raises:
        RefusedError: any other error, or not ready for too long.
    """
    return ask_all_until_ready([connection], api_key, version, [request], code_of)[0]
