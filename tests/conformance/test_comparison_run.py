"""Which differences are doubtful, how often a doubtful scenario is run again, and which differences count then."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from kohort_lab.conformance import coverage
from kohort_lab.conformance.brokers.cluster import Cluster
from kohort_lab.conformance.compare import RECORDS, TRANSACTIONS, Comparison, Difference
from kohort_lab.conformance.comparison_run import (
    AGAIN_MAX,
    RUNS_IN_TIME,
    RUNS_MAX,
    Recorded,
    Report,
    RetryPolicy,
    Verdict,
    calm,
    compare_brokers,
)
from kohort_lab.conformance.lateness import LATE_MS, is_doubtful
from kohort_lab.conformance.outcome import Outcome, StepOutcome
from kohort_lab.conformance.scenarios.restarting import CommonRestart
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.script import Step

LATE = LATE_MS + 1


def difference(field: str, *, step: str = "2", api: str = "Heartbeat", reason: str = "") -> Difference:
    return Difference(scenario="s/0", step=step, api=api, version=0, field=field, ours=1, theirs=2, reason=reason)


def scenario(*apis: str | tuple[str, dict[str, Any]], name: str = "s/0") -> Scenario:
    """A scenario of requests, each with its fields, with the labels 1, 2, ..."""
    steps = tuple(
        Step(
            label=str(number),
            send=api if isinstance(api, str) else api[0],
            fields={} if isinstance(api, str) else api[1],
        )
        for number, api in enumerate(apis, 1)
    )
    return Scenario(name=name, about="", steps=steps, topics={}, versions={}, values={})


GROUP = scenario("JoinGroup", "Heartbeat", "Metadata")
LOG = scenario(("Produce", {"acks": 1}), "Fetch", "Heartbeat")
FLUSHED_LOG = scenario(("Produce", {"acks": -1}), "Fetch")
LONG_POLL = scenario(("Fetch", {"max_wait_ms": 500}), "Heartbeat")
FETCH = scenario(("Fetch", {"max_wait_ms": 0}))
EXPIRES = scenario(("InitProducerId", {"transaction_timeout_ms": 500}), "EndTxn", "Metadata")
LASTS = scenario(("InitProducerId", {"transaction_timeout_ms": 60_000}), "EndTxn")

# fmt: off
DOUBTFUL: list[tuple[Scenario, str, str, str, dict[str, int], bool]] = [
    # scenario    step     API              field             lateness                doubtful
    # The time of an answer is doubtful on any machine.
    (GROUP,       "2",     "Heartbeat",     "(during)",       {},                     True),
    (GROUP,       "2",     "Heartbeat",     "(order)",        {},                     True),
    (GROUP,       "2",     "SyncGroup",     "(elapsed_ms)",   {"1": LATE},            True),
    # Content is doubtful if a step was late by then...
    (GROUP,       "2",     "Heartbeat",     "error_code",     {},                     False),
    (GROUP,       "2",     "Heartbeat",     "error_code",     {"2": LATE_MS},         False),
    (GROUP,       "2",     "Heartbeat",     "error_code",     {"2": LATE},            True),
    (GROUP,       "2",     "Heartbeat",     "error_code",     {"1": LATE},            True),
    (GROUP,       "2",     "Heartbeat",     "(trouble)",      {"1": LATE},            True),
    # ... but not if only a later step was.
    (GROUP,       "2",     "Heartbeat",     "error_code",     {"3": 9_999},           False),
    (GROUP,       "1",     "JoinGroup",     "error_code",     {"2": 9_999},           False),
    # It is doubtful only if a timer of this scenario can change it.
    (GROUP,       "3",     "Metadata",      "topics.0.name",  {"1": 9_999},           False),
    (GROUP,       RECORDS, "",              "@g.0.record",    {"3": LATE},            True),
    (GROUP,       RECORDS, "",              "@g.0.record",    {},                     False),
    # The records count up to the end of the log at the end of the scenario, which has to be asked in time.
    (GROUP,       RECORDS, "",              "@g.0.record",    {RECORDS: LATE},        True),
    (GROUP,       RECORDS, "",              "@g.0.record",    {RECORDS: LATE_MS},     False),
    (GROUP,       "2",     "Heartbeat",     "error_code",     {RECORDS: 9_999},       False),
    (LOG,         "2",     "Fetch",         "error_code",     {"1": LATE},            True),
    (LOG,         "3",     "Heartbeat",     "error_code",     {"1": 9_999},           False),
    (LOG,         RECORDS, "",              "@g.0.record",    {"1": 9_999},           False),
    (FLUSHED_LOG, "2",     "Fetch",         "error_code",     {"1": 9_999},           False),
    (LONG_POLL,   "1",     "Fetch",         "error_code",     {"1": LATE},            True),
    (LONG_POLL,   "2",     "Heartbeat",     "error_code",     {"1": 9_999},           False),
    (FETCH,       "1",     "Fetch",         "error_code",     {"1": 9_999},           False),
    (EXPIRES,     "2",     "EndTxn",        "error_code",     {"1": LATE},            True),
    (EXPIRES,     "3",     "Metadata",      "topics.0.name",  {"1": 9_999},           False),
    (EXPIRES,     TRANSACTIONS, "",         "@tx.0.record",   {"3": LATE},            True),
    (EXPIRES,     TRANSACTIONS, "",         "@tx.0.record",   {RECORDS: LATE},        True),
    (LASTS,       "2",     "EndTxn",        "error_code",     {"1": 9_999},           False),
    # The end of a broker never is: it was looked for already.
    (GROUP,       "any",   "",              "(broker)",       {"1": 9_999},           False),
]
# fmt: on


@pytest.mark.parametrize(("which", "step", "api", "field", "lateness_ms", "doubtful"), DOUBTFUL)
def test_doubtful_differences(
    which: Scenario, step: str, api: str, field: str, lateness_ms: Mapping[str, int], doubtful: bool
) -> None:
    found = difference(field, step=step, api=api)
    assert is_doubtful(which, found, lateness_ms) is doubtful


@pytest.mark.parametrize(("lateness_ms", "doubtful"), [({"3": LATE}, True), ({"4": LATE}, False), ({}, False)])
def test_a_parked_request_may_be_answered_late(lateness_ms: Mapping[str, int], doubtful: bool) -> None:
    """The steps up to the later of the two answers count, not those up to the request."""
    found = msgspec.structs.replace(difference("error_code", step="1", api="JoinGroup"), answered="3")
    assert is_doubtful(scenario("JoinGroup", "Heartbeat", "Heartbeat", "Heartbeat"), found, lateness_ms) is doubtful


def test_a_deliberate_difference_is_not_doubtful() -> None:
    assert not is_doubtful(GROUP, difference("(during)", reason="because"), {"1": 9_999})


def repeats(late_ms: Sequence[int], *fields: str, count: int = 1) -> list[int]:
    """The number of scenarios that are run again after each run, if every run has the same differences."""
    verdicts = {
        f"s/{number}": Verdict(scenario("JoinGroup", "Heartbeat", name=f"s/{number}")) for number in range(count)
    }
    policy, waiting, again = RetryPolicy(), list(verdicts), []
    for late in late_ms:
        for name in waiting:
            differences = tuple(difference(field) for field in fields)
            verdicts[name].add(Comparison(scenario=name, compared=9, differences=differences), {"1": late})
        waiting = [each.name for each in policy.again([verdicts[name] for name in waiting])]
        again.append(len(waiting))
    return again


# fmt: off
REPEATED: list[tuple[list[int], list[str], int, list[int]]] = [
    # Certain differences count at once. Doubtful content is run again until a run in time, or to the last run.
    ([0],                              ["error_code"], 1,             [0]),
    ([LATE, LATE, 0],                  ["error_code"], 1,             [1, 1, 0]),
    ([LATE] * RUNS_MAX,                ["error_code"], 1,             [1] * RUNS_MAX),
    # A difference in time has to show in so many runs in time; late runs do not count.
    ([0] * RUNS_IN_TIME,               ["(during)"],   1,             [*[1] * (RUNS_IN_TIME - 1), 0]),
    ([LATE] * 3 + [0] * RUNS_IN_TIME,  ["(during)"],   1,             [*[1] * (RUNS_IN_TIME + 2), 0]),
    # A broker with another timing by design is not run again for all scenarios; a late machine is.
    ([0],                              ["(during)"],   AGAIN_MAX + 1, [0]),
    ([LATE, 0],                        ["(during)"],   AGAIN_MAX + 1, [AGAIN_MAX + 1, 0]),
    ([LATE] * RUNS_IN_TIME,            ["(during)"],   AGAIN_MAX + 1, [*[AGAIN_MAX + 1] * (RUNS_IN_TIME - 1), AGAIN_MAX]),
]
# fmt: on


@pytest.mark.parametrize(("late_ms", "fields", "count", "again"), REPEATED)
def test_how_often_a_scenario_is_run_again(late_ms: list[int], fields: list[str], count: int, again: list[int]) -> None:
    assert repeats(late_ms, *fields, count=count) == again


class Side:
    """A side with known outcomes and lateness, one for each run."""

    def __init__(self, *runs: tuple[int, StepOutcome]) -> None:
        self.versions: dict[str, tuple[int, int]] = {}
        self.lateness_ms: dict[str, dict[str, int]] = {}
        self._runs = iter(runs)

    async def run(self, scenarios: Sequence[Scenario], **_: object) -> dict[str, Outcome]:
        late_ms, outcome = next(self._runs)
        self.lateness_ms = {each.name: {"1": late_ms} for each in scenarios}
        return {each.name: Outcome(steps={"1": outcome}) for each in scenarios}


DELAYED = StepOutcome(api="JoinGroup", version=0, answer={"error_code": 0}, during="3")
WRONG = StepOutcome(api="JoinGroup", version=0, answer={"error_code": 7})
DELAYED_AND_WRONG = StepOutcome(api="JoinGroup", version=0, answer={"error_code": 7}, during="3")
RIGHT = StepOutcome(api="JoinGroup", version=0, answer={"error_code": 0})


def report_of(*runs: tuple[int, StepOutcome], api: str = "JoinGroup") -> Report:
    ours, theirs = Side(*runs), Recorded({"s/0": Outcome(steps={"1": RIGHT})})
    return asyncio.run(compare_brokers(cast("Cluster", ours), theirs, [scenario(api)], broker="b", reference="r"))


@pytest.mark.parametrize(
    ("runs", "fields"),
    [
        ([(LATE, DELAYED), (0, RIGHT)], []),
        ([(LATE, DELAYED), (LATE, WRONG)], []),
        ([(LATE, DELAYED_AND_WRONG), (LATE, DELAYED), (LATE, WRONG)], []),
        ([(LATE, DELAYED), (0, WRONG)], ["error_code"]),
    ],
)
def test_a_doubtful_difference_has_to_show_in_every_run(runs: list[tuple[int, StepOutcome]], fields: list[str]) -> None:
    report = report_of(*runs)
    assert [each.field for each in report.differences] == fields
    assert report.repeated == {"s/0": len(runs) - 1}


@pytest.mark.parametrize(
    ("runs", "fields"),
    [
        ([(0, DELAYED_AND_WRONG), (0, WRONG)], ["error_code"]),
        ([(0, DELAYED_AND_WRONG), (0, RIGHT)], ["error_code"]),
        ([(0, DELAYED_AND_WRONG), (LATE, DELAYED), (0, RIGHT)], ["error_code"]),
        ([(0, DELAYED_AND_WRONG)] * RUNS_IN_TIME, ["(during)", "error_code"]),
    ],
)
def test_a_certain_difference_stays_when_the_scenario_is_run_again(
    runs: list[tuple[int, StepOutcome]], fields: list[str]
) -> None:
    report = report_of(*runs)
    assert sorted(each.field for each in report.differences) == fields
    assert not any(same for _, _, same in report.comparisons[0].answers)
    assert report.repeated == {"s/0": len(runs) - 1}


def test_content_without_a_timer_counts_at_once_on_a_late_machine() -> None:
    report = report_of((9_999, WRONG), api="Metadata")
    assert [each.field for each in report.differences] == ["error_code"]
    assert report.repeated == {}


def test_waiting_for_a_calm_machine_ends_at_the_timeout() -> None:
    asyncio.run(calm(timeout_s=0.0))


def test_a_restart_waits_for_every_scenario_and_happens_once() -> None:
    happened: list[str] = []

    async def restart() -> None:
        happened.append("restart")

    async def scenario(common: CommonRestart, name: str, wants: bool) -> None:
        if wants:
            await common.join()
        happened.append(name)
        common.leave()

    async def run() -> None:
        common = CommonRestart(restart, 3)
        await asyncio.gather(scenario(common, "a", True), scenario(common, "b", False), scenario(common, "c", True))

    asyncio.run(run())
    assert happened == ["b", "restart", "a", "c"]


def test_a_restart_that_fails_fails_the_scenarios() -> None:
    async def restart() -> None:
        raise OSError("gone")

    async def run() -> list[object]:
        common = CommonRestart(restart, 2)
        return list(await asyncio.gather(common.join(), common.join(), return_exceptions=True))

    assert [str(each) for each in asyncio.run(run())] == ["gone", "gone"]


def test_a_script_counts_once_for_all_its_scenarios() -> None:
    def compared(scenario: str, *apis: str, same: bool = True) -> Comparison:
        asked = tuple((str(step), api, 0) for step, api in enumerate(apis))
        differences = () if same else (difference("error_code", step="0"),)
        return Comparison(scenario=scenario, compared=1, asked=asked, differences=differences)

    report = Report(
        broker="b",
        reference="r",
        versions={},
        elapsed_s=1.0,
        comparisons=[
            compared("one/0", "JoinGroup", "SyncGroup"),
            compared("one/1", "JoinGroup", same=False),
            compared("generated-group/0", "JoinGroup"),
            compared("generated-group/2", "Produce"),
        ],
    )
    found = {each.name: each for each in coverage.by_api(report)}
    assert list(found) == ["Produce", "JoinGroup", "SyncGroup"]
    joins = found["JoinGroup"]
    assert (joins.scripts, joins.written, joins.generated, joins.scenarios) == (2, 1, 1, 3)
    assert (joins.answers, joins.different) == (3, 1)
    (groups, records) = coverage.by_subject(report)
    assert coverage.sentence(groups) == (
        "classic groups and offsets: 2 scripts (1 written, 1 generated), 3 scenarios, 4 answers compared, 1 different"
    )
    assert records.scripts == 1
