"""
Stories that nobody wrote: legal and illegal ones, from a model of what clients do, one from each seed.

The same seed gives the same story on every machine and with every Python. Half of the stories is about groups with one to four
members, a quarter each about logs, and about topics with their configurations.
"""

from collections.abc import Callable, Iterator
from random import Random

from kohort.conformance.generated.groups import group_story
from kohort.conformance.generated.logs import log_story
from kohort.conformance.generated.topics import topic_story
from kohort.conformance.generated.writer import ScenarioWriter
from kohort.conformance.scenario import Scenario

STORIES = 280

_KINDS: tuple[tuple[str, Callable[[ScenarioWriter], None]], ...] = (
    ("group", group_story),
    ("log", log_story),
    ("group", group_story),
    ("topics", topic_story),
)


def generated_stories(count: int = STORIES) -> Iterator[Scenario]:
    for seed in range(count):
        yield generated_story(seed)


def generated_story(seed: int) -> Scenario:
    kind, tell = _KINDS[seed % len(_KINDS)]
    teller = ScenarioWriter(Random(f"kohort {seed}"))
    tell(teller)
    return teller.story(f"generated-{kind}/{seed}", f"what chance does with {kind}, seed {seed}")
