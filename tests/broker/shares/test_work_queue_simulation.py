"""Work queues under trouble, from seeds."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.broker.shares.work_queue_simulation import simulate
from tests.conftest import LONG, examples

SEEDS = 2_000 if LONG else examples(100)
ONE = os.environ.get("KOHORT_SEED")
EVENTS = ("heartbeat", "expired member", "delivery", "acknowledgement", "refused acknowledgement", "move", "crash")


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    seen: Counter[str] = Counter()
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        try:
            seen += simulate(each)
        except AssertionError as error:
            error.add_note(f"KOHORT_SEED={each} pytest tests/broker/shares/test_work_queue_simulation.py")
            raise
    if not ONE:
        for event in EVENTS:
            assert seen[event] >= SEEDS // 10, f"the simulation hardly reaches {event}: {seen}"
