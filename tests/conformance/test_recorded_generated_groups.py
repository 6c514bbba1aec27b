"""Generated scenarios of groups: Kohort against the recorded run of Apache Kafka."""

import pytest

from kohort_lab.conformance import coverage
from tests.conformance.recorded import compared

SCRIPTS_MIN = 130


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    report = compared(generated=True, groups=True)
    (groups,) = (each for each in coverage.by_subject(report) if each.name == coverage.GROUPS)
    assert groups.generated >= SCRIPTS_MIN
