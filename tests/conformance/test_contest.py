"""When a story is told again, what a difference is then, and what is counted."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from kohort.conformance import coverage
from kohort.conformance.cluster import Cluster
from kohort.conformance.compare import Comparison, Difference
from kohort.conformance.comparison_run import (
    AGAIN_MAX,
    STRAIN_MS,
    TELLINGS,
    TELLINGS_MAX,
    Recorded,
    Report,
    RetryPolicy,
    calm,
    compare_brokers,
    is_doubtful,
)
from kohort.conformance.outcome import Outcome, StepOutcome
from kohort.conformance.restarting import CommonRestart
from kohort.conformance.scenario import Scenario
from kohort.conformance.script import Step


def comparison(*fields: str, reason: str = "") -> Comparison:
    differences = tuple(
        Difference(story="s/0", step="1", api="SyncGroup", version=0, field=field, ours=1, theirs=2, reason=reason)
        for field in fields
    )
    return Comparison(story="s/0", compared=9, differences=differences)


@pytest.mark.parametrize(
    ("fields", "strain_ms", "doubtful"),
    [
        ((), 9_999, False),
        (("error_code",), 0, False),
        (("error_code",), STRAIN_MS, False),
        (("error_code",), STRAIN_MS + 1, True),
        (("(during)",), 0, True),
        (("(order)", "(elapsed_ms)"), 0, True),
        (("(during)", "error_code"), STRAIN_MS, True),
        (("(trouble)",), STRAIN_MS, False),
        (("(broker)",), 9_999, False),
    ],
)
def test_times_are_doubted_and_everything_when_the_machine_was_late(
    fields: tuple[str, ...], strain_ms: int, doubtful: bool
) -> None:
    assert is_doubtful(comparison(*fields), strain_ms) is doubtful


def test_what_is_meant_to_differ_is_not_told_again() -> None:
    assert not is_doubtful(comparison("(during)", reason="because"), 9_999)


def tellings(strains_ms: Sequence[int], *fields: str, count: int = 1) -> list[int]:
    """How many of so many stories are told again after each telling, where every one shows the same differences."""
    stories = [
        Scenario(name=f"s/{number}", about="", steps=(), topics={}, versions={}, values={}) for number in range(count)
    ]
    found = {story.name: comparison(*fields) for story in stories}
    doubts, waiting, again = RetryPolicy(), stories, []
    for strain_ms in strains_ms:
        waiting = list(doubts.among(waiting, found, dict.fromkeys(found, strain_ms)))
        again.append(len(waiting))
    return again


LATE_MS = STRAIN_MS + 1


# fmt: off
TOLD: list[tuple[list[int], list[str], int, list[int]]] = [
    # What is not about time counts at once, if the story kept its pace; if it never does, it is told to the end.
    ([0],                            ["error_code"], 1,             [0]),
    ([LATE_MS, LATE_MS, 0],          ["error_code"], 1,             [1, 1, 0]),
    ([LATE_MS] * TELLINGS_MAX,       ["error_code"], 1,             [1] * TELLINGS_MAX),
    # Time alone has to be off in so many tellings at the story's pace; those that were late are none.
    ([0] * TELLINGS,                 ["(during)"],   1,             [*[1] * (TELLINGS - 1), 0]),
    ([LATE_MS] * 3 + [0] * TELLINGS, ["(during)"],   1,             [*[1] * (TELLINGS + 2), 0]),
    # A broker that keeps other times by design is not told everything again; a machine that was late is.
    ([0],                            ["(during)"],   AGAIN_MAX + 1, [0]),
    ([LATE_MS, 0],                   ["(during)"],   AGAIN_MAX + 1, [AGAIN_MAX + 1, 0]),
    ([LATE_MS] * TELLINGS,           ["(during)"],   AGAIN_MAX + 1, [*[AGAIN_MAX + 1] * (TELLINGS - 1), AGAIN_MAX]),
]
# fmt: on


@pytest.mark.parametrize(("strains_ms", "fields", "count", "again"), TOLD)
def test_how_often_a_story_is_told_until_a_difference_counts(
    strains_ms: list[int], fields: list[str], count: int, again: list[int]
) -> None:
    assert tellings(strains_ms, *fields, count=count) == again


class Teller:
    """A side of which it is known what it says, and how late it is, each time that it is asked."""

    def __init__(self, *tellings: tuple[int, StepOutcome]) -> None:
        self.versions: dict[str, tuple[int, int]] = {}
        self.strains_ms: dict[str, int] = {}
        self._tellings = iter(tellings)

    async def tell(self, stories: Sequence[Scenario], **_: object) -> dict[str, Outcome]:
        strain_ms, answered = next(self._tellings)
        self.strains_ms = {story.name: strain_ms for story in stories}
        return {story.name: Outcome(steps={"1": answered}) for story in stories}


LATE = StepOutcome(api="Heartbeat", version=0, answer={"error_code": 0}, during="3")
WRONG = StepOutcome(api="Heartbeat", version=0, answer={"error_code": 7})
LATE_AND_WRONG = StepOutcome(api="Heartbeat", version=0, answer={"error_code": 7}, during="3")
RIGHT = StepOutcome(api="Heartbeat", version=0, answer={"error_code": 0})


def contested(*tellings: tuple[int, StepOutcome]) -> Report:
    story = Scenario(
        name="s/0",
        about="",
        steps=(Step(label="1", send="Heartbeat"),),
        topics={},
        versions={"Heartbeat": 0},
        values={},
    )
    ours, theirs = Teller(*tellings), Recorded({"s/0": Outcome(steps={"1": RIGHT})})
    return asyncio.run(compare_brokers(cast("Cluster", ours), theirs, [story], broker="b", reference="r"))


@pytest.mark.parametrize(
    ("tellings", "fields"),
    [
        ([(LATE_MS, LATE), (0, RIGHT)], []),
        ([(LATE_MS, LATE), (LATE_MS, WRONG)], []),
        ([(LATE_MS, LATE_AND_WRONG), (LATE_MS, LATE), (LATE_MS, WRONG)], []),
        ([(LATE_MS, LATE), (0, WRONG)], ["error_code"]),
    ],
)
def test_what_differs_on_a_late_machine_has_to_differ_every_time(
    tellings: list[tuple[int, StepOutcome]], fields: list[str]
) -> None:
    report = contested(*tellings)
    assert [each.field for each in report.differences] == fields
    assert report.told_again == {"s/0": len(tellings) - 1}


@pytest.mark.parametrize(
    ("tellings", "fields"),
    [
        ([(0, LATE_AND_WRONG), (0, WRONG)], ["error_code"]),
        ([(0, LATE_AND_WRONG), (0, RIGHT)], ["error_code"]),
        ([(0, LATE_AND_WRONG), (LATE_MS, LATE), (0, RIGHT)], ["error_code"]),
        ([(0, LATE_AND_WRONG)] * TELLINGS, ["(during)", "error_code"]),
    ],
)
def test_a_story_is_told_again_for_its_times_and_what_else_was_found_stays(
    tellings: list[tuple[int, StepOutcome]], fields: list[str]
) -> None:
    report = contested(*tellings)
    assert [each.field for each in report.differences] == fields
    assert not any(same for _, _, same in report.comparisons[0].answers)
    assert report.told_again == {"s/0": len(tellings) - 1}


def test_a_machine_that_does_not_come_to_rest_is_not_waited_for_longer_than_that() -> None:
    asyncio.run(calm(timeout_s=0.0))


def test_a_restart_waits_for_every_story_and_happens_once() -> None:
    happened: list[str] = []

    async def restart() -> None:
        happened.append("restart")

    async def story(common: CommonRestart, name: str, wants: bool) -> None:
        if wants:
            await common.join()
        happened.append(name)
        common.leave()

    async def run() -> None:
        common = CommonRestart(restart, 3)
        await asyncio.gather(story(common, "a", True), story(common, "b", False), story(common, "c", True))

    asyncio.run(run())
    assert happened == ["b", "restart", "a", "c"]


def test_a_restart_that_fails_fails_the_stories() -> None:
    async def restart() -> None:
        raise OSError("gone")

    async def run() -> list[object]:
        common = CommonRestart(restart, 2)
        return list(await asyncio.gather(common.join(), common.join(), return_exceptions=True))

    assert [str(each) for each in asyncio.run(run())] == ["gone", "gone"]


def test_scripts_are_counted_once_however_often_they_are_told() -> None:
    def told(story: str, *apis: str, same: bool = True) -> Comparison:
        return Comparison(story=story, compared=1, answers=tuple((api, 0, same) for api in apis))

    report = Report(
        broker="b",
        reference="r",
        versions={},
        elapsed_s=1.0,
        comparisons=[
            told("one/0", "JoinGroup", "SyncGroup"),
            told("one/1", "JoinGroup", same=False),
            told("generated-group/0", "JoinGroup"),
            told("generated-group/2", "Produce"),
        ],
    )
    found = {each.name: each for each in coverage.by_api(report)}
    assert list(found) == ["Produce", "JoinGroup", "SyncGroup"]
    joins = found["JoinGroup"]
    assert (joins.scripts, joins.written, joins.generated, joins.stories) == (2, 1, 1, 3)
    assert (joins.answers, joins.different) == (3, 1)
    (groups, records) = coverage.by_subject(report)
    assert coverage.sentence(groups) == (
        "classic groups and offsets: 2 scripts (1 written, 1 generated), 3 stories, 4 answers compared, 1 different"
    )
    assert records.scripts == 1
