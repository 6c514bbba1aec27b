"""The recorded run of Apache Kafka compared with Kohort, in parts that can run side by side."""

from collections.abc import Iterable

from kohort_lab.conformance import coverage, library
from kohort_lab.conformance.comparison_run import Report
from kohort_lab.conformance.own_brokers import replay, unused_rules
from kohort_lab.conformance.scenarios.scenario import Scenario

GROUP_APIS = coverage.SUBJECTS[coverage.GROUPS]


def is_generated(scenario: Scenario) -> bool:
    return scenario.name.startswith("generated-")


def is_about_groups(scenario: Scenario) -> bool:
    return any(step.send in GROUP_APIS for step in scenario.steps)


def is_about_transactions(scenario: Scenario) -> bool:
    if is_about_consumer_groups(scenario) or is_about_share_groups(scenario):
        return False
    return "txn" in scenario.script or scenario.script == "generated-transactions"


def is_about_consumer_groups(scenario: Scenario) -> bool:
    return any(step.send in coverage.SUBJECTS[coverage.CONSUMER_GROUPS] for step in scenario.steps)


def is_about_share_groups(scenario: Scenario) -> bool:
    return any(step.send in coverage.SUBJECTS[coverage.SHARE_GROUPS] for step in scenario.steps)


def compared(*, generated: bool, groups: bool) -> Report:
    """Run one part of the scenarios without transactions, see `replayed`."""
    return replayed(
        scenario
        for scenario in library.all_scenarios(library.home())
        if (is_generated(scenario), is_about_groups(scenario)) == (generated, groups)
        and not is_about_transactions(scenario)
        and not is_about_consumer_groups(scenario)
        and not is_about_share_groups(scenario)
    )


def replayed(found: Iterable[Scenario]) -> Report:
    """Run scenarios on a new Kohort. There may be no difference, and no rule without a difference."""
    scenarios = list(found)
    report = replay(scenarios)
    assert not report.differences, "\n".join(map(str, report.differences[:20]))
    assert unused_rules(report) == []
    assert not report.unsupported
    assert len(report.comparisons) > 0.97 * len(scenarios)
    return report
