"""The rules of CI: budgets, skips, order and seeds. And each mutant can be applied."""

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kohort.compiled import is_compiled
from tests.plugins.durations import BUDGET_LEAST_S, Table, by_room, machine_s, over_budget
from tests.plugins.garbage import YOUNG_OBJECTS_MAX
from tests.plugins.scopes import SPARK, scope_of
from tools import mutants

ROOT = Path(__file__).parents[2]
PLUGINS = """\
from random import Random
import pytest
from tests.plugins import durations, failures, seeds, skips

def pytest_configure(config):
    durations.register(config)
    failures.register(config)
    seeds.register(config)
    skips.register(config, {"allowed": "for a reason"})

@pytest.fixture
def seed(request):
    return seeds.seed_of(request.config, request.node.nodeid)
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    path = tmp_path / "durations.json"
    files = {"tests/a/test_one.py": 100.0, "tests/a/test_two.py": 50.0, "tests/b/test_three.py": 1.0}
    path.write_text(json.dumps({"calibration_s": 0.02, "files": files}))
    return Table(path)


@pytest.mark.parametrize(
    ("seconds", "calibration_s", "others", "allowed"),
    [
        (300.0, 0.02, 0.0, None),
        (301.0, 0.02, 0.0, 300.0),
        (301.0, 0.04, 0.0, None),
        (601.0, 0.04, 0.0, 600.0),
        (300.0, 0.01, 0.0, None),
        (600.0, 0.02, 0.5, None),
        (601.0, 0.02, 0.5, 600.0),
        (1201.0, 0.02, 0.99, 1200.0),
    ],
)
def test_a_budget_is_twice_the_recorded_seconds_on_a_machine_of_this_speed(
    table: Table, seconds: float, calibration_s: float, others: float, allowed: float | None
) -> None:
    found = over_budget(Counter({"tests/a": seconds}), table, calibration_s, others)
    assert found == ({} if allowed is None else {"tests/a": (seconds, allowed)})


def test_small_and_new_rooms_have_the_least_budget(table: Table) -> None:
    taken = Counter({"tests/b": BUDGET_LEAST_S, "tests/new": BUDGET_LEAST_S + 1})
    assert over_budget(taken, table, 0.02) == {"tests/new": (BUDGET_LEAST_S + 1, BUDGET_LEAST_S)}


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="other systems do not tell what all processors do")
def test_the_work_of_other_processes_is_measured() -> None:
    loop = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    before = machine_s()
    subprocess.run([sys.executable, "-c", loop], check=True)
    assert machine_s() - before >= 0.45


def test_seconds_by_room() -> None:
    files = [("tests/a/b/test_one.py", 1.5), ("tests/a/test_two.py", 2.0), ("tests/test_three.py", 4.0)]
    assert by_room(files) == {"tests/a": 3.5, "tests/test_three.py": 4.0}


def test_a_collection_of_garbage_visits_no_tests() -> None:
    assert gc.isenabled()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
    assert not any(isinstance(each, pytest.Item) for each in gc.get_objects())


def test_files_that_share_a_spark_session_are_one_scope() -> None:
    assert scope_of("tests/pipeline/test_library.py") == scope_of("tests/pipeline/checkpoints/test_engines.py") == SPARK
    for alone in ("tests/pipeline/test_zipped.py", "tests/testing/test_plugins.py"):
        assert scope_of(alone) == alone


def run_pytest(directory: Path, test: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    (directory / "conftest.py").write_text(PLUGINS)
    (directory / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory), *arguments]
    variables = {"PYTHONPATH": str(ROOT), "PATH": "", **environment}
    return subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


FAILING = """
import pytest

def test_passes():
    pass

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise RuntimeError

def test_cannot_begin(broken):
    pass
