"""Comparison of two runs: `python -m bench --compare A.json B.json`, or `make bench-compare A=... B=...`."""

import json
from pathlib import Path
from typing import Any, TypeAlias

from rich import box
from rich.table import Table

Key: TypeAlias = tuple[str, str, str]


class NoResultsError(Exception):
    """A file is not a result of the benchmark."""


def read(path: Path) -> dict[str, Any]:
    """
    Raises:
        NoResultsError: the file cannot be read, or is not a result of the benchmark.
    """
    try:
        run = json.loads(path.read_text())
        if isinstance(run, dict) and "machine" in run and "results" in run:
            return run
    except (OSError, ValueError) as error:
        raise NoResultsError(f"{path} cannot be read: {error}") from error
    raise NoResultsError(f"{path} is not a result file of this benchmark")


def table(first: dict[str, Any], second: dict[str, Any]) -> Table:
    """
    Make a table of the measures in both runs.

    A change counts if the rounds of the two runs do not overlap. Otherwise it may be the machine.
    """
    shown = Table(box=box.SIMPLE_HEAD, title_justify="left", title=f"{_made(first)}  against  {_made(second)}")
    for heading in ("flush", "measure", "server"):
        shown.add_column(heading)
    for heading in ("A requests/s", "B requests/s", "B/A", "A p99 us", "B p99 us", "rounds"):
        shown.add_column(heading, justify="right")
    then, now = _by_key(first), _by_key(second)
    for key in (key for key in then if key in now):
        a, b = then[key], now[key]
        apart = a["per_second_max"] < b["per_second_min"] or b["per_second_max"] < a["per_second_min"]
        shown.add_row(
            *key,
            f"{a['per_second']:,.0f}",
            f"{b['per_second']:,.0f}",
            f"{b['per_second'] / a['per_second']:.2f}",
            f"{a['p99_us']:,.0f}",
            f"{b['p99_us']:,.0f}",
            "apart" if apart else "overlap",
        )
    return shown


def _by_key(run: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    return {
        (it["measure"]["flush"], it["title"], it["rival"]): it["summary"]
        for it in run["results"]
        if not it["measure"]["growth"]
    }


def _made(run: dict[str, Any]) -> str:
    machine = run["machine"]
    return f"{machine['taken_at']} ({(machine['commit'] or '?')[:10]})"
