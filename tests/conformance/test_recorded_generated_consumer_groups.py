"""Generated scenarios of consumer groups: Kohort against the recorded run. CI takes a random sample, the long tier all."""

import random

import pytest

from kohort_lab.conformance import library
from tests.conformance.recorded import is_about_consumer_groups, is_generated, replayed
from tests.conftest import LONG

SCRIPTS_MIN = 150
SAMPLE = 40


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    scenarios = [
        scenario
        for scenario in library.all_scenarios(library.home())
        if is_about_consumer_groups(scenario) and is_generated(scenario)
    ]
    assert len(scenarios) >= SCRIPTS_MIN
    # pytest-randomly seeds `random` with the seed that each run prints.
    report = replayed(scenarios if LONG else random.sample(scenarios, SAMPLE))
    assert report.compared > 1_000
