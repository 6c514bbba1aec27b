"""Kohort against the recorded run of Apache Kafka: every story, every field."""

import sys
from pathlib import Path

import pytest

from kohort.conformance import card, library
from kohort.conformance.recording import load
from kohort.testing.conformance import replay
from tests.conftest import LONG

DEFECTIVE = (sys.executable, str(Path(__file__).with_name("broker_with_a_defect.py")))
SCRIPTS_MIN = 60
GENERATED_MIN = 200

pytestmark = pytest.mark.timeout(240)


@pytest.mark.skipif(
    not LONG,
    reason="compares which answer comes first as well, which needs a machine that does nothing else: make test-long",
)
def test_no_difference_is_left() -> None:
    report = replay(library.all_stories(library.home()))
    assert not report.differences, "\n".join(map(str, report.differences[:20]))
    assert not report.unsupported
    assert report.compared > 50_000


def test_a_changed_error_code_is_found() -> None:
    stories = [story for story in library.all_stories(library.home()) if story.script == "group_of_two"]
    report = replay(stories, command=DEFECTIVE)
    assert {(each.api, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("Heartbeat", "error_code", 22, 27)
    }
    assert any(row.different for row in card.rows(report) if row.api == "Heartbeat")


def test_the_recording_knows_every_story() -> None:
    home = library.home()
    recording = load(home / "recorded" / library.RECORDED)
    stories = {story.name: story for story in library.all_stories(home)}
    assert recording.missing(stories) == []
    assert recording.settings == library.SETTINGS
    told = {name.split("/")[0] for name in recording.outcomes}
    assert len([name for name in told if not name.startswith("generated-")]) >= SCRIPTS_MIN
    assert len([name for name in recording.outcomes if name.startswith("generated-")]) >= GENERATED_MIN
