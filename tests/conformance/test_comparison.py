"""Every kind of difference is found and named; what is meant to be is counted apart."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kohort.model.errors import ConfigError
from kohort_lab.conformance import card
from kohort_lab.conformance.compare import Comparison, Difference, compare
from kohort_lab.conformance.comparison_run import Report
from kohort_lab.conformance.deliberate import Deliberate, unused
from kohort_lab.conformance.library import deliberate_differences, home
from kohort_lab.conformance.outcome import Outcome, StepOutcome
from kohort_lab.conformance.recording import Recording, load, save
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.script import Step

SCENARIO = Scenario(
    name="test/0",
    about="x",
    steps=(Step(label="1", send="JoinGroup"),),
    topics={},
    versions={"JoinGroup": 5},
    values={},
)
ANSWER = {"error_code": 0, "members": [{"member_id": "<uuid 1>"}]}
THEIRS = StepOutcome(api="JoinGroup", version=5, answer=ANSWER, elapsed_ms=100)


def outcome(records: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    return Outcome(steps={"1": msgspec.structs.replace(THEIRS, **changes)}, records=records or {})


def fields(ours: Outcome, theirs: Outcome | None = None) -> list[tuple[str, Any, Any]]:
    found = compare(SCENARIO, ours, theirs or outcome())
    return [(each.field, each.ours, each.theirs) for each in found.differences]


def test_alike() -> None:
    found = compare(SCENARIO, outcome(), outcome())
    assert found.differences == ()
    assert found.answers == [("JoinGroup", 5, True)]
    assert found.compared > 2


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"answer": {**ANSWER, "error_code": 25}}, ("error_code", 25, 0)),
        ({"answer": {"error_code": 0, "members": []}}, ("members.0", "(absent)", {"member_id": "<uuid 1>"})),
        ({"answer": {**ANSWER, "error_code": False}}, ("error_code", False, 0)),
        ({"answer": {**ANSWER, "more": 1}}, ("more", 1, "(absent)")),
        ({"answer": None, "trouble": "closed"}, ("(trouble)", "closed", "")),
        ({"during": "3"}, ("(during)", "3", "")),
        ({"order": ["2", "1"]}, ("(order)", ["2", "1"], [])),
        ({"elapsed_ms": 1_601}, ("(elapsed_ms)", 1_601, 100)),
    ],
)
def test_differences_of_an_answer(changes: dict[str, Any], difference: tuple[str, Any, Any]) -> None:
    assert fields(outcome(**changes)) == [difference]


@pytest.mark.parametrize(
    ("ours", "theirs", "answered"),
    [("", "", "1"), ("2", "", "2"), ("", "3", "3"), ("3", "2", "3"), ("never", "2", "never")],
)
def test_a_difference_knows_the_step_of_the_later_answer(ours: str, theirs: str, answered: str) -> None:
    steps = tuple(Step(label=label, send="JoinGroup") for label in "123")
    scenario = msgspec.structs.replace(SCENARIO, steps=steps)
    rest = {"2": StepOutcome(), "3": StepOutcome()}
    mine = Outcome(steps={"1": msgspec.structs.replace(THEIRS, during=ours, answer={"error_code": 9}), **rest})
    other = Outcome(steps={"1": msgspec.structs.replace(THEIRS, during=theirs), **rest})
    assert {each.answered for each in compare(scenario, mine, other).differences} == {answered}


@pytest.mark.parametrize(("elapsed_ms", "count"), [(1_599, 0), (1_600, 0), (1_601, 1)])
def test_times_have_a_tolerance(elapsed_ms: int, count: int) -> None:
    assert len(fields(outcome(elapsed_ms=elapsed_ms))) == count


def test_records_that_a_scenario_left() -> None:
    record = {"record": "group tombstone"}
    assert fields(outcome({"@g": [record]})) == [("@g", [record], "(absent)")]


def test_an_api_that_is_not_served_is_no_difference() -> None:
    def versions(*served: tuple[int, int]) -> Outcome:
        keys = [{"api_key": key, "min_version": 0, "max_version": newest} for key, newest in served]
        return outcome(api="ApiVersions", answer={"error_code": 0, "api_keys": keys})

    assert fields(versions((3, 13)), versions((3, 13), (24, 5))) == []
    assert fields(versions((3, 12)), versions((3, 13), (24, 5))) == [("api_keys.0.max_version", 12, 13)]


def test_what_is_not_supported_is_not_compared() -> None:
    found = compare(SCENARIO, Outcome(unsupported="JoinGroup v5"), outcome())
    assert (found.unsupported, found.differences, found.compared) == ("JoinGroup v5", (), 0)


def test_a_recording_older_than_its_script_is_refused() -> None:
    with pytest.raises(ConfigError, match="make conformance-record"):
        compare(SCENARIO, outcome(), Outcome(steps={"1": THEIRS, "2": THEIRS}))


def rule(scenario: str = "test/0", step: str = "1", field: str = "error_code") -> Deliberate:
    return Deliberate(reason="because", scenario=scenario, step=step, field=field)


def test_deliberate_differences_count_apart() -> None:
    ours = outcome(answer={"error_code": 25, "members": []})
    found = compare(SCENARIO, ours, outcome(), [rule()])
    assert [(each.field, each.reason) for each in found.differences] == [("error_code", "because"), ("members.0", "")]
    assert found.answers == [("JoinGroup", 5, False)]


@pytest.mark.parametrize(
    ("scenario", "step", "field", "covers"),
    [
        ("test/0", "1", "members.0.member_id", True),
        ("test/*", "1", "members.0.member_id", True),
        ("test/*", "1", "members.*.member_id", True),
        ("tes", "1", "members.0.member_id", False),
        ("test", "1", "members.0.member_id", False),
        ("test/1", "1", "members.0.member_id", False),
        ("test/0", "2", "members.0.member_id", False),
        ("test/0", "1", "members", False),
        ("test/0", "1", "members.*", False),
        ("test/0", "1", "*", False),
    ],
)
def test_a_rule_names_scenario_step_and_field(scenario: str, step: str, field: str, covers: bool) -> None:
    found = Difference(
        scenario="test/0", step="1", api="JoinGroup", version=5, field="members.0.member_id", ours=1, theirs=2
    )
    assert rule(scenario, step, field).covers(found) is covers


@pytest.mark.parametrize("missing", ["reason", "scenario", "step", "field"])
def test_a_rule_without_one_of_them_is_refused(missing: str) -> None:
    complete = {"reason": "because", "scenario": "test/0", "step": "1", "field": "error_code"}
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.convert({key: value for key, value in complete.items() if key != missing}, Deliberate)


WRONG = outcome(answer={**ANSWER, "error_code": 25})


@pytest.mark.parametrize(
    ("rules", "ours", "known", "found"),
    [
        ([rule()], WRONG, ["test/0"], []),
        ([rule()], outcome(), ["test/0"], [rule()]),
        ([rule(), rule(step="2")], WRONG, ["test/0"], [rule(step="2")]),
        # A partial run says nothing about a rule for more scenarios, and neither does a broker without the API.
        ([rule("test/*")], outcome(), ["test/0", "test/1"], []),
        ([rule("other/*")], outcome(), ["test/0", "other/0"], []),
        ([rule()], Outcome(unsupported="JoinGroup v5"), ["test/0"], []),
        # A rule for a scenario that does not exist is unused in any run.
        ([rule("gone/*")], outcome(), ["test/0"], [rule("gone/*")]),
    ],
)
def test_rules_without_a_difference(
    rules: list[Deliberate], ours: Outcome, known: list[str], found: list[Deliberate]
) -> None:
    assert unused(rules, [compare(SCENARIO, ours, outcome(), rules)], known) == found


def test_reasons_are_given() -> None:
    assert all(len(each.reason) > 20 for each in deliberate_differences(home()))


def report(*comparisons: Comparison) -> Report:
    return Report(broker="here<>", reference="there", versions={}, comparisons=list(comparisons), elapsed_s=1.0)


def test_the_card() -> None:
    wrong = compare(SCENARIO, outcome(answer={**ANSWER, "error_code": 25}), outcome())
    found = report(
        compare(SCENARIO, outcome(), outcome()),
        wrong,
        compare(SCENARIO, Outcome(unsupported="JoinGroup v9"), outcome()),
    )
    assert [row.as_dict() for row in card.rows(found)] == [
        {"api": "JoinGroup", "version": 5, "answers": 2, "same": 1, "different": 1, "not_served": 0},
        {"api": "JoinGroup", "version": 9, "answers": 0, "same": 0, "different": 0, "not_served": 1},
    ]
    assert card.summary(found).startswith("2 scenarios, ")
    page = card.html(found)
    assert "1/2" in page
    assert "here&lt;&gt;" in page
    assert "prefers-color-scheme: dark" in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_recording_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    recording = Recording(broker="b", settings={"a": "1"}, unstable=["c"], outcomes={"z": outcome(), "a": outcome()})
    save(recording, path)
    first = path.read_bytes()
    assert load(path) == recording
    assert recording.missing({"z": 0, "c": 0, "new": 0}) == ["new"]
    save(msgspec.structs.replace(recording, outcomes=dict(reversed(recording.outcomes.items()))), path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\x1f\x8b\x08\x00"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.json.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="x\\.json\\.gz"):
        load(path)
