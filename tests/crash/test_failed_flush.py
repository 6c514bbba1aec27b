"""A disk that takes no more: the process says so and ends, and what it had acknowledged is there at the next start."""

import subprocess
import sys
from pathlib import Path

SMALL_FILES = ("sh", "-c", 'ulimit -f 1024; exec "$@"', "sh")
"""Files end at a megabyte, less than a journal's is made with: the first flush fails."""
TIMEOUT_S = 120


def test_the_process_ends_with_a_sentence(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "kohort.cli.main")
    with subprocess.Popen(
        (*SMALL_FILES, *command, "serve", "--port", "0", "--data-dir", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().partition("port=")[2].split()[0]
        creation = (*command, "topics", "create", "t", "--bootstrap", f"127.0.0.1:{port}", "--timeout", "5")
        created = subprocess.run(creation, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert created.returncode == 2, "it was not acknowledged"
    assert process.returncode == 1
    assert "is offline since a flush failed" in errors.splitlines()[-1]
