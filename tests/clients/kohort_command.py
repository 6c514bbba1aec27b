"""
The command `kohort` as a client. Most commands run in this process: an interpreter and its imports take a third of a second,
and `tests/cli` tests them.
"""

import io
import json
import os
import subprocess
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from kohort.cli.main import run
from kohort.testing.process import KOHORT
from tests.clients.waiting import PATIENCE_S

PROCESSES = ("serve", "pipeline")
"""Commands that run as processes: they set up the process in which they run."""


def kohort(
    *arguments: str, bootstrap: str | None = None, codes: Sequence[int] = (0,)
) -> "subprocess.CompletedProcess[str]":
    """Run a command against a broker; its exit code must be one of `codes`, and no traceback may show."""
    environment = dict(os.environ)
    if bootstrap is not None:
        environment["KOHORT_BOOTSTRAP"] = bootstrap
        arguments += ("--timeout", str(PATIENCE_S))
    if arguments[0] in PROCESSES:
        done = subprocess.run(
            (*KOHORT, *arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
        )
    else:
        done = _run_here(arguments, environment)
    report = f"kohort {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert done.returncode in codes, report
    assert "Traceback" not in done.stderr, report
    return done


def _run_here(arguments: Sequence[str], environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, environment):
        try:
            code = run(list(arguments))
        except Exception:  # noqa: BLE001 -- what ends a process with a traceback
            traceback.print_exc()
            code = 1
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return subprocess.CompletedProcess(arguments, code, *texts)


def kohort_json(*arguments: str, bootstrap: str) -> Any:
    """Run a command with --json and return the decoded output."""
    return json.loads(kohort(*arguments, "--json", bootstrap=bootstrap).stdout)
