"""The recording has every scenario, and comparing with it finds deliberate defects."""

import sys
from pathlib import Path

import pytest

from kohort_lab.conformance import card, library
from kohort_lab.conformance.comparison_run import RUNS_IN_TIME, Report
from kohort_lab.conformance.own_brokers import replay
from kohort_lab.conformance.recording import load
from tests.conftest import watches_calls

BROKER = str(Path(__file__).with_name("broker_with_a_defect.py"))
SCRIPTS_MIN = 150
GENERATED_MIN = 260
UNSTABLE_MAX = 0.02
"""Share of the scenarios whose outcome differs between runs of Apache Kafka."""

pytestmark = pytest.mark.timeout(600)


def replay_defect(defect: str, *names: str) -> Report:
    """Run scenarios whose names begin like this on a broker with a defect."""
    scenarios = [scenario for scenario in library.all_scenarios(library.home()) if scenario.name.startswith(names)]
    return replay(scenarios, command=(sys.executable, BROKER, defect))


@watches_calls
def test_a_changed_error_code_is_found() -> None:
    report = replay_defect("code", "group_of_two/")
    assert {(each.api, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("Heartbeat", "error_code", 22, 27)
    }
    assert any(row.different for row in card.rows(report) if row.api == "Heartbeat")


def test_an_early_answer_is_found() -> None:
    report = replay_defect("early", "initial_delay/")
    assert {(each.step, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("1", "(during)", "", "3")
    }


def test_a_delayed_answer_is_found_in_repeated_runs() -> None:
    report = replay_defect("late", "group_of_two/")
    assert {(each.step, each.field, each.ours, each.theirs) for each in report.differences} == {
        ("8", "(during)", "10", "9")
    }
    assert min(report.repeated[each.scenario] for each in report.differences) >= RUNS_IN_TIME - 1


@watches_calls
def test_a_broker_that_dies_is_one_finding_and_is_restarted() -> None:
    report = replay_defect("mortal", "heartbeat_refused/4", "group_of_two/", "leave_group/0")
    died = [each for each in report.differences if each.field == "(broker)"]
    assert [(each.scenario, each.ours, each.theirs) for each in died] == [("heartbeat_refused/4", "died", "lived")]
    assert report.differences == died
    assert len(report.comparisons) > 5


def test_scenarios_that_change_shared_state_run_alone() -> None:
    known = [scenario for scenario in library.all_scenarios(library.home()) if scenario.alone]
    assert known
    others = [scenario for scenario in library.all_scenarios(library.home()) if scenario.script == "describe_states"]
    assert replay([*known, *others, *known]).differences == []


def test_the_recording_knows_every_scenario() -> None:
    home = library.home()
    recording = load(library.recording_path())
    scenarios = {scenario.name: scenario for scenario in library.all_scenarios(home)}
    assert recording.missing(scenarios) == []
    assert sorted({*recording.outcomes, *recording.unstable} - scenarios.keys()) == []
    assert recording.settings == library.SETTINGS
    assert len(recording.unstable) <= UNSTABLE_MAX * len(scenarios)
    scripts = {name.split("/")[0] for name in recording.outcomes}
    assert len([name for name in scripts if not name.startswith("generated-")]) >= SCRIPTS_MIN
    assert len([name for name in recording.outcomes if name.startswith("generated-")]) >= GENERATED_MIN
