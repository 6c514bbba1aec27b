"""
`python -m bench`, from the root of the repository: benchmarks of Kohort, Apache Kafka and kfake side by side.

Servers and load generator are processes of one machine and share its processors. Needs Linux (epoll). `docs/benchmarks.md`
describes the measures.
"""

import argparse
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import memory, profiling
from bench.alone import alone
from bench.failures import FAILURES
from bench.figures import SMALL, Scale, figures
from bench.measures import GROWTH, MEASURES, Measure, Plan, Report, ceiling, measure_all
from bench.reporting import compare, page, report
from bench.servers.rivals import RIVALS, Rival, present
from bench.starts import starts

PLAN = Plan()
QUICK = Plan(warm_up_seconds=0.02, warm_up_jit_seconds=0.02, round_seconds=0.05, rounds=2, starts=1, offsets=(100,))
FIGURES = "figures"
ALONE = "alone"
NAMES = (*dict.fromkeys(measure.name for measure in MEASURES), FIGURES, ALONE)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmark Kohort and its rivals side by side."
    )
    names = tuple(rival.name for rival in RIVALS)
    parser.add_argument("--rivals", default=",".join(names), metavar="NAMES", help=f"only these, of {','.join(names)}")
    parser.add_argument("--flush", choices=("memory", "os", "commit"), help="only this flush mode")
    parser.add_argument("--only", metavar="NAME", choices=NAMES, help=f"only this measure: {', '.join(NAMES)}")
    parser.add_argument("--connections", type=int, metavar="N", help="only measures with N connections")
    parser.add_argument("--rounds", type=int, default=PLAN.rounds)
    parser.add_argument("--seconds", type=float, default=PLAN.round_seconds, help="length of a round")
    parser.add_argument("--quick", action="store_true", help="short rounds that only show that it runs")
    parser.add_argument("--ceiling", action="store_true", help="only measure the limit of the load generator")
    parser.add_argument("--profile", action="store_true", help="profile Kohort in each selected measure")
    parser.add_argument(
        "--flame", type=Path, metavar="SVG", help="with --profile: a flame graph of the first selected measure"
    )
    parser.add_argument("--no-start", action="store_true", help="skip start, memory and loading")
    parser.add_argument(
        "--no-figures",
        action="store_true",
        help="skip the figures that are measured once: storms, recovery, memory, runtime, pipeline",
    )
    parser.add_argument("--no-growth", action="store_true", help="skip the measures at 1, 10 and 100 times the size")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write DIR/<time>.json and .html")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="compare two JSON files")
    return parser.parse_args(arguments)


def chosen(arguments: argparse.Namespace) -> list[Measure]:
    return [
        measure
        for measure in (MEASURES if arguments.no_growth else MEASURES + GROWTH)
        if arguments.flush in (None, measure.flush)
        and arguments.only in (None, measure.name)
        and arguments.connections in (None, measure.connections)
    ]


def wants_figures(arguments: argparse.Namespace) -> bool:
    """Tell whether the figures are measured: in a full run, or with --only figures."""
    some = (arguments.only, arguments.flush, arguments.connections)
    return arguments.only == FIGURES or not (arguments.no_figures or any(some))


def wants_alone(arguments: argparse.Namespace) -> bool:
    """Tell whether the measures without rivals run: in a full run, or with --only alone."""
    if arguments.only is not None:
        return bool(arguments.only == ALONE)
    return not (arguments.quick or arguments.no_figures or arguments.flush or arguments.connections)


def main() -> int:
    arguments = parse(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else 170)
    plan = QUICK if arguments.quick else Plan(round_seconds=arguments.seconds, rounds=arguments.rounds)
    try:
        if arguments.compare:
            console.print(compare.table(*(compare.read(path) for path in arguments.compare)))
        elif arguments.ceiling:
            loads = [ceiling(plan, connections) for connections in (64, 8, 1)]
            console.print(report.table([*loads, ceiling(plan, 64, rate=2_000)]))
        elif arguments.profile:
            profile(console, arguments)
        else:
            return run_benchmark(console, arguments, plan)
    except (*FAILURES, compare.NoResultsError) as error:
        console.print(f"[red]{error}[/]", soft_wrap=True)
        return 1
    return 0


def profile(console: Console, arguments: argparse.Namespace) -> None:
    measures = chosen(arguments)
    if arguments.flame is not None:
        message = profiling.flame(measures[0], arguments.seconds, arguments.flame)
        console.print(message or "py-spy is not installed (pip install py-spy); here is a table instead:")
        if message is not None:
            return
        measures = measures[:1]
    for one in measures:
        console.print(f"{one.flush}: {one.title()}\n{profiling.profile(one, arguments.seconds)}", highlight=False)


def run_benchmark(console: Console, arguments: argparse.Namespace, plan: Plan) -> int:
    """Run the measures, print each part when it is done, and write the results. Returns 1 if a measure of Kohort failed."""
    _raise_descriptors()
    # SIGTERM ends the context managers, which stop the servers and remove their directories.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = arguments.rivals.split(",")
    with console.status("preparing rivals") as status:
        rivals: list[Rival] = present(names, lambda name, reason: console.print(f"{name} is skipped: {reason}"))
        if not arguments.quick:
            status.update("using memory once")
            memory.use()
        taken: Report = measure_all(
            chosen(arguments), rivals, plan, lambda measure: status.update(f"{measure.flush}: {measure.title()}")
        )
        main_results = [it for it in taken.results if not it.measure.growth]
        growth = [it for it in taken.results if it.measure.growth]
        for results in (main_results, growth):
            if results:
                console.print(report.table(results, taken.refused))
        started = (
            [] if arguments.no_start or arguments.only in {FIGURES, ALONE} else starts(rivals, plan, status.update)
        )
        if started:
            console.print(report.starts_table(started))
        scale = SMALL if arguments.quick else Scale()
        once = figures(rivals, scale, status.update) if wants_figures(arguments) else []
        if once:
            console.print(report.figures_table(once))
        if wants_alone(arguments):
            lone = alone(status.update)
            console.print(report.figures_table(lone))
            once += lone
    for line in [*report.refusals(taken.refused), *(line for one in started for line in one.refused)]:
        console.print(line, soft_wrap=True, markup=False)
    if arguments.out is not None:
        everything = report.as_json(plan, rivals, taken, started, once)
        console.print(f"written: {report.write(arguments.out, everything, page.render(everything))}", soft_wrap=True)
    lacking = [it.rival for it in taken.refused] + [it.rival for it in once if it.value is None]
    return int(report.OURS in lacking)


def _raise_descriptors() -> None:
    """Raise the limit of open files: 500 members of three rivals are 1,500 connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    raise SystemExit(main())
