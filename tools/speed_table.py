"""
Write the figures of a run of `make bench` into the tables of docs/benchmarks.md and README.md:
`python tools/speed_table.py RESULT.json`.

Rows of measures that the run does not have stay as they are: those of `--only figures`, and of `bench.consumer_groups`.
README has some of the rows. `tools/speed_chart.py` draws its chart from the table of docs/benchmarks.md.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
SERVERS: Final = ("kohort", "kafka", "kfake")


class Part(NamedTuple):
    """
    Some figures of a row.

    Attributes:
        measure: its title up to the number of connections.
        connections: each one is a figure; empty for a measure without a number in its title.
        flush: the mode of the servers; `commit` is called flushed in the table.
        is_bytes: a figure is megabytes a second, in place of requests.
    """

    measure: str
    flush: str
    connections: tuple[int, ...]
    is_bytes: bool = False


ROWS: Final = {
    "heartbeats, 64 connections": [Part("heartbeat", "os", (64,))],
    "heartbeats of consumer groups (KIP-848), 64 connections": [Part("consumer heartbeat", "os", (64,))],
    "commits flushed, 1 / 8 / 64 connections": [Part("commit", "commit", (1, 8, 64))],
    "commits `os`, 1 / 8 / 64 connections": [Part("commit", "os", (1, 8, 64))],
    "commits in memory, 1 / 8 / 64 connections": [Part("commit", "memory", (1, 8, 64))],
    "commits of 100 partitions, 64 connections, flushed / `os`": [
        Part("commit of 100 partitions", flush, (64,)) for flush in ("commit", "os")
    ],
    "transactions of one record with confluent-kafka, 1 / 8 / 32 producers, flushed": [
        Part("transactions", "commit", (1, 8, 32))
    ],
    "the same, `os`": [Part("transactions", "os", (1, 8, 32))],
    "the same, in memory": [Part("transactions", "memory", (1, 8, 32))],
    "fetches of offsets, 64 connections": [Part("offset fetch", "os", (64,))],
    "fetches of the offsets of 100 partitions, 8 connections": [Part("offset fetch of 100 partitions", "os", (8,))],
    "joins and syncs of 64 members that rebalance, `os`": [Part("rebalance of 64 members", "os", ())],
    "produce in 16 KB batches, acks=all, flushed / `os`": [
        Part("produce", flush, (8,), is_bytes=True) for flush in ("commit", "os")
    ],
    "the same, 8 partitions a request, flushed / `os`": [
        Part("produce of 8 partitions", flush, (8,), is_bytes=True) for flush in ("commit", "os")
    ],
    "fetch from the page cache": [Part("fetch", "os", (8,), is_bytes=True)],
}
"""The figures of the rows, by their first cells."""
STARTS: Final = "first answer after start; resident idle"


def rounded(figure: float) -> str:
    """Three digits, with commas: 40_144 is 40,100."""
    return f"{round(figure, 3 - len(str(int(figure)))) if figure >= 1_000 else figure:,.0f}"


def cells(result: Any) -> dict[str, list[str]]:
    """The cells of the servers, by row, of a result of `python -m bench --out DIR`."""
    found = {(each["rival"], each["title"], each["measure"]["flush"]): each for each in result["results"]}
    rows = {}
    for name, parts in ROWS.items():
        row = []
        for server in SERVERS:
            figures = [
                rounded(each["summary"]["per_second"] * (each["request_bytes"] / 1e6 if part.is_bytes else 1))
                for part in parts
                for number in part.connections or (0,)
                if (each := found.get((server, _title(part, number), part.flush))) is not None
            ]
            row.append(" / ".join(figures) + (" MB/s" if figures and parts[0].is_bytes else "") or "-")
        if any(cell != "-" for cell in row):
            rows[name] = row
    starts = {each["rival"]: each for each in result["starts"]}
    if starts:
        rows[STARTS] = [_start(starts.get(server)) for server in SERVERS]
    return rows


def _title(part: Part, number: int) -> str:
    if not number:
        return part.measure
    noun = "producer" if part.measure == "transactions" else "connection"
    return f"{part.measure}, {number} {noun}{'' if number == 1 else 's'}"


def _start(start: Any) -> str:
    if start is None:
        return "-"
    return f"{rounded(statistics.median(start['first_answers_ms']))} ms; {start['idle_mb']:.0f} MB"


def updated(page: str, rows: dict[str, list[str]]) -> str:
    """
    The page with these rows.

    Raises:
        ValueError: the table has no such row.
    """
    lines = page.splitlines()
    for name, row in rows.items():
        places = [number for number, line in enumerate(lines) if line.startswith(f"| {name} |")]
        if not places:
            raise ValueError(f"the table has no row {name!r}")
        lines[places[0]] = f"| {' | '.join([name, *row])} |"
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="JSON of `python -m bench --out DIR`")
    rows = cells(json.loads(parser.parse_args().result.read_text()))
    PAGE.write_text(updated(PAGE.read_text(), rows))
    short = README.read_text()
    README.write_text(updated(short, {name: row for name, row in rows.items() if f"\n| {name} |" in short}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
