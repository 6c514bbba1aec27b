"""The clients of the control port in other languages: their example tests run, each with a client library of its language."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.testing.process import KOHORT
from tests.conftest import NIGHTLY

CLIENTS = Path(__file__).parents[3] / "clients"
SECONDS_MAX = 600


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOHORT_")}
    environment |= {"CARGO_TARGET_DIR": str(CLIENTS.parent / "build" / "rust")}
    environment |= {"KOHORT_COMMAND": " ".join(KOHORT), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


@NIGHTLY
@pytest.mark.clients
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_go() -> None:
    """With franz-go."""
    done = run(CLIENTS / "go" / "example", "go", "test", "-count=1", "./...")
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(CLIENTS / "go", "go", "vet", "./...").returncode == 0


@NIGHTLY
@pytest.mark.clients
@pytest.mark.skipif(shutil.which("npm") is None, reason="Node is not installed")
def test_node(tmp_path: Path) -> None:
    """With KafkaJS."""
    shutil.copytree(CLIENTS / "node", tmp_path / "node", ignore=shutil.ignore_patterns("node_modules"))
    example = tmp_path / "node" / "example"
    installed = run(example, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
    assert installed.returncode == 0, installed.stderr
    done = run(example, "node", "--test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 4" in done.stdout


@NIGHTLY
@pytest.mark.clients
@pytest.mark.java
@pytest.mark.maven
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_java(tmp_path: Path) -> None:
    """With Apache Kafka's clients and JUnit 5."""
    shutil.copytree(CLIENTS / "java", tmp_path / "java", ignore=shutil.ignore_patterns("target"))
    done = run(tmp_path / "java", "mvn", "-B", "--no-transfer-progress", "test")
    assert done.returncode == 0, done.stdout
    assert "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0" in done.stdout


@NIGHTLY
@pytest.mark.clients
@pytest.mark.skipif(shutil.which("cargo") is None, reason="Rust is not installed")
def test_rust(tmp_path: Path) -> None:
    """With rskafka."""
    shutil.copytree(CLIENTS / "rust", tmp_path / "rust")
    done = run(tmp_path / "rust", "cargo", "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed; 0 failed" in done.stdout
