"""What one worker runs together: the tests of a file, and all files that share the Spark session of a process."""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # it has none

ROOT = Path(__file__).parents[2]
SPARK = "files with the fixture `spark`"
_SPARK = re.compile(r"\bspark: Any\b")


@cache
def scope_of(file: str) -> str:
    """
    The scope of a file, by its path from the root of the repository; its own path if it shares nothing.

    A session takes 7 seconds of the processor to start, and 22 with its first three tables. A session in each worker would take
    them again.
    """
    return SPARK if file.startswith("tests/pipeline/") and _SPARK.search((ROOT / file).read_text()) else file


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # of no type
    """xdist's `--dist loadfile`, with `scope_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.split("::", 1)[0])


class Scopes:
    """The side of the xdist controller."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> Scheduling | None:
        return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def register(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Scopes(), "kohort-scopes")
