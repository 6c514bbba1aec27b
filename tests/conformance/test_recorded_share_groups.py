"""Written scenarios of share groups: Kohort against the recorded run of Apache Kafka."""

import pytest

from kohort_lab.conformance import coverage, library
from tests.conformance.recorded import is_about_share_groups, is_generated, replayed

WRITTEN_MIN = 40


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    report = replayed(
        scenario
        for scenario in library.all_scenarios(library.home())
        if is_about_share_groups(scenario) and not is_generated(scenario)
    )
    (groups,) = (each for each in coverage.by_subject(report) if each.name == coverage.SHARE_GROUPS)
    assert groups.written >= WRITTEN_MIN
    assert report.compared > 20_000
