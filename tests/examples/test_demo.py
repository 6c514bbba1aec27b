"""The demo holds what it says: it checks every claim itself, so it has to run, and to notice when one does not hold."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NIGHTLY

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def demo(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(
        command, check=False, env=os.environ | environment, capture_output=True, text=True, timeout=1_200
    )


@pytest.mark.clients
@pytest.mark.spark
@NIGHTLY  # two sessions of Spark take a minute
def test_the_demo_succeeds_with_spark(tmp_path: Path) -> None:
    done = demo("--data-dir", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same " in done.stdout
    assert "new commits are in the published tables" in done.stdout
    assert "Everything held" in done.stdout


@pytest.mark.clients
def test_the_demo_succeeds_without_java(tmp_path: Path) -> None:
    done = demo("--data-dir", str(tmp_path / "demo"), "--json", JAVA_HOME=str(tmp_path / "no-java"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no acknowledged commit is lost" in done.stderr
    assert "exactly once: " in done.stderr
    assert "were at their second delivery" in done.stderr
    assert "Everything held" in done.stderr
    assert "Spark is skipped, because" in done.stderr
    tables = json.loads(done.stdout)
    if tables:
        assert "available, delivered once" in done.stderr
        assert {it["group"] for it in tables["lag"]} == {"shop", "audit", "receipts"}
        assert {it["outcome"] for it in tables["transactions"]} == {"committed", "aborted"}
        assert (tmp_path / "demo" / "report.html").stat().st_size > 0
    else:
        assert "The pipeline is skipped" in done.stderr


def test_a_directory_that_no_demo_has_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    done = demo("--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "is not empty" in done.stdout
    assert (tmp_path / "precious").read_text() == "mine"
