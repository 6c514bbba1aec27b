"""The log never stops the broker: lines that nobody reads are dropped and counted, and clients cannot flood it."""

import contextlib
import fcntl
import io
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading

import pytest

from kohort.server.logs import (
    REPEATS_MAX,
    REPEATS_SECONDS,
    JsonFormatter,
    KeyValueFormatter,
    LogWriter,
    RepeatLimit,
    logs_on_stderr,
)
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.crash.connection import Connection

F_SETPIPE_SZ = 1031
SECONDS_MAX = 60.0


def record(message: str, *arguments: object, client: str | None = None) -> logging.LogRecord:
    made = logging.LogRecord("kohort.server", logging.WARNING, __file__, 1, message, arguments, None)
    if client is not None:
        made.client = client
    return made


def writer_to(stream: io.TextIOBase, bytes_max: int) -> LogWriter:
    writer = LogWriter(stream, bytes_max=bytes_max)  # type: ignore[arg-type]
    writer.setFormatter(KeyValueFormatter())
    return writer


def test_lines_that_nobody_reads_are_dropped_counted_and_said() -> None:
    """A pipe takes 64 KiB, and a write to a full one waits for ever."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as stream:
        writer = writer_to(stream, 10_000)
        for number in range(5_000):
            writer.handle(record("some.event number=%d", number))
        dropped = writer.dropped
        assert 0 < dropped < 5_000
        found: list[str] = []

        def read() -> None:
            with os.fdopen(read_end) as lines:
                for line in lines:
                    found.append(line)
                    if "last.event" in line:
                        return

        reader = threading.Thread(target=read)
        reader.start()
        writer.flush()
        writer.handle(record("last.event"))
        reader.join(SECONDS_MAX)
        assert writer.dropped == dropped
    told = sum(int(match[1]) for line in found if (match := re.search(r"logs\.dropped lines=(\d+)", line)))
    assert told == dropped
    assert sum("some.event" in line for line in found) == 5_000 - dropped


def test_a_stream_in_memory_gets_its_lines_in_order() -> None:
    stream = io.StringIO()
    writer = writer_to(stream, 1 << 20)
    for number in range(100):
        writer.handle(record("event number=%d", number))
    writer.write_line("end")
    writer.flush()
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == [
        *(f"number={number}" for number in range(100)),
        "end",
    ]


def test_a_stream_that_is_closed_at_the_other_side_loses_lines_only() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stream:
        writer = writer_to(stream, 1 << 20)
        writer.handle(record("event"))
        writer.flush()
        assert writer.dropped == 1


def test_repeated_lines_about_one_client_are_held_back_and_counted() -> None:
    now = [0.0]
    limit = RepeatLimit(lambda: now[0])
    passed = [limit.filter(record("connection.refused client=%s", "/a", client="/a")) for _ in range(50)]
    assert passed == [True] * REPEATS_MAX + [False] * (50 - REPEATS_MAX)
    assert limit.filter(record("connection.refused client=%s", "/b", client="/b")), "another client"
    assert limit.filter(record("connection.stalled client=%s", "/a", client="/a")), "another kind"
    assert limit.filter(record("log.cut")), "not a line about a client"
    now[0] = REPEATS_SECONDS
    late = record("connection.refused client=%s", "/a", client="/a")
    assert limit.filter(late)
    assert late.getMessage() == f"connection.refused client=/a suppressed={50 - REPEATS_MAX}"
    again = record("connection.refused client=%s", "/a", client="/a")
    assert limit.filter(again)
    assert again.getMessage() == "connection.refused client=/a"


@pytest.mark.skipif(sys.platform != "linux", reason="pipes of a given size are Linux's")
def test_a_broker_whose_stderr_is_full_starts_and_stops() -> None:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    os.set_blocking(write_end, False)
    while True:
        try:
            os.write(write_end, bytes(512))
        except BlockingIOError:
            break
    os.set_blocking(write_end, True)
    command = [sys.executable, "-m", "kohort.cli.main", "serve", "--memory", "--port", "0", "--log-level", "debug"]
    with subprocess.Popen([*command, "--set", "super.users=a"], stdout=subprocess.PIPE, stderr=write_end) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"kohort ready")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(SECONDS_MAX) == 0
    os.close(read_end)
    os.close(write_end)


HOSTILE = "a\x1b[2J\r\nERROR kohort.server all.lost \x9b31m\u2028\u202eb\x7f"


def test_a_name_of_a_client_is_one_line_without_control_characters() -> None:
    made = record("group.removed group=%s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        made.exc_info = type(error), error, error.__traceback__
    lines = KeyValueFormatter().format(made).split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[0].endswith(r"group.removed group=a\x1b[2J\r\nERROR kohort.server all.lost \x9b31m\u2028\u202eb\x7f")
    text = JsonFormatter().format(made)
    assert text.isprintable()
    assert json.loads(text)["group"] == HOSTILE


class Starving(KeyValueFormatter):
    """Formats as if there were no memory for anything with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info:
            raise MemoryError
        return super().format(record)


def test_a_lack_of_memory_is_said_without_what_needs_memory() -> None:
    stream = io.StringIO()
    writer = writer_to(stream, 1_000_000)
    writer.setFormatter(Starving())
    for error in (MemoryError(), ValueError("x" * 1_000)):
        made = record("connection.failed client=%s", "/127.0.0.1")
        made.exc_info = type(error), error, None
        writer.emit(made)
    writer.flush()
    (line,) = stream.getvalue().splitlines()
    assert (
        " ERROR kohort.server memory.exhausted during='connection.failed client=/127.0.0.1' error=MemoryError() "
        in line
    )
    assert "raise the limit" in line


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
def test_a_broker_without_memory_says_so_and_answers_what_needs_none() -> None:
    """The thread of the log is there from the start: it takes 8 MB, which cannot be had when they are needed."""
    command = [sys.executable, "-m", "kohort.cli.main", "serve", "--memory", "--port", "0"]
    limit = 500 << 20
    produce = produce_request("t", {0: batch(b"v" * 900_000)})
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        ready = re.search(rb"^kohort ready .* port=(\d+) ", broker.stdout.readline())
        assert ready is not None
        port = int(ready[1])
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (limit, limit))
        topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
        requests = 0
        with Connection(port) as client:
            client.ask(ApiKey.CREATE_TOPICS, 4, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            with contextlib.suppress(ConnectionError):
                while client.ask(ApiKey.PRODUCE, 8, produce):
                    requests += 1
        assert requests > 100
        with Connection(port) as client:
            assert client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest()).error_code == 0
        broker.send_signal(signal.SIGTERM)
        said = broker.communicate(timeout=SECONDS_MAX)[1].decode()
        assert " memory.exhausted during='connection.failed client=/127.0.0.1' " in said
        assert " of 500 MB of address space" in said


def test_a_stream_that_was_closed_does_not_end_the_thread() -> None:
    closed = io.StringIO()
    writer = LogWriter(closed)
    closed.close()
    for _ in range(2):
        writer.write_line("a")
        writer.flush()
        assert not writer._waiting_bytes


def test_a_broker_that_ends_leaves_the_logs_of_its_process_alone(capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    with logs_on_stderr("error", "text"):
        root.error("within")
        root.warning("of no interest")
    root.error("afterwards")
    assert (list(root.handlers), root.level) == before
    said = capfd.readouterr().err
    assert ("within" in said, "interest" in said, "afterwards" in said) == (True, False, False)
