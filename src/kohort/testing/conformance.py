"""
`python -m kohort.testing.conformance live|replay|record`: Kohort beside its oracle.

`live` tells all stories to a fresh Kohort and to a fresh Apache Kafka, and prints every difference; without Java or Maven, and
in `replay`, a recorded run of Apache Kafka stands in for it. `record` makes that recording: several runs, and what does not
come out the same in all of them is left out by name, for it is chance.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.conformance import card, library
from kohort.conformance.compare import compare
from kohort.conformance.outcome import Outcome
from kohort.conformance.recording import Recording, load, save
from kohort.conformance.run import Report, Told, report, told
from kohort.conformance.story import Story
from kohort.testing.kafka import RELEASE, KafkaNode, UnavailableKafkaError
from kohort.testing.served import KOHORT, ServedKohort

ROUNDS = 3
"""How often a recording tells each story."""

ORACLE_CONCURRENT = 16
KOHORT_CONCURRENT = 48
REFERENCE = f"Apache Kafka {RELEASE}"
CARD = Path("build") / "conformance.html"


def tell_kohort(stories: Sequence[Story], *, command: Sequence[str] = KOHORT) -> Told:
    """All stories, told to a fresh `kohort serve`."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedKohort(Path(directory), library.SETTINGS, command=command) as broker,
    ):
        return asyncio.run(told("127.0.0.1", broker.port, stories, concurrent=KOHORT_CONCURRENT))


def tell_oracle(stories: Sequence[Story]) -> Told:
    """
    All stories, told to a fresh node of Apache Kafka.

    Raises:
        UnavailableKafkaError: there is none to be had here.
    """
    with _oracle() as node:
        return asyncio.run(told("127.0.0.1", node.port, stories, concurrent=ORACLE_CONCURRENT))


def replay(stories: Sequence[Story], *, command: Sequence[str] = KOHORT) -> Report:
    """Kohort against the recording."""
    home = library.home()
    reference = load(home / "recorded" / library.RECORDED)
    known = [story for story in stories if story.name in reference.outcomes]
    return report(
        tell_kohort(known, command=command),
        reference.outcomes,
        known,
        broker="Kohort",
        reference=f"a recording of {reference.broker}",
        deliberate=library.deliberate_differences(home),
    )


def live(stories: Sequence[Story]) -> Report:
    """Kohort against Apache Kafka, both started here. Raises UnavailableKafkaError."""
    home = library.home()
    unstable = set(load(home / "recorded" / library.RECORDED).unstable)
    known = [story for story in stories if story.name not in unstable]
    theirs = tell_oracle(known)
    print(f"{REFERENCE}: {len(known)} stories in {theirs.elapsed_s:.0f} s", flush=True)
    return report(
        tell_kohort(known),
        theirs.outcomes,
        known,
        broker="Kohort",
        reference=REFERENCE,
        deliberate=library.deliberate_differences(home),
    )


def record(stories: Sequence[Story]) -> Recording:
    """Several runs of the oracle, and what all of them agree on."""
    with _oracle() as node:
        runs = []
        for number in range(ROUNDS):
            run = asyncio.run(told("127.0.0.1", node.port, stories, concurrent=ORACLE_CONCURRENT))
            print(f"run {number + 1} of {ROUNDS}: {run.elapsed_s:.0f} s", flush=True)
            runs.append(run.outcomes)
    unstable = [story.name for story in stories if not _is_stable(story, [run[story.name] for run in runs])]
    outcomes = {name: outcome for name, outcome in runs[0].items() if name not in unstable}
    return Recording(broker=REFERENCE, settings=library.SETTINGS, unstable=unstable, outcomes=outcomes)


def merge(old: Recording, new: Recording) -> Recording:
    """The old one with what was told anew."""
    told = {*new.unstable, *new.outcomes}
    return Recording(
        broker=new.broker,
        settings=new.settings,
        unstable=sorted({*(name for name in old.unstable if name not in told), *new.unstable}),
        outcomes={name: outcome for name, outcome in old.outcomes.items() if name not in told} | new.outcomes,
    )


def _is_stable(story: Story, outcomes: Sequence[Outcome]) -> bool:
    return not any(compare(story, other, outcomes[0]).differences for other in outcomes[1:])


@contextmanager
def _oracle() -> Iterator[KafkaNode]:
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory), library.SETTINGS) as node:
        try:
            yield node
        except BaseException:
            print(f"The end of its log:\n{node.log_tail()}", file=sys.stderr)
            raise


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code is 1 when there are differences."""
    command, *names = arguments or ("live",)
    stories = [each for each in library.all_stories(library.home()) if not names or each.name.startswith(tuple(names))]
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
    print(f"{result.reference}: {card.summary(result)}; see {CARD}")
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
