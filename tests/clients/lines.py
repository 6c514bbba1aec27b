"""The lines of a process's standard output, while it runs."""

import subprocess
import threading
from collections.abc import Callable


class Lines:
    """Reads the standard output of a process in a thread, so that waiting for a line can time out."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: list[str] = []
        self._has_ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def all(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def wait_for(self, is_wanted: Callable[[str], bool], timeout_s: float) -> str:
        """
        Wait for the first line that matches, which may have been printed already.

        Raises:
            AssertionError: the timeout has passed, or the process has closed its output.
        """

        def found() -> bool:
            return self._has_ended or any(is_wanted(line) for line in self._lines)

        with self._changed:
            self._changed.wait_for(found, timeout_s)
            wanted = next((line for line in self._lines if is_wanted(line)), None)
        assert wanted is not None, f"{self._process.args!r} printed only {self._lines}"
        return wanted

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
