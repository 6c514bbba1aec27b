"""
Where the server's time goes: Kohort under a profiler while the load runs.

cProfile is always there, and makes every call of a Python function dearer, native ones less so: read the shares, not the
seconds. py-spy, where it is installed, samples from outside and draws a flame graph.
"""

import io
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Round
from bench.load.requests import prepare
from bench.measures import Measure, load
from bench.servers.rivals import start_kohort

FUNCTIONS: Final = 40
WARM_UP_SECONDS: Final = 0.1


def profile(measure: Measure, seconds: float) -> str:
    """The functions that took the most time of their own, as a table."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name)
        written = directory / "profile"
        prefix = [sys.executable, "-m", "cProfile", "-o", str(written)]
        with start_kohort(measure.flush, directory, prefix=prefix) as running, ExitStack() as opened:
            prepare(running.port)
            drive, _ = load(measure, running.port, opened)
            drive(WARM_UP_SECONDS)
            taken: Round = drive(seconds)
        told = io.StringIO()
        pstats.Stats(str(written), stream=told).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    return f"{taken.per_second:,.0f} requests/s under the profiler\n{told.getvalue()}"


def flame(measure: Measure, seconds: float, picture: Path) -> str | None:
    """
    A flame graph of the server as SVG.

    Returns:
        What was written, as a sentence; None: py-spy is not here.
    """
    spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}") or shutil.which("py-spy")
    if spy is None:
        return None
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name, ExitStack() as opened:
        running = opened.enter_context(start_kohort(measure.flush, Path(name)))
        prepare(running.port)
        drive, _ = load(measure, running.port, opened)
        drive(WARM_UP_SECONDS)
        command = [spy, "record", "--pid", str(running.process.pid), "--output", str(picture), "--rate", "500"]
        sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        drive(seconds)
        sampler.send_signal(signal.SIGINT)
        _, said = sampler.communicate(timeout=60)
    return f"written: {picture}" if picture.exists() else f"py-spy wrote nothing: {said.strip()[-300:]}"
