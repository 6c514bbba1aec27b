"""
The examples of examples/faults run: fifteen problems of clients, each with an application that is right, and with one that has
the bug, which the test has to find. They wait more than they compute, so four run at a time.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "faults"
SECONDS_MAX = 300


@pytest.mark.clients
def test_the_examples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "kohort.testing.plugin", str(EXAMPLES)]
    command += ["-p", "xdist.plugin", "-n", "4"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout
    outcomes: dict[str, set[str]] = {}
    for outcome, name in re.findall(r"^(PASSED|XFAIL) .*?(test_\w+)\.py::", done.stdout, re.MULTILINE):
        outcomes.setdefault(name, set()).add(outcome)
    assert outcomes.keys() == {each.stem for each in EXAMPLES.glob("test_*.py")}
    assert len(outcomes) == 15
    assert all(found == {"PASSED", "XFAIL"} for found in outcomes.values()), outcomes
