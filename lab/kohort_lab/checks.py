"""The common part of the checks under faults: options, settings of their broker, the wait for the end, and the exit code."""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from kohort_lab.exactly_once import topics
from kohort_lab.kills import Restartable
from kohort_lab.restarted import RestartedProcess
from kohort_lab.served_nodes.as_broker import NodesAsBroker

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
SERVERS: Final = ("kohort", "kafka", "nodes")
POLL_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 300.0

T = TypeVar("T")


class CheckError(Exception):
    """The run could not be completed. The message has the reason."""


class _Verdict(Protocol):
    @property
    def examples(self) -> Sequence[str]: ...


class Outcome(Protocol):
    """The outcome of a run; its text is the report."""

    @property
    def verdict(self) -> _Verdict: ...

    @property
    def is_right(self) -> bool: ...


def new_parser(module: str, description: str, seconds: float) -> argparse.ArgumentParser:
    """The options of every check."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, which does not fail")
    parser.add_argument(
        "--server", choices=SERVERS, default="kohort", help="the broker to start otherwise; nodes: three, on one store"
    )
    parser.add_argument("--seconds", type=float, default=seconds, help="duration of the faults")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of faults")
    parser.add_argument("--directory", type=Path, help="for data and logs, which are kept; default: a temporary one")
    parser.add_argument("--quiet", action="store_true", help="print the result only")
    return parser


def run_check(
    arguments: argparse.Namespace, run: Callable[[Path, random.Random, Callable[[str], None]], Outcome]
) -> int:
    """
    Run a check with its directory, its random choices, and a function that prints a line; print its outcome.

    Returns:
        The exit code: 1 if the outcome is not right, 2 if the run could not be completed.
    """
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)

    def report(line: str) -> None:
        if not arguments.quiet:
            print(line, flush=True)

    kept: Path | None = arguments.directory
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    try:
        with nullcontext(kept) if kept else tempfile.TemporaryDirectory(prefix="kohort-check-") as directory:
            outcome = run(Path(directory), random.Random(seed), report)
    except (CheckError, UnavailableKafkaError) as exc:
        print(exc, file=sys.stderr)
        return 2
    print(outcome)
    print("\n".join(outcome.verdict.examples))
    return int(not outcome.is_right)


def on_broker(
    arguments: argparse.Namespace,
    directory: Path,
    settings: Mapping[str, str],
    run: Callable[[str, Restartable | None], T],
) -> T:
    """
    Run something on the broker that the options name, or on one of our own with these settings, which it may kill.

    Raises:
        UnavailableKafkaError: Apache Kafka cannot be started here.
    """
    if arguments.bootstrap is not None:
        return run(arguments.bootstrap, None)
    if arguments.server == "nodes":
        with NodesAsBroker(directory / "nodes", settings, random.Random(arguments.seed)) as nodes:
            return run(nodes.bootstrap, nodes)
    make: type[KafkaNode | ServedKohort] = KafkaNode if arguments.server == "kafka" else ServedKohort
    with make(directory / arguments.server, settings) as broker:
        return run(broker.bootstrap, broker)


def settle(bootstrap: str, group: str, topic: str, partitions: int, processes: Sequence[RestartedProcess]) -> None:
    """
    Wait until the committed offsets of the group are the ends of the topic, and keep its processes alive meanwhile.

    Raises:
        CheckError: they are not, after `SETTLE_SECONDS`.
    """
    ends = topics.end_offsets(bootstrap, topic, partitions)
    wanted = {partition: end for partition, end in ends.items() if end}
    deadline = time.monotonic() + SETTLE_SECONDS
    while (committed := topics.committed_offsets(bootstrap, group, topic, partitions)) != wanted:
        if time.monotonic() > deadline:
            raise CheckError(f"the group has stopped at {committed}, the topic ends at {ends}")
        for process in processes:
            process.keep_alive()
        time.sleep(POLL_SECONDS)
