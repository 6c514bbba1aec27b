"""What was measured, for people and for files."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measures import RESIDENT_GOAL_MB, START_GOAL_MS, Plan, Result


def table(results: Sequence[Result]) -> Table:
    """
    One line a measure.

    "load cpu" near 1 means that the load may be what was measured; "us/request" is processor time of the server per request.
    """
    shown = Table(box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("flush")
    shown.add_column("measure")
    for heading in (
        "requests/s",
        "slowest",
        "fastest",
        "goal",
        "p50 us",
        "p99 us",
        "server cpu",
        "us/request",
        "load cpu",
    ):
        shown.add_column(heading, justify="right")
    previous = ""
    for result in results:
        summary, measure = result.summary, result.measure
        if previous not in ("", measure.flush):
            shown.add_section()
        shown.add_row(
            measure.flush if measure.flush != previous else "",
            measure.title(),
            f"{summary.per_second:,.0f}",
            f"{summary.per_second_min:,.0f}",
            f"{summary.per_second_max:,.0f}",
            f"{measure.goal:,}" if measure.goal else "",
            f"{summary.p50_us:,.0f}",
            f"{summary.p99_us:,.0f}",
            f"{result.server_cpu:.2f}",
            f"{result.server_us:.1f}",
            f"{summary.load_cpu:.2f}",
        )
        previous = measure.flush
    return shown


def print_start(console: Console, first_answers_ms: Sequence[float], resident_mb: tuple[float, float]) -> None:
    ordered = sorted(first_answers_ms)
    middle = ordered[len(ordered) // 2]
    console.print(
        f"first answer {middle:.0f} ms after exec (goal {START_GOAL_MS}; {len(ordered)} starts,"
        f" {ordered[0]:.0f} to {ordered[-1]:.0f})"
    )
    console.print(
        f"resident when idle {resident_mb[0]:.0f} MB (goal {RESIDENT_GOAL_MB}), with 64 connections {resident_mb[1]:.0f} MB"
    )


def machine() -> dict[str, Any]:
    """What a figure needs beside it to mean anything."""
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": os.cpu_count(),
    }


def write(
    directory: Path,
    plan: Plan,
    results: Sequence[Result],
    first_answers_ms: Sequence[float],
    resident_mb: tuple[float, float] | None,
) -> Path:
    """One JSON file, named by the second at which it was written."""
    told = {
        "machine": machine(),
        "plan": asdict(plan),
        "results": [asdict(result) for result in results],
        "first_answers_ms": list(first_answers_ms),
        "idle_resident_mb": resident_mb,
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    path.write_text(json.dumps(told, indent=2) + "\n")
    return path
