"""The commands and the test of docs/howto/failover.md work as they are printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.testing.ports import free_port_range
from tests.conftest import NIGHTLY

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "failover.md"
KOHORT = f"{sys.executable} -m kohort"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@NIGHTLY
@pytest.mark.clients
def test_the_commands(tmp_path: Path) -> None:
    serve, *others = blocks("sh")
    ports = free_port_range(3)

    def with_ports(text: str) -> str:
        for written, port in zip(("9092", "9093", "9094"), ports, strict=True):
            text = text.replace(written, str(port))
        return text

    command = shlex.split(with_ports(serve).replace("kohort", KOHORT, 1))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "brokers=" + ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1)) in ready
            script = "set -e\n" + with_ports("".join(others)).replace("\nkohort ", f"\n{KOHORT} ")
            script = re.sub(r"^kohort ", f"{KOHORT} ", script, flags=re.MULTILINE)
            environment = {key: value for key, value in os.environ.items() if not key.startswith("KOHORT_")}
            done = subprocess.run(
                ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
            )
        finally:
            process.terminate()
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ +2  stopped ", done.stdout, re.MULTILINE), done.stdout
    assert "Broker 2 is running" in done.stdout
    assert "orders-0 is led by broker 2" in done.stdout
    assert re.search(r"__consumer_offsets-\d+ is led by broker 3", done.stdout)
    assert re.search(r"__transaction_state-\d+ is led by broker 1", done.stdout)


@NIGHTLY
@pytest.mark.clients
def test_the_test(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / "test_failover.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
