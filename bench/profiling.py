"""
Where the server's time goes: the server under cProfile while the load runs.

The profiler makes every call of a Python function dearer, native ones less so: read the shares, not the seconds.
"""

import io
import pstats
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench import server
from bench.measures import SETTINGS, Measure, Plan, prepare, take

FUNCTIONS: Final = 40


def profile(measure: Measure, seconds: float) -> str:
    """The functions that took the most time of their own, as a table."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        written = Path(directory) / "profile"
        prefix = [sys.executable, "-m", "cProfile", "-o", str(written)]
        with server.kohort(measure.flush, *SETTINGS, prefix=prefix) as running:
            prepare(running)
            result = take(measure, running, Plan(warm_up_seconds=0.1, round_seconds=seconds, rounds=1))
        told = io.StringIO()
        pstats.Stats(str(written), stream=told).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    return f"{result.summary.per_second:,.0f} requests/s under the profiler\n{told.getvalue()}"
