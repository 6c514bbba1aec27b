"""Written scenarios of groups and offsets: Kohort against the recorded run of Apache Kafka."""

import pytest

from kohort_lab.conformance import coverage
from tests.conformance.recorded import compared

SCRIPTS_MIN = 110


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    report = compared(generated=False, groups=True)
    (groups,) = (each for each in coverage.by_subject(report) if each.name == coverage.GROUPS)
    assert groups.written >= SCRIPTS_MIN
    assert {each.name for each in coverage.by_api(report)} >= coverage.SUBJECTS[coverage.GROUPS]
