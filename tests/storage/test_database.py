"""The server of the tests ends with them."""

import subprocess
import sys
import time
from pathlib import Path

from tests.storage.owner import WAIT_SECONDS

MAKE = """
import sys
from kohort_lab.database import Database
database = Database()
print(database.directory, flush=True)
sys.stdin.read()
"""


def is_running(process_id: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    said = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process_id)], capture_output=True, text=True, check=False
    ).stdout
    return said.strip() != "" and not said.startswith("Z")


def test_a_killed_process_leaves_no_server() -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    directory = Path(maker.stdout.readline().strip())
    server = int((directory / "data" / "postmaster.pid").read_text().split()[0])
    maker.kill()
    maker.communicate()
    deadline = time.monotonic() + WAIT_SECONDS
    while directory.exists() or is_running(server):
        assert time.monotonic() < deadline
