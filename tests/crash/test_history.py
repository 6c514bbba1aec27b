"""
Clients of every library write, read and commit while they and the broker are killed, paused and restarted, and the disk becomes
full: nothing acknowledged is lost, twice, out of order or never read, and committed offsets do not go back. Neither while the
members of the group are replaced, one after the other, by members of the other protocol, and back (KIP-848).

`make history SECONDS=120` is the long version.
"""

import os
from pathlib import Path
from random import Random

import pytest

from kohort_lab.history_check.__main__ import served
from kohort_lab.history_check.members import CLASSIC, CONSUMER, MIGRATION
from kohort_lab.history_check.run import Plan, check
from tests.conftest import LONG, NIGHTLY

SECONDS = float(os.environ.get("KOHORT_HISTORY_SECONDS", "120" if LONG else "10"))

pytestmark = pytest.mark.timeout(SECONDS + 1_800)


@pytest.mark.parametrize("protocol", [CLASSIC, pytest.param(CONSUMER, marks=NIGHTLY), MIGRATION])
def test_the_history_of_all_clients_is_right(base: Path, rng: Random, protocol: str) -> None:
    plan = Plan(seconds=SECONDS, protocol=protocol, fault_seconds=(0.2, 1.0), pause_seconds=2.0)
    with served(base) as (broker, is_bounded):
        outcome = check(broker.bootstrap, base, plan, rng=rng, broker=broker, is_bounded=is_bounded, on_step=print)
    print(outcome)
    assert outcome.is_right, (outcome, outcome.verdict.examples)
    assert outcome.faults
    assert outcome.acknowledged
    assert outcome.observations
    assert bool(outcome.replaced) == (protocol == MIGRATION)
