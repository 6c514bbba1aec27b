"""
Ask both brokers the same, print each difference, and the number of decisions. The exit code is 1 if there was a difference.

    python -m kohort_lab.authorization --decisions 20000 --seed 7
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

from kohort.testing.kafka import KafkaNode
from kohort.testing.served import ServedKohort
from kohort_lab.authorization.brokers import AskedBroker, AskedOverSockets
from kohort_lab.authorization.questions import comparable, questions
from kohort_lab.authorization.rules import ADDRESSES, USERS, random_acls

_SHOWN_MAX = 20


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; an error is told with the usage, and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m kohort_lab.authorization", description=__doc__.splitlines()[1])
    parser.add_argument("--decisions", type=int, default=20_000, help="operations on resources to ask for, at least")
    parser.add_argument("--seed", type=int, default=None, help="of the sets of ACLs")
    return parser.parse_args(arguments)


def compare(kafka: AskedBroker, kohort: AskedBroker, rng: Random, decisions: int) -> tuple[Counter[str], list[str]]:
    """Ask both; the number of decisions, answers and sets of ACLs, and the differences."""
    counts: Counter[str] = Counter()
    differences: list[str] = []
    while counts["decisions"] < decisions:
        acls = random_acls(rng)
        counts["sets of ACLs"] += 1
        for broker in (kafka, kohort):
            broker.replace_acls(acls)
        for user in USERS:
            for address in ADDRESSES:
                for question in questions():
                    theirs, ours = (comparable(each.ask(user, address, question)) for each in (kafka, kohort))
                    counts["decisions"] += question.decisions
                    counts["answers"] += 1
                    if theirs != ours:
                        rules = "\n    ".join(map(str, acls))
                        differences.append(
                            f"{user} at {address}: {question.name}\n  Kafka:  {theirs}\n  Kohort: {ours}\n    {rules}"
                        )
    return counts, differences


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        kafka = AskedOverSockets(partial(KafkaNode, Path(directory) / "kafka"))
        stack.callback(kafka.close)
        kohort = AskedOverSockets(partial(ServedKohort, Path(directory) / "kohort"))
        stack.callback(kohort.close)
        for broker in (kafka, kohort):
            broker.prepare()
        counts, differences = compare(kafka, kohort, Random(seed), options.decisions)
    for difference in differences[:_SHOWN_MAX]:
        print(difference)
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{told}; {len(differences)} answers differ")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
