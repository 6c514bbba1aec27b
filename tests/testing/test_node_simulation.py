"""Nodes that share a store, under lost answers, late statements, pauses, kills, promoted standbys. Broken fences are found."""

import os
import re
from collections import Counter

import pytest

from kohort.storage.shared import Claim
from kohort.testing import SimulationError
from kohort_lab.nodes import Database, NodeFaults, simulate_nodes
from kohort_lab.nodes.controller_cost import fail_over, statements_per_second
from kohort_lab.nodes.database import LogRow, Write
from tests.conftest import LONG, extends_logs

pytestmark = extends_logs

SEEDS = 10_000 if LONG else 200
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/testing/test_node_simulation.py -k every_seed"
RARE = ("second", "restart", "promote", "freeze")
KINDS = ("append", "read", "pause", "kill", "start", "drain", "cut", "slow", "losses")


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    """A seed takes 40 ms: three nodes, and a minute of their time."""
    counts: Counter[str] = Counter()
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        simulation = simulate_nodes(each, repeat=REPEAT)
        counts += simulation.history.counts
        counts["losses"] += sum(node.losses for node in simulation.nodes)
    if not ONE:
        for kind in KINDS:
            assert counts[kind] >= SEEDS, f"the simulation hardly reaches {kind}: {counts}"
        for kind in RARE:
            assert counts[kind] >= SEEDS // 10, f"the simulation hardly reaches {kind}: {counts}"


class ClaimsOfEpochsTwice(Database):
    """Two nodes lead in one epoch."""

    def may_claim(self, row: LogRow, claim: Claim, _node_id: int) -> bool:
        return row.leader_epoch <= claim.leader_epoch


class ClaimsOfOldEpochs(Database):
    """A late claim takes a log from its leader."""

    def may_claim(self, _row: LogRow, _claim: Claim, _node_id: int) -> bool:
        return True


class AppendsAgain(Database):
    """A statement that takes effect late appends again. Attempt and next offset guard against it, each by itself."""

    def may_append(self, row: LogRow, write: Write) -> bool:
        return row.leader_epoch == write.leader_epoch


class AppendsOfAnyNode(Database):
    """A former leader appends."""

    def may_append(self, row: LogRow, write: Write) -> bool:
        return row.next_offset == write.base_offset


def _simulate_some(broken: type[Database]) -> None:
    for seed in range(500):
        simulate_nodes(seed, database=broken())


@pytest.mark.parametrize(
    "broken",
    [
        ClaimsOfEpochsTwice,
        ClaimsOfOldEpochs,
        AppendsAgain,
        AppendsOfAnyNode,
    ],
)
def test_a_broken_fence_is_found(broken: type[Database]) -> None:
    with pytest.raises(SimulationError):
        _simulate_some(broken)


def test_clocks_that_differ_by_more_than_the_margin_are_found() -> None:
    """The margin of a lease covers clocks of different speed, and is needed for that."""
    # Nodes whose clocks are slow also take longer than others allow them: not every seed shows what the margin prevents.
    for seed in range(500):
        try:
            simulate_nodes(seed, NodeFaults(rate_off=0.5))
        except SimulationError as error:
            if re.search(r"after offset \d+ was told", str(error)):
                return
    pytest.fail("no seed shows an answer that is out of date")


def test_the_cost_of_a_fail_over_is_counted() -> None:
    """The record of a topic is written when partitions of it are taken from a node, and when they are given back."""
    cost = fail_over(3, 300, 100)
    assert (cost.moved, cost.records, cost.claims) == (100, 6, 2)
    assert statements_per_second(10) == (20.0, 60.0, 220.0)
