"""
A share group while broker and workers are killed by SIGKILL: every record is processed, none again after its acknowledgement
was confirmed, and delivery counts rise.

`make torture-shares SECONDS=600` is the long version.
"""

import os
from pathlib import Path
from random import Random

import pytest

from kohort.testing.served import ServedKohort
from kohort_lab.work_queue.torture import SETTINGS, Plan, torture
from tests.conftest import LONG

SECONDS = float(os.environ.get("KOHORT_TORTURE_SECONDS", "300" if LONG else "4"))

pytestmark = pytest.mark.timeout(SECONDS + 1_800)


def test_every_record_is_processed_and_none_again(base: Path, rng: Random) -> None:
    plan = Plan(seconds=SECONDS, kill_seconds=(0.2, 0.8))
    with ServedKohort(base, SETTINGS) as broker:
        outcome = torture(broker.bootstrap, base, plan, rng=rng, broker=broker, on_step=print)
    print(outcome)
    assert outcome.is_right, (outcome, outcome.verdict.examples)
    assert outcome.broker_kills + outcome.worker_kills > 0
    assert outcome.verdict.confirmed > 0
