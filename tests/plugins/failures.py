"""
The names of failed tests, in a file: `make test` and `.ci/run` end with them, also after two runs of pytest.

A name is written when its test fails, so that a run that is killed leaves those that it has found.
"""

import os
from pathlib import Path

import pytest

from kohort.compiled import is_compiled

VARIABLE = "KOHORT_FAILED"
"""The environment variable that names the file. Without it nothing is written."""


class Failures:
    """The side that prints: the xdist controller, or the only process. It hears of workers that crash, too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(f"{'FAILED' if report.when in ('call', '???') else 'ERROR'} {report.nodeid}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(f"ERROR {report.nodeid or 'the collection'}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus and not self._names:
            self._note(
                f"ERROR pytest ended with exit status {int(session.exitstatus)}, and no test failed: see its last lines"
            )

    def _note(self, name: str) -> None:
        if name in self._names:
            return
        self._names.add(name)
        with self._path.open("a") as file:
            file.write(f"{name} (compiled build)\n" if is_compiled() else f"{name}\n")


def register(config: pytest.Config) -> None:
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path(path)), "kohort-failures")
