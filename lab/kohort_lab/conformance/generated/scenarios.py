"""
Generated scenarios, one from each seed: valid and invalid requests, from a model of clients.

A seed gives the same scenario on every machine and with every Python version. Of the first scenarios, half are about groups of
one to four members, a quarter about logs, and a quarter about topics and their configurations. Scenarios of transactions, of
consumer groups, of the state of share groups and of their fetches have seeds of their own.
"""

from collections.abc import Callable, Iterator
from random import Random

from kohort_lab.conformance.generated.consumer_groups import write_consumer_group_scenario
from kohort_lab.conformance.generated.groups import write_group_scenario
from kohort_lab.conformance.generated.logs import write_log_scenario
from kohort_lab.conformance.generated.settings import write_settings_scenario
from kohort_lab.conformance.generated.share_fetches import write_share_fetch_scenario
from kohort_lab.conformance.generated.share_states import write_share_state_scenario
from kohort_lab.conformance.generated.topics import write_topic_scenario
from kohort_lab.conformance.generated.transactions import write_transaction_scenario
from kohort_lab.conformance.generated.writer import ScenarioWriter
from kohort_lab.conformance.scenarios.scenario import Scenario

SCENARIOS = 280
TRANSACTIONS = 120
"""Scenarios of transactions, in addition."""
CONSUMER_GROUPS = 160
"""Scenarios of consumer groups, in addition."""
SHARE_STATES = 120
"""Scenarios of the state of share groups, in addition."""
SHARE_FETCHES = 120
"""Scenarios of members of share groups, in addition."""
SETTINGS = 24
"""Scenarios of client quotas and SCRAM credentials, in addition."""

_KINDS: tuple[tuple[str, Callable[[ScenarioWriter], None]], ...] = (
    ("group", write_group_scenario),
    ("log", write_log_scenario),
    ("group", write_group_scenario),
    ("topics", write_topic_scenario),
)


def generated_scenarios(count: int = SCENARIOS) -> Iterator[Scenario]:
    for seed in range(count):
        yield generated_scenario(seed)


def generated_transactions(count: int = TRANSACTIONS) -> Iterator[Scenario]:
    for seed in range(count):
        writer = ScenarioWriter(Random(f"kohort transactions {seed}"))
        write_transaction_scenario(writer)
        yield writer.scenario(f"generated-transactions/{seed}", f"random transactions, seed {seed}")


def generated_consumer_groups(count: int = CONSUMER_GROUPS) -> Iterator[Scenario]:
    for seed in range(count):
        writer = ScenarioWriter(Random(f"kohort consumer groups {seed}"))
        write_consumer_group_scenario(writer)
        yield writer.scenario(f"generated-consumer-groups/{seed}", f"random members of a consumer group, seed {seed}")


def generated_settings(count: int = SETTINGS) -> Iterator[Scenario]:
    for seed in range(count):
        writer = ScenarioWriter(Random(f"kohort settings {seed}"))
        write_settings_scenario(writer)
        yield writer.scenario(f"generated-settings/{seed}", f"random quotas and credentials, seed {seed}")


def generated_share_states(count: int = SHARE_STATES) -> Iterator[Scenario]:
    for seed in range(count):
        writer = ScenarioWriter(Random(f"kohort share states {seed}"))
        write_share_state_scenario(writer)
        yield writer.scenario(f"generated-share-states/{seed}", f"random state of share partitions, seed {seed}")


def generated_share_fetches(count: int = SHARE_FETCHES) -> Iterator[Scenario]:
    for seed in range(count):
        writer = ScenarioWriter(Random(f"kohort share fetches {seed}"))
        write_share_fetch_scenario(writer)
        yield writer.scenario(f"generated-share-fetches/{seed}", f"random members of a share group, seed {seed}")


def generated_scenario(seed: int) -> Scenario:
    kind, write = _KINDS[seed % len(_KINDS)]
    writer = ScenarioWriter(Random(f"kohort {seed}"))
    write(writer)
    return writer.scenario(f"generated-{kind}/{seed}", f"random requests about {kind}, seed {seed}")
