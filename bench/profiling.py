"""
Profile Kohort under load.

cProfile slows down calls of Python functions more than native calls, so compare shares, not seconds. py-spy, if installed,
samples from outside and draws a flame graph.
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
    """Return a table of the functions with the most own time."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name)
        written = directory / "profile"
        prefix = [sys.executable, "-m", "cProfile", "-o", str(written)]
        with start_kohort(measure.flush, directory, prefix=prefix) as running, ExitStack() as opened:
            prepare(running.port)
            drive, _ = load(measure, running.port, opened)
            drive(WARM_UP_SECONDS)
            taken: Round = drive(seconds)
        table = io.StringIO()
        pstats.Stats(str(written), stream=table).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    return f"{taken.per_second:,.0f} requests/s under the profiler\n{table.getvalue()}"


def flame(measure: Measure, seconds: float, picture: Path) -> str | None:
    """
    Draw a flame graph of the server as SVG.

    Returns:
        A sentence about the result; None if py-spy is not installed.
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
        _, output = sampler.communicate(timeout=60)
    return f"written: {picture}" if picture.exists() else f"py-spy wrote nothing: {output.strip()[-300:]}"
