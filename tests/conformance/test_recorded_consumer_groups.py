"""Written scenarios of consumer groups, of mixed groups and of the migration: Kohort against the recorded run."""

import pytest

from kohort_lab.conformance import coverage, library
from tests.conformance.recorded import is_about_consumer_groups, is_generated, replayed

WRITTEN_MIN = 120


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    report = replayed(
        scenario
        for scenario in library.all_scenarios(library.home())
        if is_about_consumer_groups(scenario) and not is_generated(scenario)
    )
    (groups,) = (each for each in coverage.by_subject(report) if each.name == coverage.CONSUMER_GROUPS)
    assert groups.written >= WRITTEN_MIN
    assert {each.name for each in coverage.by_api(report)} >= coverage.SUBJECTS[coverage.CONSUMER_GROUPS]
    assert report.compared > 100_000
