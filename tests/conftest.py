"""Settings and fixtures of every test."""

import logging
import os
from random import Random

import pytest
from hypothesis import HealthCheck, settings

from kohort.compiled import is_compiled
from tests.plugins import durations, failures, garbage, scopes, seeds, skips

LONG = bool(os.environ.get("KOHORT_LONG"))
"""Whether the long versions of crash, fuzz and simulation tests run (`make test-long`)."""

NIGHTLY = pytest.mark.skipif(bool(os.environ.get("CI")) and not LONG, reason="make test-long: the long run only")
"""Tests that run in `make test` and in the long tier, and not in `.ci/run`, whose minutes are bounded."""

_IS_AGAIN = bool(os.environ.get("CI")) and not LONG and is_compiled()
"""Whether this is the second run of `.ci/run`. Its rooms have run on plain Python before, with all of their random examples."""


def examples(count: int) -> int:
    """How many of a test's random examples run: all, and a quarter in the second run of `.ci/run`."""
    return count // 4 if _IS_AGAIN else count


SKIPS_ALLOWED = {
    "make test-long|the long run only": "the long tier runs these",
    "make spark-versions": "the matrix of Spark's versions runs these, with the package index",
    "the compiled build does not allow": "the plain run of the same room runs these",
    "systemd-analyze is not installed": "the options of the unit are checked without it, too",
    "no Chromium": "the report's charts are checked without a browser too",
    "no file system can be mounted": "containers without CAP_SYS_ADMIN; the other tests of full disks use faulty files",
}
"""With CI=true every other skip fails the run: patterns of reasons, each with why it is allowed."""

extends_logs = pytest.mark.skipif(
    is_compiled(), reason="it derives from the base of all logs, which the compiled build does not allow"
)
watches_calls = pytest.mark.skipif(
    is_compiled(), reason="it replaces functions in modules, which the compiled build does not allow"
)

# The duration of an example depends on the load of the machine; a test checks results. Examples are new in every run. A failing
# one is printed with the decorator that repeats it.
settings.register_profile(
    "kohort",
    deadline=None,
    derandomize=False,
    max_examples=examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kohort")


# After the end of a JVM, a thread of py4j logs a traceback for each object that it cannot release there. Python 3.11 parses
# source for a traceback, and fails a test that parses source at that moment ("AST constructor recursion depth mismatch").
logging.getLogger("py4j").setLevel(logging.CRITICAL)


def pytest_configure(config: pytest.Config) -> None:
    durations.register(config)
    failures.register(config)
    garbage.register(config)
    scopes.register(config)
    seeds.register(config)
    skips.register(config, SKIPS_ALLOWED)


@pytest.fixture
def cold_page_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache: what is on the disk is read on another thread."""

    def read(*_arguments: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", read, raising=False)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new seed for the test in each run, printed when it fails."""
    return seeds.seed_of(request.config, request.node.nodeid)


@pytest.fixture
def rng(seed: int) -> Random:
    """A generator with the test's `seed`."""
    return Random(seed)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nodes on a store, and the processes of tests, keep their state in a directory of the run."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
