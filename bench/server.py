"""Servers as processes of their own: started, ready, measured, stopped."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).parent.parent
STOP_SECONDS_MAX: Final = 30.0
_PORT = re.compile(r"\bport=(\d+)")
KOHORT: Final = str(Path(sys.executable).with_name("kohort"))


class ServerError(Exception):
    """A server did not come up."""


@dataclass(frozen=True, slots=True)
class Server:
    """
    A running server.

    Attributes:
        started_at: `time.perf_counter()` just before exec.
    """

    process: subprocess.Popen[str]
    port: int
    started_at: float

    @property
    def resident_mb(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    @property
    def cpu_seconds(self) -> float:
        """Processor time used so far, of all threads."""
        used = psutil.Process(self.process.pid).cpu_times()
        return float(used.user + used.system)


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Server]:
    """
    A server from its ready line to its end.

    Raises:
        ServerError: it ended before it was ready; what it said is in the message.
    """
    with log.open("w") as stderr:
        started_at = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        port = _PORT.search(ready)
        if port is None:
            raise ServerError(f"{' '.join(command)} did not become ready: {ready.strip()} {log.read_text()[-2000:]}")
        yield Server(process, int(port[1]), started_at)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def kohort(flush: str, *settings: str, prefix: Sequence[str] = ()) -> Iterator[Server]:
    """
    A Kohort on a fresh data directory, removed afterwards.

    Args:
        flush: "commit" or "os".
        settings: broker configurations, "key=value".
        prefix: what runs the command: an interpreter with a profiler.
    """
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        command = [*prefix, KOHORT, "serve", "--host", "127.0.0.1", "--port", "0", "--flush", flush]
        command += ["--data-dir", str(Path(directory) / "data")]
        for setting in settings:
            command += ["--set", setting]
        with running(command, Path(directory) / "stderr") as server:
            yield server


@contextmanager
def constant(body: bytes) -> Iterator[Server]:
    """The server that does nothing."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        command = [sys.executable, "-m", "bench.constant_server", body.hex()]
        with running(command, Path(directory) / "stderr") as server:
            yield server
