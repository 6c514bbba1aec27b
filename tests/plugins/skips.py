"""With CI=true, a skipped test fails the run unless its reason is on the list."""

import re
from typing import Any

import pytest

from tests.plugins.durations import is_ci


class Skips:
    """
    Counts skipped tests.

    Args:
        allowed: patterns of reasons that may be given in CI, each with why.
    """

    def __init__(self, allowed: dict[str, str]) -> None:
        self._allowed = [re.compile(pattern) for pattern in allowed]
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(each.search(reason) for each in self._allowed):
            self._found.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if is_ci() and self._found and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if is_ci() and self._found:
            terminalreporter.section("skipped, which CI does not allow (tests/conftest.py lists the exceptions)")
            for line in self._found:
                terminalreporter.line(f"ERROR {line}")


def register(config: pytest.Config, allowed: dict[str, str]) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(allowed), "kohort-skips")
