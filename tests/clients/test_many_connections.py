"""Many idle connections: the short version of `python -m bench.idle_connections`, and the file descriptors that they need."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

from bench.idle_connections import measure
from kohort.testing.served import ServedKohort

CONNECTIONS = 1_000
KB_FOR_A_CONNECTION_MAX = 35.0
"""10 000 connections and the broker itself are to take less than 400 MB; a connection took 4 kB when this was written."""


def test_an_idle_connection_takes_some_kilobytes(tmp_path: Path) -> None:
    with ServedKohort(tmp_path) as broker:
        result = asyncio.run(measure(broker, CONNECTIONS, slow_readers=0))
    assert result["connections"] == CONNECTIONS
    assert result["kb_for_a_connection"] < KB_FOR_A_CONNECTION_MAX


def test_a_broker_may_open_as_many_files_as_the_hard_limit_allows() -> None:
    """As the Java runtime does. Otherwise a shell's usual 1024 would allow 448 connections."""
    code = """
import resource
from kohort.cli.serve import raise_open_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
raise_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(hard), str(hard)]
