"""A process of `kohort serve`: its start, its ready line and its end."""

import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

KOHORT = (sys.executable, "-m", "kohort.cli.main")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 300.0
"""A stop flushes every file that was written; on a busy disk a flush may take a second or more."""


def spawn(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """
    Start a process whose standard output is a pipe, and return at once.

    Variables such as KOHORT_FLUSH, which would change the broker's configuration, are not handed down.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KOHORT_")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)


def first_line(process: subprocess.Popen[bytes], timeout_s: float = START_TIMEOUT_S) -> str:
    """The first line of the output; empty if the process has ended, or says nothing in time."""
    assert process.stdout is not None
    # Not select(): it refuses descriptors from 1024 on, which a process of many tests or clients has.
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(timeout_s)
    return process.stdout.readline().decode() if ready else ""


def end(process: subprocess.Popen[bytes], *, is_forced: bool) -> int:
    """
    End a process by SIGTERM, or by SIGKILL if `is_forced`, and return its exit code.

    Raises:
        subprocess.TimeoutExpired: the process did not end within `STOP_TIMEOUT_S` and was killed.
    """
    try:
        if not is_forced:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
    finally:
        process.kill()
        code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return code
