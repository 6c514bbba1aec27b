"""The load keeps its word: what is compared, when a request counts as due, and which server's cost is shown beside which."""

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.load.closed_loop import Lane, LoadError, run
from bench.load.open_loop import run_at_rate

REQUEST = b"\0\0\0\4ask!"
ANSWER = b"\0\0\0\4yes!"


@pytest.fixture(autouse=True, scope="module")
def few_files() -> None:
    """Files of earlier tests may be open until they are collected, and `select` takes none above 1024."""
    gc.collect()


@contextmanager
def server(answers: list[bytes], held_seconds: float = 0.0) -> Iterator[socket.socket]:
    """A connection on which every request is answered in turn with the given bytes; the first one after a while."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        number = 0
        while len(theirs.recv(len(REQUEST), socket.MSG_WAITALL)) == len(REQUEST):
            if number == 0:
                time.sleep(held_seconds)
            theirs.sendall(answers[number % len(answers)])
            number += 1

    serving = threading.Thread(target=serve)
    serving.start()
    with ours, theirs:
        try:
            yield ours
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            serving.join()


def test_equal_answers_are_counted() -> None:
    with server([ANSWER]) as connection:
        taken = run([Lane(connection, (REQUEST,), ANSWER)], 0.01)
    assert taken.requests >= 1
    assert taken.p50_us <= taken.p99_us <= taken.p999_us


@pytest.mark.parametrize("answer", [b"\0\0\0\4no!!", b"\0\0\0\1n", b"\0\0\0\6yes!yes"])
def test_another_answer_is_an_error(answer: bytes) -> None:
    with server([answer]) as connection, pytest.raises(LoadError, match="expected the response"):
        run([Lane(connection, (REQUEST,), ANSWER)], 0.01)


def test_an_answer_may_vary_where_it_is_said_to() -> None:
    with server([b"\0\0\0\4yes!", b"\0\0\0\4yus!"]) as connection:
        assert run([Lane(connection, (REQUEST,), ANSWER, [range(5, 6)])], 0.01).requests >= 1
    with server([b"\0\0\0\4yes?"]) as connection, pytest.raises(LoadError):
        run([Lane(connection, (REQUEST,), ANSWER, [range(5, 6)])], 0.01)


def test_an_open_loop_sends_as_many_as_are_due() -> None:
    with server([ANSWER]) as connection:
        assert run_at_rate([Lane(connection, (REQUEST,), ANSWER)], 0.05, rate=400).requests == 20


def test_requests_that_wait_for_a_stalled_server_are_late_from_when_they_were_due() -> None:
    """Ten requests within 10 ms, of which the first is held for 200: a loop that waited would report one slow answer of ten."""
    with server([ANSWER], held_seconds=0.2) as connection:
        taken = run_at_rate([Lane(connection, (REQUEST,), ANSWER)], 0.01, rate=1000)
    assert taken.requests == 10
    assert taken.p50_us > 180_000
