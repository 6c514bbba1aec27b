"""
Exactly-once processing while broker and processors are killed by SIGKILL: every input is in the output once, in order per key.

`make torture SECONDS=600` is the long version.
"""

import os
from pathlib import Path
from random import Random

import pytest

from kohort.testing.served import ServedKohort
from kohort_lab.checks import SETTINGS
from kohort_lab.exactly_once.__main__ import OWN_SESSION_TIMEOUT_MS
from kohort_lab.exactly_once.torture import Plan, torture
from tests.conftest import LONG

SECONDS = float(os.environ.get("KOHORT_TORTURE_SECONDS", "300" if LONG else "8"))

pytestmark = pytest.mark.timeout(SECONDS + 1_800)


def test_every_record_is_processed_exactly_once(base: Path, rng: Random) -> None:
    plan = Plan(seconds=SECONDS, kill_seconds=(0.3, 1.0), session_timeout_ms=OWN_SESSION_TIMEOUT_MS)
    with ServedKohort(base, SETTINGS) as broker:
        outcome = torture(broker.bootstrap, base, plan, rng=rng, broker=broker, on_step=print)
    print(outcome)
    assert outcome.is_right, (outcome, outcome.verdict.examples)
    assert outcome.broker_kills + outcome.processor_kills > 0
    assert outcome.committed > 0
