"""The command `kohort` as a client."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from kohort.testing.served import KOHORT
from tests.clients.waiting import PATIENCE_S


def kohort(
    *arguments: str, bootstrap: str | None = None, codes: Sequence[int] = (0,)
) -> "subprocess.CompletedProcess[str]":
    """Run a command against a broker; its exit code must be one of `codes`, and no traceback may show."""
    environment = dict(os.environ)
    if bootstrap is not None:
        environment["KOHORT_BOOTSTRAP"] = bootstrap
        arguments += ("--timeout", str(PATIENCE_S))
    done = subprocess.run(
        (*KOHORT, *arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )
    report = f"kohort {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert done.returncode in codes, report
    assert "Traceback" not in done.stderr, report
    return done


def kohort_json(*arguments: str, bootstrap: str) -> Any:
    """Run a command with --json and return the decoded output."""
    return json.loads(kohort(*arguments, "--json", bootstrap=bootstrap).stdout)
