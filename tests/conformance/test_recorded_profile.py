"""Kohort like an older release of Apache Kafka: the APIs, features and defaults against the recorded run of that release."""

import pytest

from kohort_lab.conformance import library
from kohort_lab.conformance.own_brokers import replay, unused_rules
from kohort_lab.conformance.recording import load

RELEASE = "4.2.1"


@pytest.mark.timeout(300)
def test_no_difference_is_left() -> None:
    scenarios = library.scenarios_of(RELEASE, library.home())
    report = replay(scenarios, RELEASE)
    assert report.differences == []
    assert unused_rules(report, RELEASE) == []
    assert {each.scenario for each in report.comparisons} == {each.name for each in scenarios}
    assert [each.scenario for each in report.unsupported] == ["api_versions/5"], "4.2.1 has no version 5"


def test_the_recording_has_what_a_profile_promises_and_nothing_else() -> None:
    recording = load(library.recording_path(RELEASE))
    names = {each.name for each in library.scenarios_of(RELEASE, library.home())}
    assert recording.outcomes.keys() == names
    assert {name.split("/")[0] for name in names} == library.OF_A_PROFILE
