"""Scenarios of transactions, under every level of `transaction.version`: Kohort against the recorded run of Apache Kafka."""

import pytest

from kohort_lab.conformance import coverage, library
from tests.conformance.recorded import is_about_transactions, replayed

SCRIPTS_MIN = 200


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    report = replayed(filter(is_about_transactions, library.all_scenarios(library.home())))
    (transactions,) = (each for each in coverage.by_subject(report) if each.name == coverage.TRANSACTIONS)
    assert transactions.scripts >= SCRIPTS_MIN
    assert {each.name for each in coverage.by_api(report)} >= coverage.SUBJECTS[coverage.TRANSACTIONS]
    assert report.compared > 200_000
