"""Stories told to one broker, and what comparing them with a reference gave."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from kohort.conformance.cluster import CONCURRENT_STORIES, Cluster, Progress
from kohort.conformance.compare import Comparison, Deliberate, Difference, compare
from kohort.conformance.outcome import Outcome
from kohort.conformance.story import Story


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        broker, reference: who was compared with whom.
        versions: what the broker serves, oldest and newest by API.
        comparisons: one per story.
        elapsed_s: how long the telling took.
    """

    broker: str
    reference: str
    versions: dict[str, tuple[int, int]]
    comparisons: list[Comparison]
    elapsed_s: float

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


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker made of the stories."""

    outcomes: dict[str, Outcome]
    versions: dict[str, tuple[int, int]]
    elapsed_s: float


async def told(
    host: str,
    port: int,
    stories: Sequence[Story],
    *,
    concurrent: int = CONCURRENT_STORIES,
    progress: Progress | None = None,
) -> Told:
    """Tell all stories to the broker at an address. Raises ConfigError and ScriptError."""
    began_s = asyncio.get_running_loop().time()
    cluster = await Cluster.connect(host, port)
    try:
        outcomes = await cluster.tell(stories, concurrent=concurrent, progress=progress)
    finally:
        cluster.close()
    elapsed_s = asyncio.get_running_loop().time() - began_s
    return Told(outcomes=outcomes, versions=cluster.versions, elapsed_s=round(elapsed_s, 1))


def report(
    ours: Told,
    theirs: Mapping[str, Outcome],
    stories: Sequence[Story],
    *,
    broker: str,
    reference: str,
    deliberate: Sequence[Deliberate] = (),
) -> Report:
    """Compare what was told to both."""
    return Report(
        broker=broker,
        reference=reference,
        versions=ours.versions,
        comparisons=[
            compare(story, ours.outcomes[story.name], theirs[story.name], deliberate)
            for story in stories
            if story.name in theirs
        ],
        elapsed_s=ours.elapsed_s,
    )
