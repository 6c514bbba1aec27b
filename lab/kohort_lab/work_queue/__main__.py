"""`python -m kohort_lab.work_queue`: a share group under random SIGKILLs. Exit code 1: a record was lost or came again."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from kohort_lab.checks import new_parser, on_broker, run_check
from kohort_lab.kills import Restartable
from kohort_lab.work_queue.torture import SETTINGS, Outcome, Plan, torture

DEFAULT = Plan()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(
        "kohort_lab.work_queue",
        "Kill workers of a share group, and a broker of our own, and check that every record is processed, and none again.",
        DEFAULT.seconds,
    )
    parser.add_argument("--workers", type=int, default=DEFAULT.workers)
    parser.add_argument("--rate", type=int, default=DEFAULT.records_per_second, help="records per second")
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace, directory: Path, rng: Random, report: Callable[[str], None]) -> Outcome:
    """
    Raises:
        CheckError, UnavailableKafkaError, KafkaException: the run could not be completed.
    """
    plan = Plan(seconds=arguments.seconds, workers=arguments.workers, records_per_second=arguments.rate)

    def on(bootstrap: str, broker: Restartable | None) -> Outcome:
        return torture(bootstrap, directory, plan, rng=rng, broker=broker, on_step=report)

    return on_broker(arguments, directory, SETTINGS, on)


def main(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    return run_check(parsed, lambda directory, rng, report: run(parsed, directory, rng, report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
