"""`python -m kohort_lab.exactly_once`: processors in transactions under random SIGKILLs. Exit code 1: not exactly once."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from kohort_lab.checks import SETTINGS, new_parser, on_broker, run_check
from kohort_lab.exactly_once.torture import Outcome, Plan, torture
from kohort_lab.kills import Restartable

OWN_SESSION_TIMEOUT_MS = 1_500
DEFAULT = Plan()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = new_parser(
        "kohort_lab.exactly_once",
        "Kill processors, and a broker of our own, and check that every record is processed exactly once.",
        DEFAULT.seconds,
    )
    parser.add_argument("--processors", type=int, default=DEFAULT.processors)
    parser.add_argument("--rate", type=int, default=DEFAULT.inputs_per_second, help="inputs per second")
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace, directory: Path, rng: Random, report: Callable[[str], None]) -> Outcome:
    """
    Raises:
        CheckError, UnavailableKafkaError, KafkaException: the run could not be completed.
    """
    own = arguments.bootstrap is None
    plan = Plan(
        seconds=arguments.seconds,
        processors=arguments.processors,
        inputs_per_second=arguments.rate,
        session_timeout_ms=OWN_SESSION_TIMEOUT_MS if own else DEFAULT.session_timeout_ms,
    )

    def on(bootstrap: str, broker: Restartable | None) -> Outcome:
        return torture(bootstrap, directory, plan, rng=rng, broker=broker, on_step=report)

    return on_broker(arguments, directory, SETTINGS, on)


def main(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    return run_check(parsed, lambda directory, rng, report: run(parsed, directory, rng, report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
