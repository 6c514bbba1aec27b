"""
`python -m kohort.testing.conformance live|replay|record|oracle`: Kohort compared with Apache Kafka.

- `live` runs all scenarios on a new Kohort and on a new Apache Kafka, and prints every difference. Without Java or Maven, the
  recording stands in for Apache Kafka.
- `replay` compares Kohort with the recording.
- `record` makes the recording, in several runs of Apache Kafka. A scenario whose outcome differs between them is left out by
  name.
- `oracle` compares Apache Kafka with the recording, which shows that the recording is true.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

from kohort.cli.output import print_table
from kohort.conformance import card, coverage, library
from kohort.conformance.brokers.cluster import Cluster
from kohort.conformance.compare import compare
from kohort.conformance.comparison_run import CONCURRENT_AGAIN, Recorded, Report, Target, compare_brokers, joined
from kohort.conformance.deliberate import Deliberate, unused
from kohort.conformance.outcome import Outcome
from kohort.conformance.recording import Recording, load, save
from kohort.conformance.scenarios.scenario import Scenario
from kohort.conformance.scenarios.scenario_run import Restart
from kohort.model.errors import ConfigError
from kohort.testing.kafka import RELEASE, KafkaNode, UnavailableKafkaError
from kohort.testing.served import KOHORT, ServedKohort

ROUNDS = 3
"""Runs of each scenario in a recording. A scenario with different outcomes gets as many runs again."""

ORACLE_CONCURRENT = 16
KOHORT_CONCURRENT = 48
REFERENCE = f"Apache Kafka {RELEASE}"
_EXPECTED = (r"shard\.out_of_sync partition=__transaction_state-",)
"""Log entries of Kohort that are no failure: scenarios write to this topic as `__admin_client`."""
CARD = Path("build") / "conformance.html"


def replay_oracle(scenarios: Sequence[Scenario]) -> Report:
    """Compare Apache Kafka with its recording. Raises UnavailableKafkaError."""
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [scenario for scenario in scenarios if scenario.name in reference.outcomes]
    reports = []
    for name, group in library.by_broker(known).items():
        with _oracle(name) as node:
            reports.append(asyncio.run(_compare(node, None, reference, group)))
    return joined(reports)


def replay(scenarios: Sequence[Scenario], *, command: Sequence[str] = KOHORT) -> Report:
    """
    Compare Kohort with the recording. Kohort does not flush, so a slow disk does not delay its answers.

    Args:
        command: the command line of `kohort`.
    """
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [scenario for scenario in scenarios if scenario.name in reference.outcomes]
    reports = []
    for name, group in library.by_broker(known).items():
        with _kohort(name, command, flush="os") as broker:
            reports.append(asyncio.run(_compare(broker, None, reference, group)))
    return joined(reports)


def live(scenarios: Sequence[Scenario]) -> Report:
    """Compare Kohort with Apache Kafka, both started here. Raises UnavailableKafkaError."""
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [scenario for scenario in scenarios if scenario.name not in reference.unstable]
    reports = []
    for name, group in library.by_broker(known).items():
        with _oracle(name) as node, _kohort(name) as broker:
            reports.append(asyncio.run(_compare(broker, node, reference, group)))
    return joined(reports)


def unused_rules(report: Report) -> list[Deliberate]:
    """The rules of `deliberate.toml` that match no difference although all of their scenarios were compared."""
    home = library.home()
    recording = load(home / "recorded" / library.RECORDED)
    known = [each.name for each in library.all_scenarios(home) if each.name not in recording.unstable]
    return unused(library.deliberate_differences(home), report.comparisons, known)


async def _compare(
    broker: ServedKohort | KafkaNode, node: KafkaNode | None, recording: Recording, scenarios: Sequence[Scenario]
) -> Report:
    is_ours = isinstance(broker, ServedKohort)
    ours = await Cluster.connect("127.0.0.1", broker.port, _restarting(broker))
    theirs: Target = Recorded(recording.outcomes)
    if node is not None:
        theirs = await Cluster.connect("127.0.0.1", node.port, _restarting(node))
    try:
        return await compare_brokers(
            ours,
            theirs,
            scenarios,
            broker="Kohort" if is_ours else REFERENCE,
            reference=REFERENCE if node else f"a recording of {recording.broker}",
            deliberate=library.deliberate_differences(library.home()) if is_ours else (),
            concurrent=KOHORT_CONCURRENT if is_ours else ORACLE_CONCURRENT,
            concurrent_reference=ORACLE_CONCURRENT,
        )
    finally:
        ours.close()
        if isinstance(theirs, Cluster):
            theirs.close()


def _restarting(broker: ServedKohort | KafkaNode) -> Restart:
    """A function that restarts the broker at the same port, without blocking the event loop."""

    async def restart() -> None:
        if isinstance(broker, ServedKohort) and not broker.is_running:
            broker.kill()  # a scenario ended the process, which is reported; stop() would raise for the exit code
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)

    return restart


@contextmanager
def _kohort(name: str, command: Sequence[str] = KOHORT, flush: str = "commit") -> Iterator[ServedKohort]:
    properties, levels = _properties(name)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedKohort(
            Path(directory), properties, command=command, flush=flush, features=levels, expected=_EXPECTED
        ) as broker,
    ):
        yield broker


def record(scenarios: Sequence[Scenario]) -> Recording:
    """
    Run scenarios several times on Apache Kafka and record the outcomes that are the same every time. Scenarios with different
    outcomes are run again with less concurrency.
    """
    outcomes: dict[str, Outcome] = {}
    for name, group in library.by_broker(scenarios).items():
        outcomes |= _recorded(name, group)
    unstable = [scenario.name for scenario in scenarios if scenario.name not in outcomes]
    return Recording(broker=REFERENCE, settings=library.SETTINGS, unstable=unstable, outcomes=outcomes)


def _recorded(name: str, scenarios: Sequence[Scenario]) -> dict[str, Outcome]:
    """The outcomes of scenarios of one broker that are the same in every run."""
    outcomes: dict[str, Outcome] = {}
    waiting = list(scenarios)
    with _oracle(name) as node:
        for concurrent in (ORACLE_CONCURRENT, CONCURRENT_AGAIN):
            runs = [_run(node, waiting, concurrent) for _ in range(ROUNDS)]
            outcomes |= {
                scenario.name: runs[0][scenario.name]
                for scenario in waiting
                if _is_stable(scenario, [run[scenario.name] for run in runs])
            }
            waiting = [scenario for scenario in waiting if scenario.name not in outcomes]
            if not waiting:
                break
    return outcomes


def _run(node: KafkaNode, scenarios: Sequence[Scenario], concurrent: int) -> dict[str, Outcome]:
    async def run() -> dict[str, Outcome]:
        cluster = await Cluster.connect("127.0.0.1", node.port, _restarting(node))
        try:
            return await cluster.run(scenarios, concurrent=concurrent)
        finally:
            cluster.close()

    began_s = time.monotonic()
    outcomes = asyncio.run(run())
    print(f"{len(scenarios)} scenarios in {time.monotonic() - began_s:.0f} s", flush=True)
    return outcomes


def merge(old: Recording, new: Recording, known: AbstractSet[str]) -> Recording:
    """The old recording with the scenarios of the new one replaced, and without those that are not known any more."""
    kept = known - {*new.unstable, *new.outcomes}
    return Recording(
        broker=new.broker,
        settings=new.settings,
        unstable=sorted({*(name for name in old.unstable if name in kept), *new.unstable}),
        outcomes={name: outcome for name, outcome in old.outcomes.items() if name in kept} | new.outcomes,
    )


def _is_stable(scenario: Scenario, outcomes: Sequence[Outcome]) -> bool:
    return not any(compare(scenario, other, outcomes[0]).differences for other in outcomes[1:])


@contextmanager
def _oracle(name: str) -> Iterator[KafkaNode]:
    properties, levels = _properties(name)
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaNode(Path(directory), properties, features=levels) as node,
    ):
        try:
            yield node
        except BaseException:
            print(f"The end of its log:\n{node.log_tail()}", file=sys.stderr)
            raise


def _properties(name: str) -> tuple[dict[str, str], dict[str, int]]:
    """The configurations and the levels of features of a broker of `library.BROKERS`."""
    properties = library.settings(name) | library.NO_LOG_TASKS
    levels = {key: int(properties.pop(key)) for key in library.FEATURES & properties.keys()}
    return properties, levels


def _arguments(arguments: Sequence[str]) -> tuple[str, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m kohort.testing.conformance",
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
    parsed = parser.parse_args(arguments)
    return parsed.command, parsed.names


def main(arguments: Sequence[str]) -> int:
    """
    Run the command. The exit code is 1 if there are differences, or rules of `deliberate.toml` without a difference.

    Raises:
        ConfigError: no scenario has such a name, or `oracle` has no Java or Maven.
    """
    command, names = _arguments(arguments)
    scenarios = [
        each for each in library.all_scenarios(library.home()) if not names or each.name.startswith(tuple(names))
    ]
    if not scenarios:
        raise ConfigError(f"no scenario begins with {' or '.join(names)}; `kohort conformance --list` names them.")
    if command == "record":
        _record(scenarios, is_partial=bool(names))
        return 0
    result = _report(command, scenarios)
    rules = [] if command == "oracle" else unused_rules(result)
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


def _record(scenarios: Sequence[Scenario], *, is_partial: bool) -> None:
    recording = record(scenarios)
    path = library.home() / "recorded" / library.RECORDED
    if is_partial:
        recording = merge(load(path), recording, {scenario.name for scenario in library.all_scenarios(library.home())})
    save(recording, path)
    print(f"{path}: {len(recording.outcomes)} scenarios, {path.stat().st_size >> 10} KiB")
    print(f"different between runs: {', '.join(recording.unstable) or 'none'}")


def _report(command: str, scenarios: Sequence[Scenario]) -> Report:
    if command == "replay":
        return replay(scenarios)
    try:
        return live(scenarios) if command == "live" else replay_oracle(scenarios)
    except UnavailableKafkaError as exc:
        if command == "oracle":
            raise ConfigError(str(exc)) from exc
        print(f"{REFERENCE} cannot be started, its recording stands in: {exc}", flush=True)
        return replay(scenarios)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
