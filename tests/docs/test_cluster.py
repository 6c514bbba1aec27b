"""The commands of docs/howto/cluster.md work as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.testing.ports import free_port_range
from kohort_lab.database import Database
from tests.conftest import NIGHTLY

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "cluster.md"
KOHORT = f"{sys.executable} -m kohort"
WAIT = "until {kohort} cluster status $STORE; do sleep 0.1; done\n"
STOP = "\nkill $(jobs -p)\nwait\n"


@NIGHTLY
@pytest.mark.clients
def test_the_commands(tmp_path: Path) -> None:
    init, serve, look, move = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    database = Database()
    try:
        script = init + serve + WAIT.format(kohort=KOHORT) + look + move + STOP
        script = script.replace("postgresql://kohort@db.example/kohort", f"'{database.url}'").replace(
            "$STORE", '"$STORE"'
        )
        for written, port in zip(("9092", "9093", "9094"), free_port_range(3), strict=True):
            script = script.replace(written, str(port))
        script = "set -e\n" + re.sub(r"^kohort ", f"{KOHORT} ", script, flags=re.MULTILINE)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KOHORT_")}
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        database.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Node 2 is drained\n" in done.stdout
    assert "Node 2 may lead again" in done.stdout
    assert "orders-0 is led by node 3 in epoch " in done.stdout
