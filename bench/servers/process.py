"""Servers as processes: start, wait until ready, measure, stop."""

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psutil

ROOT: Final = Path(__file__).parents[2]
READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
_PORT = re.compile(r"\bport=(\d+)")
_POLL_SECONDS: Final = 0.005
_API_VERSIONS: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""Version 0, correlation id 1, no client id."""


class ServerError(Exception):
    """A server did not start."""


@dataclass(frozen=True, slots=True)
class Server:
    """
    A running server.

    Attributes:
        started_at: `time.perf_counter()` just before exec.
        directory: its data directory.
    """

    process: subprocess.Popen[str]
    port: int
    started_at: float
    directory: Path

    @property
    def resident_mb(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all threads so far."""
        used = psutil.Process(self.process.pid).cpu_times()
        return float(used.user + used.system)


@contextmanager
def running(command: Sequence[str], directory: Path, port: int | None = None) -> Iterator[Server]:
    """
    Run a server for the block, from its ready line.

    Args:
        directory: for its output.
        port: the port on which it will listen. None if it prints a line with "port=N".

    Raises:
        ServerError: the process ended before it was ready. The message has the end of its output.
    """
    log = directory / "stderr"
    with log.open("w") as stderr:
        started_at = time.perf_counter()
        stdout = subprocess.PIPE if port is None else stderr
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True, cwd=ROOT)
    try:
        found = _printed_port(process.stdout) if port is None else _answering_port(process, port)
        if found is None:
            raise ServerError(f"{' '.join(command)[:300]} did not become ready: {log.read_text()[-2000:]}")
        yield Server(process, found, started_at, directory)
    finally:
        _stop(process)


def _printed_port(stdout: IO[str] | None) -> int | None:
    assert stdout is not None
    port = _PORT.search(stdout.readline())
    return int(port[1]) if port else None


def _answering_port(process: subprocess.Popen[str], port: int) -> int | None:
    """Send ApiVersions until a response arrives. Returns None if the process ends or does not answer."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS_MAX) as connection:
                connection.sendall(_API_VERSIONS)
                if connection.recv(4096):
                    return port
        except OSError:
            time.sleep(_POLL_SECONDS)
    return None


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def constant(body: bytes) -> Iterator[Server]:
    """Run the constant server."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        command = [sys.executable, "-m", "bench.servers.constant_server", body.hex()]
        with running(command, Path(directory)) as server:
            yield server
