"""The recorded run of Apache Kafka, and Kohort told the same stories, in parts that take their turn side by side."""

from kohort.conformance import coverage, library
from kohort.conformance.comparison_run import Report
from kohort.conformance.scenario import Scenario
from kohort.testing.conformance import replay

GROUP_APIS = coverage.SUBJECTS[coverage.GROUPS]


def is_generated(story: Scenario) -> bool:
    return story.name.startswith("generated-")


def is_about_groups(story: Scenario) -> bool:
    return any(step.send in GROUP_APIS for step in story.steps)


def told(*, generated: bool, groups: bool) -> Report:
    """One part of all stories, told to a fresh Kohort and compared; nothing may be left that differs."""
    stories = [
        story
        for story in library.all_stories(library.home())
        if (is_generated(story), is_about_groups(story)) == (generated, groups)
    ]
    report = replay(stories)
    assert not report.differences, "\n".join(map(str, report.differences[:20]))
    assert not report.unsupported
    assert len(report.comparisons) > 0.97 * len(stories)
    return report
