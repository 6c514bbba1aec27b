"""The pytest plug-in, in runs of its own, also with several workers."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from kohort.testing import Broker

SECONDS_MAX = 120.0
TESTS = """
    import pytest
    from kohort.client import Client
    from kohort.testing import Broker

    @pytest.mark.parametrize("number", range(4))
    def test_shared(kohort, number, record_property):
        kohort.topic("orders")
        with Client(kohort.bootstrap) as client:
            assert list(client.brokers()) == [1]
        print("cluster", kohort.broker.cluster_id, "scope", kohort.name)

    def test_configs(kohort_session_broker):
        assert "num.partitions=7" in kohort_session_broker._arguments

    def test_alone(kohort_broker, kohort):
        assert kohort_broker.cluster_id != kohort.broker.cluster_id

    @pytest.mark.kohort(brokers=3, kafka="4.2")
    def test_arguments(kohort_broker):
        with Client(kohort_broker.bootstrap) as client:
            assert list(client.brokers()) == [1, 2, 3]

    def test_factory(kohort_factory):
        first, second = kohort_factory(in_process=True), kohort_factory({"num.partitions": 2}, in_process=True)
        assert first.bootstrap != second.bootstrap
    """
CONFTEST = """
    import pytest

    @pytest.fixture(scope="session")
    def kohort_configs():
        return {"num.partitions": 7}
    """


def run(directory: Path, *options: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (directory / "test_application.py").write_text(textwrap.dedent(tests))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "kohort.testing.plugin", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, str(directory)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_the_entry_point_is_the_plug_in() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kohort": "kohort.testing.plugin"}


def test_the_fixtures_under_two_workers(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "xdist.plugin", "-n", "2", "-rA", "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    seen = re.findall(r"cluster (\S+) scope (\S+)", done.stdout)
    assert len({scope for _, scope in seen}) == 4
    assert len({cluster for cluster, _ in seen}) <= 2


def test_workers_share_a_broker_that_runs(tmp_path: Path) -> None:
    tests = """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_shared(kohort, number):
            topic = kohort.topic("orders")
            kohort.write(topic, "order 1")
            print("cluster", kohort.cluster_id, "bootstrap", kohort.bootstrap)
        """
    with Broker(in_process=True) as broker:
        options = ("--kohort-control", broker.control, "-p", "xdist.plugin", "-n", "2", "-rA")
        done = run(tmp_path, *options, tests=tests)
        assert done.returncode == 0, done.stdout + done.stderr
        seen = re.findall(r"cluster (\S+) bootstrap (\S+)", done.stdout)
        assert seen == [(broker.cluster_id, broker.bootstrap)] * 4
        assert [name for name in broker.control_client.get("topics")["topics"] if "orders" in name] == []


def test_a_run_without_the_fixtures_imports_nothing_of_kohort(tmp_path: Path) -> None:
    tests = """
        import sys

        def test_nothing():
            found = {name for name in sys.modules if name.partition(".")[0] in ("kohort", "msgspec")}
            assert found == {"kohort", "kohort.testing", "kohort.testing.plugin"}
        """
    done = run(tmp_path, "-q", tests=tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_assertions_of_kohort_are_not_rewritten(tmp_path: Path) -> None:
    """pytest marks all modules of a wheel with a plug-in; here the test does."""
    tests = """
        import pytest

        pytest.register_assert_rewrite("kohort.model", "kohort.wire")

        def test_loaders(kohort_broker):
            import kohort.model.addresses, kohort.wire.apis

            for module in (kohort.model.addresses, kohort.wire.apis):
                assert "Rewrit" not in type(module.__loader__).__name__
        """
    done = run(tmp_path, "-q", tests=tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failure_shows_the_last_requests(tmp_path: Path) -> None:
    tests = """
        from kohort.client import Client

        def ask(kohort):
            with Client(kohort.bootstrap) as client:
                client.brokers()

        def test_first(kohort):
            ask(kohort)

        def test_second(kohort):
            ask(kohort)
            assert kohort.requests(api="Produce")

        def test_third(kohort_broker):
            kohort_broker.stop()
            assert False
        """
    done = run(tmp_path, "-q", tests=tests)
    assert "1 passed, 2 failed" in done.stdout or "2 failed, 1 passed" in done.stdout
    second, third = done.stdout.split("- requests to Kohort -")[1:]
    assert re.findall(r"^  (\w+) \d+ of kohort-cli: answered$", second, re.MULTILINE) == ["ApiVersions", "Metadata"]
    assert "no control port answers at 127.0.0.1:" in third


@pytest.mark.parametrize("name", ["kohort", "kohort_broker", "kohort_factory", "kohort_session_broker"])
def test_the_fixtures_have_a_sentence(name: str) -> None:
    from kohort.testing import plugin

    assert str(getattr(plugin, name).__doc__).endswith(".")
    assert f"    {name}: " in str(plugin.__doc__)
