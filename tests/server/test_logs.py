"""The log never stops the broker: lines that nobody reads are dropped and counted, and clients cannot flood it."""

import fcntl
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from kohort.server.logs import REPEATS_MAX, REPEATS_SECONDS, KeyValueFormatter, LogWriter, RepeatLimit

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
