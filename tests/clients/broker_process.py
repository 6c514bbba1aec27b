"""A broker as users run it: `kohort serve` in a process of its own, on a free port."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from kohort.testing.ports import free_ports
from tests.clients.lines import Lines
from tests.clients.waiting import PATIENCE_S

KOHORT = (sys.executable, "-m", "kohort.cli.main")
"""The command, whatever the PATH is."""
QUICK_REBALANCES = "group.initial.rebalance.delay.ms=100"


class BrokerProcess:
    """
    One broker and its data directory.

    Attributes:
        port: stays the same, so that clients find it again when it was stopped or killed and started anew.
    """

    def __init__(self, directory: Path, *, settings: Sequence[str] = (QUICK_REBALANCES,)) -> None:
        self.data_dir = directory / "data"
        (self.port,) = free_ports(1)
        self._settings = settings
        self._stderr = directory / "stderr"
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Returns when the ready line was printed."""
        command = [*KOHORT, "serve", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        for setting in self._settings:
            command += ["--set", setting]
        with self._stderr.open("a") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=_environment()
            )
        lines = Lines(self._process)
        lines.wait_for(lambda line: line.startswith("kohort ready "), PATIENCE_S)
        return self

    def stop(self) -> None:
        """End as an operator would, and see that it ended well."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        assert code == 0, f"kohort serve ended with {code}:\n{self.stderr()}"
        assert "Traceback" not in self.stderr(), self.stderr()

    def kill(self) -> None:
        """End as a power cut would, but for the page cache."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def stderr(self) -> str:
        return self._stderr.read_text()


def _environment() -> dict[str, str]:
    """The tests' own, without what would change a broker's configuration or a command's cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KOHORT_")}
