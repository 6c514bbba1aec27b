"""Stories told to one broker, and what comparing them with a reference gave."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from kohort.conformance.cluster import CONCURRENT_STORIES, Cluster, Progress
from kohort.conformance.compare import TIMING, Comparison, Deliberate, Difference, compare
from kohort.conformance.outcome import Outcome
from kohort.conformance.scenario import Scenario

TELLINGS = 4
"""How often a story is told at its pace, until a difference in time counts."""
STRAIN_MS = 100
"""A machine that is later than this is not at a story's pace; the shortest timeout in one is 200 ms."""
CONCURRENT_AGAIN = 8
AGAIN_MAX = 100
"""Where more stories than these differ in time, it is the broker that keeps other times; they are not told again for that."""
TELLINGS_MAX = 12
"""How often a story is told at all: what a machine that is never at its pace shows so often is no accident."""
_CONCURRENT = (CONCURRENT_AGAIN, CONCURRENT_AGAIN, CONCURRENT_AGAIN, 4, 4, 2, 2, 1)
"""How many stories are told at a time the second time, the third time, and so on."""
_CALM_TIMEOUT_S = 5.0
_CALM_STEP_S = 0.02
_CALM_STEPS = 25


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        broker, reference: who was compared with whom.
        versions: what the broker serves, oldest and newest by API.
        comparisons: one per story.
        elapsed_s: how long the telling took.
        told_again: by story, how many times more it was told than once.
    """

    broker: str
    reference: str
    versions: dict[str, tuple[int, int]]
    comparisons: list[Comparison]
    elapsed_s: float
    told_again: dict[str, int] = {}

    @property
    def differences(self) -> list[Difference]:
        """Those that nobody meant."""
        return [each for comparison in self.comparisons for each in comparison.differences if not each.reason]

    @property
    def deliberate(self) -> list[Difference]:
        return [each for comparison in self.comparisons for each in comparison.differences if each.reason]

    @property
    def compared(self) -> int:
        """How many values were compared."""
        return sum(each.compared for each in self.comparisons)

    @property
    def unsupported(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.unsupported]


class Recorded:
    """A reference that is a recording: told again, it says the same."""

    def __init__(self, outcomes: Mapping[str, Outcome]) -> None:
        self._outcomes = outcomes
        self.strains_ms: Mapping[str, int] = {}

    async def tell(self, stories: Sequence[Scenario], *, concurrent: int) -> Mapping[str, Outcome]:  # noqa: ARG002
        return {story.name: self._outcomes[story.name] for story in stories}


class Target(Protocol):
    """
    Who can be told stories: a `Cluster`, or `Recorded`.

    Attributes:
        strains_ms: by story, how late the machine was in its latest telling.
    """

    @property
    def strains_ms(self) -> Mapping[str, int]: ...

    async def tell(self, stories: Sequence[Scenario], *, concurrent: int) -> Mapping[str, Outcome]: ...


async def compare_brokers(
    ours: Cluster,
    theirs: Target,
    stories: Sequence[Scenario],
    *,
    broker: str,
    reference: str,
    deliberate: Sequence[Deliberate] = (),
    concurrent: int = CONCURRENT_STORIES,
    concurrent_reference: int = CONCURRENT_STORIES,
    progress: Progress | None = None,
) -> Report:
    """
    Tell both sides all stories and compare.

    A story is told again, with fewer and fewer beside it and when the machine has come to rest, if one of its differences is
    about time, or if the machine was late by more than `STRAIN_MS` while it was told: then it was another story that was told.
    What is different in `TELLINGS` that kept pace is a difference, and so is what is different in all of `TELLINGS_MAX`. One
    that is not about time and shows in a story told at its pace counts at once, and stays when the story is told again for
    another. `AGAIN_MAX` bounds what that may cost.

    Raises:
        ConfigError: a side went away.
        ScriptError: a story asks for what cannot be sent.
    """
    began_s = asyncio.get_running_loop().time()
    found: dict[str, Comparison] = {}
    settled: dict[str, tuple[Difference, ...]] = {}
    told_again: dict[str, int] = {}
    doubts = RetryPolicy()
    waiting: Sequence[Scenario] = stories
    for telling in range(TELLINGS_MAX):
        if telling:
            await calm()
            concurrent = concurrent_reference = _CONCURRENT[min(telling, len(_CONCURRENT)) - 1]
            told_again |= {story.name: telling for story in waiting}
        other = await theirs.tell(waiting, concurrent=concurrent_reference)
        own = await ours.tell(waiting, concurrent=concurrent, progress=None if telling else progress)
        strains_ms = {each.name: max(side.strains_ms.get(each.name, 0) for side in (ours, theirs)) for each in waiting}
        for story in waiting:
            told = partial(
                compare,
                story,
                own[story.name],
                other[story.name],
                deliberate,
                settled=settled.get(story.name, ()),
            )
            comparison = told()
            if telling and is_doubtful(comparison, strains_ms[story.name]):
                comparison = told(only=found[story.name])
            found[story.name] = comparison
            if strains_ms[story.name] <= STRAIN_MS:
                settled[story.name] = tuple(each for each in comparison.differences if each.field not in TIMING)
        waiting = doubts.among(waiting, found, strains_ms)
        if not waiting:
            break
    return Report(
        broker=broker,
        reference=reference,
        versions=ours.versions,
        comparisons=[found[story.name] for story in stories],
        elapsed_s=round(asyncio.get_running_loop().time() - began_s, 1),
        told_again=told_again,
    )


class RetryPolicy:
    """Which stories are to be told once more, after each time that they were told."""

    def __init__(self) -> None:
        self._tellings = 0
        self._at_pace: Counter[str] = Counter()

    def among(
        self, stories: Sequence[Scenario], found: Mapping[str, Comparison], strains_ms: Mapping[str, int]
    ) -> Sequence[Scenario]:
        """
        Args:
            stories: those that were just told.
            found: by story, what comparing it gave.
            strains_ms: by story, how late the machine was.
        """
        self._tellings += 1
        doubtful = [story for story in stories if is_doubtful(found[story.name], strains_ms[story.name])]
        late = [story for story in doubtful if strains_ms[story.name] > STRAIN_MS]
        at_pace = [story for story in doubtful if strains_ms[story.name] <= STRAIN_MS]
        self._at_pace.update(story.name for story in at_pace)
        again = [story for story in at_pace if self._at_pace[story.name] < TELLINGS]
        if self._tellings >= TELLINGS:
            late = late[:AGAIN_MAX]
        return [*late, *(again if len(again) <= AGAIN_MAX else ())]


async def calm(timeout_s: float = _CALM_TIMEOUT_S) -> None:
    """Until the machine has kept its time for a while, which on a busy one may never be: then until the time is up."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    kept = 0
    while kept < _CALM_STEPS and loop.time() < deadline_s:
        began_s = loop.time()
        await asyncio.sleep(_CALM_STEP_S)
        kept = kept + 1 if 1000 * (loop.time() - began_s - _CALM_STEP_S) < STRAIN_MS / 2 else 0


def is_doubtful(comparison: Comparison, strain_ms: int) -> bool:
    """Whether the differences may be the machine's doing."""
    fields = {each.field for each in comparison.differences if not each.reason} - {_BROKER}
    return bool(fields & TIMING) or (bool(fields) and strain_ms > STRAIN_MS)


_BROKER = "(broker)"
"""That a broker died was found out twice already."""
