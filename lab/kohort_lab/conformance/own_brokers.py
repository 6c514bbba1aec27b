"""Kohort compared with Apache Kafka: both started here, or one of them and the recording."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

from kohort.testing.kafka import RELEASE, KafkaNode
from kohort.testing.process import KOHORT
from kohort.testing.served import ServedKohort
from kohort_lab.conformance import library
from kohort_lab.conformance.brokers.cluster import Cluster
from kohort_lab.conformance.compare import compare
from kohort_lab.conformance.comparison_run import CONCURRENT_AGAIN, Recorded, Report, Target, compare_brokers, joined
from kohort_lab.conformance.deliberate import Deliberate, unused
from kohort_lab.conformance.outcome import Outcome
from kohort_lab.conformance.recording import Recording, load
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.scenario_run import Restart

ROUNDS = 3
"""Runs of each scenario in a recording. A scenario with different outcomes gets as many runs again."""

ORACLE_CONCURRENT = 16
KOHORT_CONCURRENT = 48
_EXPECTED = (r"shard\.out_of_sync partition=__transaction_state-",)
"""Log entries of Kohort that are no failure: scenarios write to this topic as `__admin_client`."""


def reference(release: str) -> str:
    """What reports call Apache Kafka of a release."""
    return f"Apache Kafka {release}"


def replay_oracle(scenarios: Sequence[Scenario], release: str = RELEASE) -> Report:
    """Compare Apache Kafka with the recording of its release. Raises UnavailableKafkaError."""
    recording = load(library.recording_path(release))
    known = [scenario for scenario in scenarios if scenario.name in recording.outcomes]
    reports = []
    for name, group in library.by_broker(known).items():
        with _oracle(name, release) as node:
            reports.append(asyncio.run(_compare(node, Recorded(recording.outcomes), group, release)))
    return joined(reports)


def replay(scenarios: Sequence[Scenario], release: str = RELEASE, *, command: Sequence[str] = KOHORT) -> Report:
    """
    Compare Kohort, which is like the release, with its recording. Kohort does not flush, so a slow disk does not delay its
    answers.

    Args:
        command: the command line of `kohort`.
    """
    recording = load(library.recording_path(release))
    known = [scenario for scenario in scenarios if scenario.name in recording.outcomes]
    reports = []
    for name, group in library.by_broker(known).items():
        with _kohort(name, release, command, flush="os") as broker:
            reports.append(asyncio.run(_compare(broker, Recorded(recording.outcomes), group, release)))
    return joined(reports)


def live(scenarios: Sequence[Scenario], release: str = RELEASE) -> Report:
    """Compare Kohort with Apache Kafka, both started here. Raises UnavailableKafkaError."""
    path = library.recording_path(release)
    unstable = load(path).unstable if path.exists() else ()
    known = [scenario for scenario in scenarios if scenario.name not in unstable]
    reports = []
    for name, group in library.by_broker(known).items():
        with _oracle(name, release) as node, _kohort(name, release) as broker:
            reports.append(asyncio.run(_compare(broker, node, group, release)))
    return joined(reports)


def unused_rules(report: Report, release: str = RELEASE) -> list[Deliberate]:
    """The rules of `deliberate.toml` that match no difference although all of their scenarios were compared."""
    home = library.home()
    path = library.recording_path(release)
    unstable = load(path).unstable if path.exists() else ()
    known = [each.name for each in library.all_scenarios(home) if each.name not in unstable]
    return unused(library.deliberate_differences(home), report.comparisons, known)


async def _compare(
    broker: ServedKohort | KafkaNode, other: KafkaNode | Recorded, scenarios: Sequence[Scenario], release: str
) -> Report:
    is_ours = isinstance(broker, ServedKohort)
    ours = await Cluster.connect("127.0.0.1", broker.port, _restarting(broker))
    theirs: Target
    if isinstance(other, KafkaNode):
        theirs = await Cluster.connect("127.0.0.1", other.port, _restarting(other))
    else:
        theirs = other
    try:
        return await compare_brokers(
            ours,
            theirs,
            scenarios,
            broker="Kohort" if is_ours else reference(release),
            reference=f"{'' if isinstance(other, KafkaNode) else 'a recording of '}{reference(release)}",
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
def _kohort(name: str, release: str, command: Sequence[str] = KOHORT, flush: str = "commit") -> Iterator[ServedKohort]:
    properties, levels = _properties(name)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedKohort(
            Path(directory),
            properties,
            command=command,
            flush=flush,
            features=levels,
            expected=_EXPECTED,
            kafka=release,
        ) as broker,
    ):
        yield broker


def record(scenarios: Sequence[Scenario], release: str = RELEASE) -> Recording:
    """
    Run scenarios several times on Apache Kafka of a release and record the outcomes that are the same every time. Scenarios
    with different outcomes are run again with less concurrency.
    """
    outcomes: dict[str, Outcome] = {}
    for name, group in library.by_broker(scenarios).items():
        outcomes |= _recorded(name, group, release)
    unstable = [scenario.name for scenario in scenarios if scenario.name not in outcomes]
    return Recording(broker=reference(release), settings=library.SETTINGS, unstable=unstable, outcomes=outcomes)


def _recorded(name: str, scenarios: Sequence[Scenario], release: str) -> dict[str, Outcome]:
    """The outcomes of scenarios of one broker that are the same in every run."""
    outcomes: dict[str, Outcome] = {}
    waiting = list(scenarios)
    with _oracle(name, release) as node:
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
def _oracle(name: str, release: str) -> Iterator[KafkaNode]:
    properties, levels = _properties(name)
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaNode(Path(directory), properties, features=levels, release=release) as node,
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
