"""Results as tables and as JSON."""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich import box
from rich.table import Table

from bench.figures import Figure
from bench.measures import Measure, Plan, Refused, Report, Result
from bench.servers.rivals import Rival
from bench.starts import RESIDENT_GOAL_MB, START_GOAL_MS, Start
from kohort.compiled import is_compiled

OURS = "kohort"
_HEADINGS = ("per s", "slowest", "fastest", "times", "p50 us", "p99 us", "MB/s", "cpu", "us each", "load")


def table(results: Sequence[Result], refused: Sequence[Refused] = ()) -> Table:
    """
    Make a table with a row for each measure and rival; "n/a" if the measure failed.

    "times" is Kohort's rate over the rival's, or in an open loop the rival's p99 over Kohort's: above 1, Kohort is better.
    "cpu" is the number of processors that the server used, "us each" its processor time per request. "load" is the processor
    share of the load generator: near 1, the generator may be the limit.
    """
    shown = Table(box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("flush", "measure", "server"):
        shown.add_column(heading)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right")
    previous: Measure | None = None
    for result in results:
        measure = result.measure
        is_new = measure != previous
        if previous is not None and previous.flush != measure.flush:
            shown.add_section()
        flush = measure.flush if previous is None or previous.flush != measure.flush else ""
        shown.add_row(flush, measure.title() if is_new else "", result.rival, *_figures(result, results))
        previous = measure
        if result is next(it for it in reversed(results) if it.measure == measure):
            for one in (it for it in refused if it.measure == measure):
                shown.add_row("", "", one.rival, "n/a")
    return shown


def _figures(result: Result, results: Sequence[Result]) -> tuple[str, ...]:
    summary = result.summary
    times = ratio(result, results)
    return (
        f"{summary.per_second:,.0f}",
        f"{summary.per_second_min:,.0f}",
        f"{summary.per_second_max:,.0f}",
        "" if times is None else f"{times:.2f}",
        f"{summary.p50_us:,.0f}",
        f"{summary.p99_us:,.0f}",
        f"{result.mb_per_second:,.0f}" if result.measure.name in ("produce", "fetch") else "",
        f"{result.server_cpu:.2f}",
        f"{result.server_us:.1f}",
        f"{summary.load_cpu:.2f}",
    )


def ratio(result: Result, results: Sequence[Result]) -> float | None:
    """Return Kohort's advantage in the same measure; None for Kohort itself, or without a result of Kohort."""
    ours = next((it for it in results if it.rival == OURS and it.measure == result.measure), None)
    if ours is None or result.rival == OURS:
        return None
    if result.measure.rate is not None:
        return result.summary.p99_us / ours.summary.p99_us
    return ours.summary.per_second / result.summary.per_second


def starts_table(starts: Sequence[Start]) -> Table:
    """Make a table with a row for each rival."""
    shown = Table(box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("server")
    offsets = sorted({count for one in starts for count in one.loads_ms})
    headings = ("first answer ms", "fastest", "slowest", "idle MB", "64 connections MB")
    for heading in (*headings, *(f"{count:,} offsets ms" for count in offsets)):
        shown.add_column(heading, justify="right")
    for one in starts:
        times = one.first_answers_ms
        if not times:
            shown.add_row(one.rival, "n/a")
            continue
        figures = (median(times), min(times), max(times), one.idle_mb, one.connected_mb)
        loads = (f"{one.loads_ms[count]:,.0f}" if count in one.loads_ms else "refused" for count in offsets)
        shown.add_row(one.rival, *(f"{figure:,.0f}" for figure in figures), *loads)
    shown.caption = (
        f"Goals for Kohort: first answer within {START_GOAL_MS} ms, {RESIDENT_GOAL_MB} MB idle. Offsets: from exec to a"
        " committed offset, with this many offsets in one coordinator partition."
    )
    return shown


def figures_table(figures: Sequence[Figure]) -> Table:
    """Make a table with a row for each figure and a column for each rival."""
    rivals = list(dict.fromkeys(it.rival for it in figures if it.rival))
    shown = Table(box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("taken once")
    for heading in ("unit", "goal", "machine or plain", *rivals):
        shown.add_column(heading, justify="right")
    for name in dict.fromkeys(it.name for it in figures):
        of_name = {it.rival: it for it in figures if it.name == name}
        one = next(iter(of_name.values()))
        goal = f"{one.goal:,.0f}" if one.goal else ""
        cells = [figure_text(of_name.get(rival)) for rival in ("", *rivals)]
        shown.add_row(name, next((it.unit for it in of_name.values() if it.unit), ""), goal, *cells)
    return shown


def figure_text(figure: Figure | None) -> str:
    """Format a figure with three digits, the reason of a failure, or an empty cell."""
    if figure is None:
        return ""
    if figure.value is None:
        return f"n/a ({figure.reason})"
    return f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}"


def refusals(refused: Sequence[Refused]) -> list[str]:
    """Return a sentence for each measure that failed."""
    return [f"{it.rival} failed in {it.measure.flush}: {it.measure.title()}: {it.reason}" for it in refused]


def machine() -> dict[str, Any]:
    """Describe the machine and the time of the run."""
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "compiled": is_compiled(),
        "java": _first_line("java", "-version"),
        "go": _first_line("go", "version"),
        "uvloop": version("uvloop"),
        "commit": _first_line("git", "rev-parse", "HEAD"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((it.partition(":")[2].strip() for it in lines if it.startswith("model name")), platform.machine())


def _first_line(*command: str) -> str | None:
    """Return the first line of a program's output; None if it is not installed."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return next(iter((done.stdout + done.stderr).splitlines()), None)


def as_json(
    plan: Plan, rivals: Sequence[Rival], report: Report, starts: Sequence[Start], figures: Sequence[Figure] = ()
) -> dict[str, Any]:
    """Return the whole run for the JSON file."""
    return {
        "machine": machine(),
        "versions": {rival.name: rival.version() for rival in rivals},
        "plan": asdict(plan),
        "results": [
            asdict(it) | {"title": it.measure.title(), "times": ratio(it, report.results)} for it in report.results
        ],
        "refused": [asdict(it) | {"title": it.measure.title()} for it in report.refused],
        "starts": [asdict(it) for it in starts],
        "figures": [asdict(it) for it in figures],
    }


def write(directory: Path, everything: dict[str, Any], page: str) -> Path:
    """Write a JSON file named by the current time, and the HTML page beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    path.write_text(json.dumps(everything, indent=2) + "\n")
    path.with_suffix(".html").write_text(page)
    return path
