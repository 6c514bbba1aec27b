"""The comparison of what clients were told with the topic and the group. It knows no client."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES_MAX = 10
DEFECTS = ("lost", "duplicated", "disordered", "unknown", "went_back", "unread", "misread")


class Written(NamedTuple):
    """A record: its place, the producer that wrote it, and its number, which rises for each producer."""

    partition: int
    offset: int
    producer: str
    number: int


class Committed(NamedTuple):
    """A commit that a member was told to have succeeded, at a time of the system's monotonic clock, in seconds."""

    at_s: float
    partition: int
    offset: int


class Fetched(NamedTuple):
    """A committed offset that the broker answered; the request was sent and answered at these times. -1: no offset."""

    asked_s: float
    answered_s: float
    partition: int
    offset: int


@dataclass(slots=True)
class Observed:
    """
    What clients saw.

    Attributes:
        acknowledged: records that producers were told to be written.
        topic: the records of the topic, read at the end.
        read: the records that members read before they committed behind them.
        committed: commits that members were told to have succeeded.
        fetched: answers to an observer that asks for the committed offsets again and again.
    """

    acknowledged: list[Written] = field(default_factory=list)
    topic: list[Written] = field(default_factory=list)
    read: list[Written] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        lost: acknowledged records that are not at their place in the topic.
        duplicated: records of the topic that a producer wrote once, after their first occurrence.
        disordered: records behind a record of the same producer and partition with a larger number.
        unknown: records of the topic whose partition has a record without a producer, or at a place with two records.
        went_back: committed offsets below an offset that was committed before the request for it was sent.
        unread: records of the topic that no member read.
        misread: records that members read differently from the topic.
        examples: a sentence for each of the first defects.
    """

    records: int
    commits: int
    lost: int
    duplicated: int
    disordered: int
    unknown: int
    went_back: int
    unread: int
    misread: int
    examples: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not any(getattr(self, name) for name in DEFECTS)

    def __str__(self) -> str:
        found = ", ".join(f"{getattr(self, name):,} {name.replace('_', ' ')}" for name in DEFECTS)
        return f"{self.records:,} records, {self.commits:,} commits: {found}"


def judge(observed: Observed) -> Verdict:
    """Compare what clients were told with what is there. The topic's records have to be in the order of their offsets."""
    defects: dict[str, list[str]] = {name: [] for name in DEFECTS}
    places = _judge_topic(observed.topic, defects)
    for each in observed.acknowledged:
        if places.get((each.partition, each.offset)) != each:
            defects["lost"].append(f"acknowledged, and not there: {each}")
    for each in observed.read:
        if places.get((each.partition, each.offset)) != each:
            defects["misread"].append(f"read, and not there: {each}")
    read = {(each.partition, each.offset) for each in observed.read}
    defects["unread"] = [f"never read: {each}" for place, each in places.items() if place not in read]
    defects["went_back"] = list(_offsets_that_went_back(observed.committed, observed.fetched))
    examples = [f"{name}: {text}" for name in DEFECTS for text in defects[name][:EXAMPLES_MAX]]
    return Verdict(
        records=len(observed.topic),
        commits=len(observed.committed),
        examples=tuple(examples),
        **{name: len(found) for name, found in defects.items()},
    )


def _judge_topic(topic: Iterable[Written], defects: dict[str, list[str]]) -> dict[tuple[int, int], Written]:
    """Find duplicates, wrong order and impossible places in the topic; returns its records by place."""
    places: dict[tuple[int, int], Written] = {}
    first: dict[tuple[str, int], Written] = {}
    newest: dict[tuple[str, int], Written] = {}
    for each in topic:
        if (each.partition, each.offset) in places:
            defects["unknown"].append(f"a second record at one place: {each}")
        places[each.partition, each.offset] = each
        before = first.setdefault((each.producer, each.number), each)
        if before is not each:
            defects["duplicated"].append(f"{each}, first at {before.partition}-{before.offset}")
            continue
        last = newest.get((each.producer, each.partition))
        if last is not None and last.number > each.number:
            defects["disordered"].append(f"{each} follows {last}")
        else:
            newest[each.producer, each.partition] = each
    return places


def _offsets_that_went_back(committed: Sequence[Committed], fetched: Sequence[Fetched]) -> Iterable[str]:
    """
    An offset may not be below one that was known to be committed when the request for it was sent: by a successful commit, or
    by an earlier answer. Requests under way at the same time are not compared.
    """
    known: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for commit in committed:
        known[commit.partition].append((commit.at_s, commit.offset))
    for answer in fetched:
        known[answer.partition].append((answer.answered_s, answer.offset))
    answers: dict[int, list[Fetched]] = defaultdict(list)
    for answer in fetched:
        answers[answer.partition].append(answer)
    for partition, asked in sorted(answers.items()):
        facts, at, largest = sorted(known[partition]), 0, -1
        for answer in sorted(asked):
            while at < len(facts) and facts[at][0] < answer.asked_s:
                largest = max(largest, facts[at][1])
                at += 1
            if answer.offset < largest:
                yield f"partition {partition}: offset {answer.offset} was answered after {largest} was committed"
