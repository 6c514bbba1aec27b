"""
`python -m kohort_lab.conformance live|replay|record|oracle`: Kohort compared with Apache Kafka.

- `live` runs all scenarios on a new Kohort and on a new Apache Kafka, and prints every difference. Without Java or Maven, the
  recording stands in for Apache Kafka.
- `replay` compares Kohort with the recording.
- `record` makes the recording, in several runs of Apache Kafka. A scenario whose outcome differs between them is left out by
  name.
- `oracle` compares Apache Kafka with the recording, which shows that the recording is true.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from kohort.cli.output import print_table
from kohort.model.errors import ConfigError
from kohort.testing.kafka import RELEASE, UnavailableKafkaError
from kohort_lab.conformance import card, coverage, library
from kohort_lab.conformance.comparison_run import Report
from kohort_lab.conformance.own_brokers import (
    live,
    merge,
    record,
    reference,
    replay,
    replay_oracle,
    unused_rules,
)
from kohort_lab.conformance.recording import load, save
from kohort_lab.conformance.scenarios.scenario import Scenario

CARD = Path("build") / "conformance.html"


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kohort_lab.conformance",
        description="Compare Kohort with Apache Kafka, scenario by scenario.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        default="live",
        choices=("live", "replay", "record", "oracle"),
        help="live: start both and run the scenarios on both (default); replay: compare Kohort with the recording; "
        "record: make the recording, or record the named scenarios anew; oracle: compare Apache Kafka with the recording",
    )
    parser.add_argument("names", nargs="*", help="scenarios whose names begin with this; default: all")
    parser.add_argument(
        "--kafka",
        default=RELEASE,
        metavar="RELEASE",
        type=_release,
        help=f"the release of Apache Kafka, which has a recording of its own, and which Kohort is like; default: {RELEASE}",
    )
    return parser.parse_intermixed_args(arguments)


def _release(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no release such as {RELEASE}")
    return text


def main(arguments: Sequence[str]) -> int:
    """
    Run the command. The exit code is 1 if there are differences, or rules of `deliberate.toml` without a difference.

    Raises:
        ConfigError: no scenario has such a name, or `oracle` has no Java or Maven.
    """
    parsed = _arguments(arguments)
    command, names, release = parsed.command, parsed.names, parsed.kafka
    scenarios = [
        each
        for each in library.scenarios_of(release, library.home())
        if not names or each.name.startswith(tuple(names))
    ]
    if not scenarios:
        raise ConfigError(f"no scenario begins with {' or '.join(names)}; `kohort-lab conformance --list` names them.")
    if command == "record":
        _record(scenarios, release, is_partial=bool(names))
        return 0
    result = _report(command, scenarios, release)
    rules = [] if command == "oracle" else unused_rules(result, release)
    for difference in result.differences:
        print(difference)
    for rule in rules:
        print(f"conformance/deliberate.toml: no difference matches {rule}")
    CARD.parent.mkdir(exist_ok=True)
    CARD.write_text(card.html(result))
    print_table(coverage.COLUMNS, [each.as_dict() for each in coverage.by_api(result)])
    for subject in coverage.by_subject(result):
        print(coverage.sentence(subject))
    print(f"{result.reference}: {card.summary(result)}; see {CARD}")
    return 1 if result.differences or rules else 0


def _record(scenarios: Sequence[Scenario], release: str, *, is_partial: bool) -> None:
    path = library.recording_path(release)
    try:
        recording = record(scenarios, release)
    except UnavailableKafkaError as exc:
        raise ConfigError(str(exc)) from exc
    if is_partial and path.exists():
        recording = merge(load(path), recording, {each.name for each in library.scenarios_of(release, library.home())})
    save(recording, path)
    print(f"{path}: {len(recording.outcomes)} scenarios, {path.stat().st_size >> 10} KiB")
    print(f"different between runs: {', '.join(recording.unstable) or 'none'}")


def _report(command: str, scenarios: Sequence[Scenario], release: str) -> Report:
    if command == "replay":
        return replay(scenarios, release)
    try:
        return live(scenarios, release) if command == "live" else replay_oracle(scenarios, release)
    except UnavailableKafkaError as exc:
        if command == "oracle":
            raise ConfigError(str(exc)) from exc
        print(f"{reference(release)} cannot be started, its recording stands in: {exc}", flush=True)
        return replay(scenarios, release)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
