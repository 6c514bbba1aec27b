"""`kohort serve` as a process of its own, on a free port."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kohort.testing.ports import free_ports

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 300.0
"""It flushes every file that it wrote, and a disk that others keep busy may take a second and more for each."""
KOHORT = (sys.executable, "-m", "kohort.cli.main")


class ServedKohort:
    """
    One broker. A context manager: entering starts it and waits until it is ready, leaving stops it.

    Attributes:
        port: stays the same when it is stopped and started.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] = KOHORT,
        flush: str = "commit",
    ) -> None:
        """
        Args:
            directory: for data and log; new or empty.
            properties: broker configurations.
            command: what starts `kohort`.
            flush: when a write counts: `commit`, when the disk has it; `os`, when the operating system has it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "kohort.log"
        (self.port,) = free_ports(1)
        self._command = [*command, "serve", "--flush", flush, "--data-dir", str(directory / "data")]
        for key, value in (properties or {}).items():
            self._command += ["--set", f"{key}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """
        Start and wait until it is ready.

        Raises:
            RuntimeError: it does not come up; the message has its log.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KOHORT_")}
        with self.log.open("ab") as log:
            command = [*self._command, "--port", str(self.port)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        line = self._ready_line()
        if not line.startswith("kohort ready "):
            self.stop()
            raise RuntimeError(f"kohort serve did not come up:\n{line}{self.log.read_text()}")

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """
        End it as an operator would, by force if it does not obey.

        Raises:
            subprocess.TimeoutExpired: it had to be forced.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _ready_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        return self._process.stdout.readline().decode() if ready else ""
