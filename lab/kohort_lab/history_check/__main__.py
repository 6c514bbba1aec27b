"""`python -m kohort_lab.history_check`: clients of every library under faults. Exit code 1: a record or commit was lost."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from kohort.testing.kafka import KafkaNode
from kohort.testing.served import ServedKohort
from kohort_lab import checks
from kohort_lab.bounded import mount_bounded, unmount
from kohort_lab.history_check.members import PROTOCOLS
from kohort_lab.history_check.run import Outcome, Plan, check
from kohort_lab.served_nodes.as_broker import NodesAsBroker

SETTINGS: Final = {
    **checks.SETTINGS,
    "group.consumer.min.session.timeout.ms": "1500",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "150",
    "group.consumer.heartbeat.interval.ms": "150",
}
"""Sessions are as short as those of `Plan`."""
ROOM_MIB: Final = 192
"""Of the file system of the data. The two files of the journal take 64 MiB."""
DEFAULT: Final = Plan()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = checks.new_parser(
        "kohort_lab.history_check",
        "Let clients write, read and commit under faults, and check that nothing is lost, twice or out of order.",
        DEFAULT.seconds,
    )
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default=DEFAULT.protocol, help="the group protocol; migration: both"
    )
    parser.add_argument(
        "--calm", action="store_true", help="no faults; members are replaced all the same in a migration"
    )
    parser.add_argument("--members", type=int, default=DEFAULT.members)
    parser.add_argument("--rate", type=int, default=DEFAULT.records_per_second, help="records per second")
    return parser.parse_args(arguments)


def run(arguments: argparse.Namespace, directory: Path, rng: Random, report: Callable[[str], None]) -> Outcome:
    """
    Raises:
        CheckError, UnavailableKafkaError, KafkaException: the run could not be completed.
    """
    plan = Plan(
        seconds=arguments.seconds,
        protocol=arguments.protocol,
        has_faults=not arguments.calm,
        members=arguments.members,
        records_per_second=arguments.rate,
    )
    if arguments.bootstrap is not None:
        return check(arguments.bootstrap, directory, plan, rng=rng, on_step=report)
    if arguments.server == "kafka":
        with KafkaNode(directory / "kafka", SETTINGS) as node:
            return check(node.bootstrap, directory, plan, rng=rng, on_step=report)
    if arguments.server == "nodes":
        with NodesAsBroker(directory / "nodes", SETTINGS, rng) as nodes:
            return check(nodes.bootstrap, directory, plan, rng=rng, broker=nodes, on_step=report)
    with served(directory / "kohort") as (broker, is_bounded):
        if not is_bounded:
            report("no file system can be mounted here: the disk does not become full")
        return check(broker.bootstrap, directory, plan, rng=rng, broker=broker, is_bounded=is_bounded, on_step=report)


@contextmanager
def served(directory: Path) -> Iterator[tuple[ServedKohort, bool]]:
    """A Kohort, and whether its data directory is a small file system of its own."""
    data_dir = directory / "data"
    is_bounded = mount_bounded(data_dir, ROOM_MIB)
    try:
        with ServedKohort(directory, SETTINGS) as broker:
            yield broker, is_bounded
    finally:
        if is_bounded:
            unmount(data_dir)


def main(arguments: Sequence[str]) -> int:
    parsed = parse(arguments)
    return checks.run_check(parsed, lambda directory, rng, report: run(parsed, directory, rng, report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
