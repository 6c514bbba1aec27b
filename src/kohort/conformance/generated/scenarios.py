"""
Generated scenarios, one from each seed: valid and invalid requests, from a model of clients.

A seed gives the same scenario on every machine and with every Python version. Half of the scenarios are about groups of one to
four members, a quarter about logs, and a quarter about topics and their configurations.
"""

from collections.abc import Callable, Iterator
from random import Random

from kohort.conformance.generated.groups import write_group_scenario
from kohort.conformance.generated.logs import write_log_scenario
from kohort.conformance.generated.topics import write_topic_scenario
from kohort.conformance.generated.writer import ScenarioWriter
from kohort.conformance.scenario import Scenario

SCENARIOS = 280

_KINDS: tuple[tuple[str, Callable[[ScenarioWriter], None]], ...] = (
    ("group", write_group_scenario),
    ("log", write_log_scenario),
    ("group", write_group_scenario),
    ("topics", write_topic_scenario),
)


def generated_scenarios(count: int = SCENARIOS) -> Iterator[Scenario]:
    for seed in range(count):
        yield generated_scenario(seed)


def generated_scenario(seed: int) -> Scenario:
    kind, write = _KINDS[seed % len(_KINDS)]
    writer = ScenarioWriter(Random(f"kohort {seed}"))
    write(writer)
    return writer.scenario(f"generated-{kind}/{seed}", f"random requests about {kind}, seed {seed}")
