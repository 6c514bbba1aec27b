"""
`python -m bench`, from the root of the repository: heartbeats and commits per second, their latency, the start, the memory.

The server is one process, the load another, both on this machine: figures are those of a server that shares its processors
with its clients. Needs Linux (epoll).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import profiling, report
from bench.client import RefusedError
from bench.load import LoadError
from bench.measures import MEASURES, Measure, Plan, ceiling, first_answers_ms, idle_resident_mb, measure_all
from bench.server import ServerError

PLAN = Plan()
QUICK = Plan(warm_up_seconds=0.02, round_seconds=0.05, rounds=2, starts=1)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Heartbeats and commits per second.")
    parser.add_argument("--flush", choices=("os", "commit"), help="this flush mode alone")
    parser.add_argument("--only", metavar="NAME", choices=("heartbeat", "commit"), help="this measure alone")
    parser.add_argument("--connections", type=int, metavar="N", help="measures over N connections alone")
    parser.add_argument("--rounds", type=int, default=PLAN.rounds)
    parser.add_argument("--seconds", type=float, default=PLAN.round_seconds, help="length of a round")
    parser.add_argument("--quick", action="store_true", help="see that it runs; the figures mean nothing")
    parser.add_argument("--ceiling", action="store_true", help="only what the load itself can do")
    parser.add_argument("--profile", action="store_true", help="where the server's time goes, for each chosen measure")
    parser.add_argument("--no-start", action="store_true", help="without start and memory")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write DIR/<time>.json too (bench/results is ours)")
    return parser.parse_args(arguments)


def chosen(arguments: argparse.Namespace) -> list[Measure]:
    return [
        measure
        for measure in MEASURES
        if arguments.flush in (None, measure.flush)
        and arguments.only in (None, measure.name)
        and arguments.connections in (None, measure.connections)
    ]


def main() -> int:
    arguments = parse(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else 150)
    plan = QUICK if arguments.quick else Plan(round_seconds=arguments.seconds, rounds=arguments.rounds)
    try:
        if arguments.ceiling:
            console.print(report.table([ceiling(plan), ceiling(plan, 8), ceiling(plan, 1)]))
            return 0
        if arguments.profile:
            for one in chosen(arguments):
                console.print(
                    f"{one.flush}: {one.title()}\n{profiling.profile(one, arguments.seconds)}", highlight=False
                )
            return 0
        measure(console, chosen(arguments), plan, has_start=not arguments.no_start, out=arguments.out)
    except (LoadError, RefusedError, ServerError, ConnectionError) as error:
        console.print(f"[red]{error}[/]", soft_wrap=True)
        return 1
    return 0


def measure(console: Console, measures: list[Measure], plan: Plan, *, has_start: bool, out: Path | None) -> None:
    with console.status("starting") as status:
        results = measure_all(
            measures, plan, lambda done: status.update(f"{done.measure.flush}: {done.measure.title()}")
        )
        status.update("starting again and again")
        taken_ms = first_answers_ms(plan.starts) if has_start else []
        resident_mb = idle_resident_mb() if has_start else None
    console.print(report.table(results))
    if resident_mb is not None:
        report.print_start(console, taken_ms, resident_mb)
    if out is not None:
        console.print(f"written: {report.write(out, plan, results, taken_ms, resident_mb)}")


if __name__ == "__main__":
    raise SystemExit(main())
