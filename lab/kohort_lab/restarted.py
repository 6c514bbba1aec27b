"""A child process that is started again whenever it has ended, and can be killed or paused."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

STOP_SECONDS: Final = 60.0


class RestartedProcess:
    """
    One process at a time.

    Attributes:
        log: the file with the standard output of all its processes, one behind the other.
        errors: the file with their standard error.
        exits: processes that ended by themselves.
        kills: processes that were killed.
    """

    def __init__(self, command: Sequence[str], directory: Path, name: str) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self.log = directory / f"{name}.log"
        self.errors = directory / f"{name}.errors"
        self.exits = self.kills = 0

    def start(self) -> None:
        with self.log.open("ab") as log, self.errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=errors)

    def keep_alive(self) -> None:
        """Start the process again if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.exits += 1
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.kills += 1

    def replace(self, command: Sequence[str]) -> None:
        """End the process by SIGTERM, and start another one in its place; its output goes into the same files."""
        self.stop()
        self._command = tuple(command)
        self.start()

    def pause(self) -> None:
        """Stop the process by SIGSTOP until `resume`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process by SIGTERM, or by SIGKILL if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def lines(self) -> list[str]:
        """The whole lines of the log: a killed process may leave half of one, which a later process continues."""
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
