"""
Seeds of random tests: new ones in each run, printed when a test fails.

All seeds derive from the one seed of the run, which pytest-randomly chooses: `pytest NODEID --randomly-seed=N` repeats them.
"""

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

_FIXTURE = "seed"


def seed_of(config: pytest.Config, nodeid: str) -> int:
    """The seed of one test in this run."""
    return Random(f"{run_seed(config)} {nodeid}").randrange(1 << 32)


def run_seed(config: pytest.Config) -> Any:
    return config.getoption("randomly_seed", 0)


class Seeds:
    """Adds the seed to the report of a failed test, and the seed of the run to the summary, which `-q` would not show."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if report.failed:
            text = f"repeat with: pytest '{item.nodeid}' --randomly-seed={run_seed(self._config)}"
            if _FIXTURE in getattr(item, "fixturenames", ()):
                text = f"seed {seed_of(self._config, item.nodeid)}; {text}"
            report.sections.append(("Seed", text))
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.line(f"seed of this run: --randomly-seed={run_seed(self._config)}")


def register(config: pytest.Config) -> None:
    config.pluginmanager.register(Seeds(config), "kohort-seeds")
