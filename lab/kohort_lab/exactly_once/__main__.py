"""`python -m kohort_lab.exactly_once`: processors in transactions under random SIGKILLs. Exit code 1: not exactly once."""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from kohort_lab.exactly_once.torture import Outcome, Plan, Restartable, TortureError, torture

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
OWN_SESSION_TIMEOUT_MS = 1_500
DEFAULT = Plan()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kohort_lab.exactly_once",
        description="Kill processors, and a broker of our own, and check that every record is processed exactly once.",
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, which is not killed")
    parser.add_argument("--server", choices=("kohort", "kafka"), default="kohort", help="the broker to start otherwise")
    parser.add_argument("--seconds", type=float, default=DEFAULT.seconds, help="duration of the kills")
    parser.add_argument("--processors", type=int, default=DEFAULT.processors)
    parser.add_argument("--rate", type=int, default=DEFAULT.inputs_per_second, help="inputs per second")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of kills")
    parser.add_argument("--directory", type=Path, help="for data and logs, which are kept; default: a temporary one")
    parser.add_argument("--quiet", action="store_true", help="print the result only")
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace, directory: Path) -> Outcome:
    """
    Raises:
        TortureError, UnavailableKafkaError, KafkaException: the run could not be completed.
    """
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    own = arguments.bootstrap is None
    plan = Plan(
        seconds=arguments.seconds,
        processors=arguments.processors,
        inputs_per_second=arguments.rate,
        session_timeout_ms=OWN_SESSION_TIMEOUT_MS if own else DEFAULT.session_timeout_ms,
    )
    report = (lambda _: None) if arguments.quiet else (lambda line: print(line, flush=True))
    rng = random.Random(seed)
    if not own:
        return torture(arguments.bootstrap, directory, plan, rng=rng, on_step=report)
    with _started(arguments.server, directory) as (bootstrap, broker):
        return torture(bootstrap, directory, plan, rng=rng, broker=broker, on_step=report)


@contextmanager
def _started(server: str, directory: Path) -> Iterator[tuple[str, Restartable]]:
    if server == "kafka":
        with KafkaNode(directory / "kafka", SETTINGS) as node:
            yield node.bootstrap, node
    else:
        with ServedKohort(directory / "kohort", SETTINGS) as served:
            yield served.bootstrap, served


def main(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    try:
        if parsed.directory is not None:
            parsed.directory.mkdir(parents=True, exist_ok=True)
            outcome = run(parsed, parsed.directory)
        else:
            with tempfile.TemporaryDirectory(prefix="kohort-exactly-once-") as name:
                outcome = run(parsed, Path(name))
    except (TortureError, UnavailableKafkaError) as exc:
        print(exc, file=sys.stderr)
        return 2
    print(outcome)
    print("\n".join(outcome.verdict.examples))
    return int(not outcome.is_exactly_once)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
