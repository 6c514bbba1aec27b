"""
The blocks of a page run as they are pasted, one after the other, in one shell and an empty directory, and print what the page
says.

It takes some seconds: starts of a broker, a group of a real client, and a dozen commands.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.testing.ports import free_ports

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": 1, "docs/tutorial.md": 7, "docs/howto/hanging-transaction.md": 4}
"""The least number of outputs by page."""
TIMEOUT_S = 120
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MARK = "--- end of block"


@pytest.mark.clients
@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_commands(tmp_path: Path, page: str) -> None:
    """
    Shell blocks are one script, and so are Python blocks without a title. A text block is the output of the shell block before
    it, with `...` for anything in a line, or for some lines. A block that needs Spark, or a fixture of pytest, is run by
    another test.
    """
    (port,) = free_ports(1)
    text = (ROOT / page).read_text().replace("9092", str(port))
    command = f"{sys.executable} -m kohort"
    script = [
        f'kohort() {{ {command} "$@"; }}',
        f'kohort_broker() {{ exec {command} serve --port {port} "$@"; }}',
        "set -e; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
    ]
    expected: list[str] = []
    for language, title, body in BLOCK.findall(text):
        if title:
            (tmp_path / title).write_text(body)
        elif language == "sh":
            script += [body.replace("kohort serve", "kohort_broker"), f"echo '{MARK}'"]
            expected.append("")
        elif language == "python" and not re.search(r"session\(\)|^def test_", body, re.MULTILINE):
            script += [f"python - <<'PASTED'\n{body}PASTED", f"echo '{MARK}'"]
            expected.append("")
        elif language == "text":
            expected[-1] = body
    assert sum(map(bool, expected)) >= PAGES[page], "the page lost its outputs"
    environment = os.environ | {
        "KOHORT_BOOTSTRAP": f"127.0.0.1:{port}",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    outputs = re.sub(r" +$", "", done.stdout, flags=re.MULTILINE).split(MARK + "\n")[: len(expected)]
    for wanted, output in zip(expected, outputs, strict=True):
        if wanted:
            assert re.fullmatch(_pattern(wanted), output), f"expected:\n{wanted}\ngot:\n{output}"


def _pattern(wanted: str) -> str:
    lines = wanted.splitlines(keepends=True)
    return "".join(r"(?:.*\n)*" if line == "...\n" else ".*".join(map(re.escape, line.split("..."))) for line in lines)