"""
DYING = "import os, signal\n\ndef test_ends_its_process():\n    os.kill(os.getpid(), signal.SIGKILL)\n"


def test_the_names_of_failed_tests_are_left_in_a_file_also_if_a_worker_dies(tmp_path: Path) -> None:
    names = tmp_path / "names"
    (tmp_path / "test_unreadable.py").write_text("import nothing_of_this_name")
    run_pytest(tmp_path, FAILING, KOHORT_FAILED=str(names))
    assert names.read_text().split("\n") == ["ERROR test_unreadable.py", ""]
    (tmp_path / "test_unreadable.py").unlink()
    names.unlink()
    (tmp_path / "test_dying.py").write_text(DYING)
    done = run_pytest(tmp_path, FAILING, "-n", "2", "--dist", "loadfile", KOHORT_FAILED=str(names))
    assert done.returncode == 1, done.stdout
    suffix = " (compiled build)" if is_compiled() else ""
    assert sorted(names.read_text().splitlines()) == [
        f"ERROR test_it.py::test_cannot_begin{suffix}",
        f"FAILED test_dying.py::test_ends_its_process{suffix}",
        f"FAILED test_it.py::test_fails{suffix}",
    ]


def test_a_run_that_fails_without_a_failed_test_is_named_too(tmp_path: Path) -> None:
    names = tmp_path / "names"
    run_pytest(tmp_path, SKIPPED.format(reason="no Java"), CI="true", KOHORT_FAILED=str(names))
    assert names.read_text().startswith("ERROR pytest ended with exit status 1, and no test failed")
    names.unlink()
    assert run_pytest(tmp_path, "def test_it():\n    pass\n", KOHORT_FAILED=str(names)).returncode == 0
    assert not names.exists()


@pytest.mark.parametrize("makes_fail", ["lint", "test-plain", "test-build", "test-compiled"])
def test_the_checks_end_with_the_names_of_failed_tests(tmp_path: Path, makes_fail: str) -> None:
    """With a `make` that does nothing but fail."""
    names = tmp_path / "names"
    names.write_text("FAILED of an earlier run\n")
    fake = tmp_path / "make"
    is_of_tests = makes_fail in ("test-plain", "test-compiled")
    tells = f"echo FAILED tests/a.py::test_b >>{names}; " if is_of_tests else ""
    fake.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/made\n'
        f'case " $* " in *" {makes_fail} "*) echo output; {tells}echo "make: Error 1" >&2; exit 2;; esac\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KOHORT_FAILED": str(names)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    ending = ["Failed:", "FAILED tests/a.py::test_b"] if is_of_tests else []
    # On a busy machine bash may tell that it has lost sight of a process.
    lines = [line for line in done.stdout.splitlines() if "wait_for: No record of process" not in line]
    assert lines[-len(["output", "error", *ending]) :] == ["output", "make: Error 1", *ending]
    made = {"setup", "lint", "test-build"} | ({"rewritten", "test-plain"} if makes_fail != "lint" else set())
    made |= {"test-compiled"} if is_of_tests else set()
    # The compilation may have been stopped before it began.
    assert set((tmp_path / "made").read_text().split()) | {"test-build"} == made


SKIPPED = 'import pytest\ndef test_it():\n    pytest.skip("{reason}")\n'


@pytest.mark.parametrize(("reason", "ci", "code"), [("allowed", "true", 0), ("no Java", "true", 1), ("no Java", "", 0)])
def test_ci_fails_for_a_skip_that_is_not_listed(tmp_path: Path, reason: str, ci: str, code: int) -> None:
    done = run_pytest(tmp_path, SKIPPED.format(reason=reason), CI=ci)
    assert done.returncode == code, done.stdout
    assert ("test_it: Skipped: no Java" in done.stdout) is bool(code)


def test_a_failed_test_prints_its_seed_and_the_seed_repeats_it(tmp_path: Path) -> None:
    test = "def test_it(seed):\n    assert False, f'with {seed}'\n"
    first = run_pytest(tmp_path, test)
    (line,) = (each for each in first.stdout.splitlines() if each.startswith("seed ") and "repeat with" in each)
    seed, run_seed = line.split(";")[0].removeprefix("seed "), line.rpartition("=")[2]
    assert f"with {seed}" in first.stdout
    assert f"seed of this run: --randomly-seed={run_seed}" in first.stdout
    again = run_pytest(tmp_path, test, f"--randomly-seed={run_seed}")
    assert f"with {seed}" in again.stdout
    other = run_pytest(tmp_path, test, f"--randomly-seed={int(run_seed) + 1}")
    assert f"with {seed}" not in other.stdout


def test_every_mutant_can_be_applied() -> None:
    """Its text occurs exactly once in its file, and its tests are in files that exist."""
    known = list(mutants.mutants())
    assert len(known) > 1_000
    assert {str(each): why for each in known if (why := mutants.problem(ROOT, each))} == {}
    assert {test for each in known for test in each.kills if not (ROOT / test.split("::")[0]).exists()} == set()
