"""The recorded run of Apache Kafka knows every story, and defects made on purpose are found by it."""

import sys
from pathlib import Path

import pytest

from kohort.conformance import card, library
from kohort.conformance.comparison_run import TELLINGS, Report
from kohort.conformance.recording import load
from kohort.testing.conformance import replay
from tests.conftest import watches_calls

BROKER = str(Path(__file__).with_name("broker_with_a_defect.py"))
SCRIPTS_MIN = 150
GENERATED_MIN = 260
UNSTABLE_MAX = 0.02
"""Of all stories; what Apache Kafka itself tells in two ways is left out."""

pytestmark = pytest.mark.timeout(600)


def told(defect: str, *names: str) -> Report:
    """Stories whose names begin so, told to a broker with a defect."""
    stories = [story for story in library.all_stories(library.home()) if story.name.startswith(names)]
    return replay(stories, command=(sys.executable, BROKER, defect))


@watches_calls
def test_a_changed_error_code_is_found() -> None:
    report = told("code", "group_of_two/")
    assert {(each.api, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("Heartbeat", "error_code", 22, 27)
    }
    assert any(row.different for row in card.rows(report) if row.api == "Heartbeat")


def test_an_answer_that_comes_too_early_is_found() -> None:
    report = told("early", "initial_delay/")
    assert {(each.step, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("1", "(during)", "", "3")
    }


def test_an_answer_that_comes_too_late_is_found_however_often_the_story_is_told() -> None:
    report = told("late", "group_of_two/")
    assert {(each.step, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("8", "(during)", "10", "9")
    }
    assert min(report.told_again[each.story] for each in report.differences) >= TELLINGS - 1


@watches_calls
def test_a_broker_that_dies_is_one_finding_a_story_and_is_restarted() -> None:
    report = told("mortal", "heartbeat_refused/4", "group_of_two/", "leave_group/0")
    died = [each for each in report.differences if each.field == "(broker)"]
    assert [(each.story, each.ours, each.theirs) for each in died] == [("heartbeat_refused/4", "died", "lived")]
    assert report.differences == died
    assert len(report.comparisons) > 5


def test_stories_that_change_what_others_see_are_told_after_them() -> None:
    known = [story for story in library.all_stories(library.home()) if story.alone]
    assert known
    others = [story for story in library.all_stories(library.home()) if story.script == "describe_states"]
    assert replay([*known, *others, *known]).differences == []


def test_the_recording_knows_every_story() -> None:
    home = library.home()
    recording = load(home / "recorded" / library.RECORDED)
    stories = {story.name: story for story in library.all_stories(home)}
    assert recording.missing(stories) == []
    assert recording.settings == library.SETTINGS
    assert len(recording.unstable) <= UNSTABLE_MAX * len(stories)
    told = {name.split("/")[0] for name in recording.outcomes}
    assert len([name for name in told if not name.startswith("generated-")]) >= SCRIPTS_MIN
    assert len([name for name in recording.outcomes if name.startswith("generated-")]) >= GENERATED_MIN
