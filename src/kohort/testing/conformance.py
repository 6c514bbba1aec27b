"""
`python -m kohort.testing.conformance live|replay|record`: Kohort beside its oracle.

`live` tells all stories to a fresh Kohort and to a fresh Apache Kafka, and prints every difference; without Java or Maven, and
in `replay`, a recorded run of Apache Kafka stands in for it. `record` makes that recording: several runs, and what does not
come out the same in all of them is left out by name, for it is chance.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.cli.output import print_table
from kohort.conformance import card, coverage, library
from kohort.conformance.cluster import Cluster
from kohort.conformance.compare import compare
from kohort.conformance.comparison_run import CONCURRENT_AGAIN, Recorded, Report, Target, compare_brokers
from kohort.conformance.outcome import Outcome
from kohort.conformance.recording import Recording, load, save
from kohort.conformance.scenario import Scenario
from kohort.conformance.scenario_run import Restart
from kohort.model.errors import ConfigError
from kohort.testing.kafka import RELEASE, KafkaNode, UnavailableKafkaError
from kohort.testing.served import KOHORT, ServedKohort

ROUNDS = 3
"""How often a recording tells each story; those that come out differently once more so often."""

EXIT_S = 0.2
"""A broker closes its connections this long, at most, before its process has ended."""
ORACLE_CONCURRENT = 16
KOHORT_CONCURRENT = 48
REFERENCE = f"Apache Kafka {RELEASE}"
CARD = Path("build") / "conformance.html"


async def tell(
    port: int, stories: Sequence[Scenario], restart: Restart, concurrent: int = ORACLE_CONCURRENT
) -> dict[str, Outcome]:
    """All stories, told to the broker at a port. Raises ConfigError and ScriptError."""
    cluster = await Cluster.connect("127.0.0.1", port, restart)
    try:
        return await cluster.tell(stories, concurrent=concurrent)
    finally:
        cluster.close()


def replay_oracle(stories: Sequence[Scenario]) -> Report:
    """Apache Kafka itself against its recording. Raises UnavailableKafkaError."""
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [story for story in stories if story.name in reference.outcomes]
    with _oracle() as node:
        return asyncio.run(_contest(node, None, reference, known))


def replay(stories: Sequence[Scenario], *, command: Sequence[str] = KOHORT) -> Report:
    """
    Kohort against the recording; not flushed, so that a slow disk does not set the pace.

    Args:
        command: what starts `kohort`.
    """
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [story for story in stories if story.name in reference.outcomes]
    with _kohort(command, flush="os") as broker:
        return asyncio.run(_contest(broker, None, reference, known))


def live(stories: Sequence[Scenario]) -> Report:
    """Kohort against Apache Kafka, both started here, side by side. Raises UnavailableKafkaError."""
    reference = load(library.home() / "recorded" / library.RECORDED)
    known = [story for story in stories if story.name not in reference.unstable]
    with _oracle() as node, _kohort() as broker:
        return asyncio.run(_contest(broker, node, reference, known))


async def _contest(
    broker: ServedKohort | KafkaNode, node: KafkaNode | None, recording: Recording, stories: Sequence[Scenario]
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
            stories,
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
        if isinstance(broker, ServedKohort) and not await asyncio.to_thread(broker.lives_for, EXIT_S):
            broker.kill()  # a scenario ended the process, which is reported; stop() would raise for the exit code
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)

    return restart


@contextmanager
def _kohort(command: Sequence[str] = KOHORT, flush: str = "commit") -> Iterator[ServedKohort]:
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedKohort(Path(directory), library.SETTINGS, command=command, flush=flush) as broker,
    ):
        yield broker


def record(stories: Sequence[Scenario]) -> Recording:
    """Several runs of the oracle, and what all of them agree on; where they do not, several runs more with less beside them."""
    outcomes: dict[str, Outcome] = {}
    waiting = list(stories)
    with _oracle() as node:
        for concurrent in (ORACLE_CONCURRENT, CONCURRENT_AGAIN):
            runs = [_run(node, waiting, concurrent) for _ in range(ROUNDS)]
            outcomes |= {
                story.name: runs[0][story.name]
                for story in waiting
                if _is_stable(story, [run[story.name] for run in runs])
            }
            waiting = [story for story in waiting if story.name not in outcomes]
            if not waiting:
                break
    unstable = [story.name for story in waiting]
    return Recording(broker=REFERENCE, settings=library.SETTINGS, unstable=unstable, outcomes=outcomes)


def _run(node: KafkaNode, stories: Sequence[Scenario], concurrent: int) -> dict[str, Outcome]:
    began_s = time.monotonic()
    outcomes = asyncio.run(tell(node.port, stories, _restarting(node), concurrent))
    print(f"{len(stories)} stories in {time.monotonic() - began_s:.0f} s", flush=True)
    return outcomes


def merge(old: Recording, new: Recording) -> Recording:
    """The old one with what was told anew."""
    told = {*new.unstable, *new.outcomes}
    return Recording(
        broker=new.broker,
        settings=new.settings,
        unstable=sorted({*(name for name in old.unstable if name not in told), *new.unstable}),
        outcomes={name: outcome for name, outcome in old.outcomes.items() if name not in told} | new.outcomes,
    )


def _is_stable(story: Scenario, outcomes: Sequence[Outcome]) -> bool:
    return not any(compare(story, other, outcomes[0]).differences for other in outcomes[1:])


@contextmanager
def _oracle() -> Iterator[KafkaNode]:
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory), library.SETTINGS) as node:
        try:
            yield node
        except BaseException:
            print(f"The end of its log:\n{node.log_tail()}", file=sys.stderr)
            raise


def _asked_for(arguments: Sequence[str]) -> tuple[str, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m kohort.testing.conformance", description="Kohort beside its oracle, story by story."
    )
    parser.add_argument(
        "command",
        nargs="?",
        default="live",
        choices=("live", "replay", "record"),
        help="live: both are started and told the stories (default); replay: Apache Kafka's recording stands in; "
        "record: that recording is made anew",
    )
    parser.add_argument("names", nargs="*", help="stories whose names begin like this; default: all")
    asked = parser.parse_args(arguments)
    return asked.command, asked.names


def main(arguments: Sequence[str]) -> int:
    """
    The command; its exit code is 1 when there are differences.

    Raises:
        ConfigError: there is no story of that name.
    """
    command, names = _asked_for(arguments)
    stories = [each for each in library.all_stories(library.home()) if not names or each.name.startswith(tuple(names))]
    if not stories:
        raise ConfigError(f"no story begins with {' or '.join(names)}; `kohort conformance --list` names them.")
    if command == "record":
        recording = record(stories)
        path = library.home() / "recorded" / library.RECORDED
        if names:
            recording = merge(load(path), recording)
        save(recording, path)
        print(f"{path}: {len(recording.outcomes)} stories, {path.stat().st_size >> 10} KiB")
        print(f"left to chance: {', '.join(recording.unstable) or 'none'}")
        return 0
    try:
        result = live(stories) if command == "live" else replay(stories)
    except UnavailableKafkaError as exc:
        print(f"no {REFERENCE} beside us, its recording stands in: {exc}", flush=True)
        result = replay(stories)
    for difference in result.differences:
        print(difference)
    CARD.parent.mkdir(exist_ok=True)
    CARD.write_text(card.html(result))
    print_table(coverage.COLUMNS, [each.as_dict() for each in coverage.by_api(result)])
    for subject in coverage.by_subject(result):
        print(coverage.sentence(subject))
    print(f"{result.reference}: {card.summary(result)}; see {CARD}")
    return 1 if result.differences else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
