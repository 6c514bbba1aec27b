"""
The pytest plug-in.

Fixtures:
    kohort: a `Scope` of one broker that all tests of the session share; under xdist each worker has one, unless
        `--kohort-control HOST:PORT` names one that runs already.
    kohort_broker: a `Broker` for this test alone, in this process. `@pytest.mark.kohort(configs={...}, brokers=3)` gives it
        arguments.
    kohort_factory: a function that makes more of them; they stop at the end of the test.
    kohort_session_broker: the broker that the tests share. A conftest may replace it.
    kohort_configs: broker configurations of the shared broker; empty, unless a conftest replaces it.

The plug-in is loaded in every run of pytest: modules of Kohort are imported by the first test that needs them.
"""

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.testing.broker import Broker
    from kohort.testing.kit.kit import Kit
    from kohort.testing.kit.running import RunningBroker
    from kohort.testing.kit.scope import Scope

_REQUESTS_SHOWN = 20


class _AsTheyAre(MetaPathFinder):
    """
    Finds the modules of Kohort before pytest does, which rewrites the assertions of each module of a distribution with a
    plug-in. That takes seconds where nothing is cached, and Kohort's assertions are not for readers of tests.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("kohort.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Import Kohort without changes from now on."""
    if not any(isinstance(finder, _AsTheyAre) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AsTheyAre())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("kohort").addoption(
        "--kohort-control",
        metavar="HOST:PORT",
        help="control port of a Kohort that runs already, for the fixture kohort; its token is that of KOHORT_CONTROL_TOKEN",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kohort(**arguments): arguments of kohort.testing.Broker for the fixture kohort_broker"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last requests of a test that failed."""
    report = yield
    kits = [kit for name, kit in getattr(item, "funcargs", {}).items() if name in ("kohort", "kohort_broker")]
    if report.when == "call" and report.failed and kits:
        report.sections += [("requests to Kohort", text) for text in map(_last_requests, kits) if text]
    return report


def _last_requests(kit: "Kit") -> str:
    from kohort.testing import ControlError
    from kohort.testing.kit.kit import request_line

    try:
        return "\n".join(map(request_line, kit.requests(limit=_REQUESTS_SHOWN)))
    except ControlError as error:
        return str(error)


@pytest.fixture(scope="session")
def kohort_configs() -> dict[str, object]:
    """Broker configurations of the broker that the tests share."""
    return {}


@pytest.fixture(scope="session")
def kohort_session_broker(
    kohort_configs: dict[str, object], pytestconfig: pytest.Config
) -> "Iterator[Broker | RunningBroker]":
    """The broker that the tests of this session share, in a process of its own."""
    from kohort.testing.broker import Broker
    from kohort.testing.kit.running import RunningBroker

    control = pytestconfig.getoption("--kohort-control")
    if control is not None:
        yield RunningBroker(control, token=os.environ.get("KOHORT_CONTROL_TOKEN"))
        return
    with Broker(kohort_configs) as broker:
        yield broker


@pytest.fixture
def kohort(kohort_session_broker: "Broker | RunningBroker", request: pytest.FixtureRequest) -> "Iterator[Scope]":
    """This test's part of the broker that the tests share."""
    with kohort_session_broker.scope(request.node.name) as scope:
        yield scope


@pytest.fixture
def kohort_factory() -> "Iterator[Callable[..., Broker]]":
    """A function that starts a broker, with the arguments of `kohort.testing.Broker`. It stops at the end of the test."""
    from kohort.testing.broker import Broker

    with ExitStack() as stack:

        def start(*args: Any, **arguments: Any) -> Broker:
            return stack.enter_context(Broker(*args, **arguments))

        yield start


@pytest.fixture
def kohort_broker(kohort_factory: "Callable[..., Broker]", request: pytest.FixtureRequest) -> "Broker":
    """A broker for this test alone."""
    marker = request.node.get_closest_marker("kohort")
    return kohort_factory(**{"in_process": True, **(marker.kwargs if marker else {})})
