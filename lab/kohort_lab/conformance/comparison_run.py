"""A run of scenarios on one broker, compared with a reference; doubtful scenarios are run again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from kohort_lab.conformance.brokers.cluster import CONCURRENT_SCENARIOS, Cluster, Progress
from kohort_lab.conformance.compare import Comparison, Difference, compare
from kohort_lab.conformance.deliberate import Deliberate
from kohort_lab.conformance.lateness import LATE_MS, is_doubtful, is_late
from kohort_lab.conformance.outcome import Outcome
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.scenario_run import Lateness

RUNS_IN_TIME = 4
"""A doubtful difference counts if it shows in this many runs in which no step was late."""
RUNS_MAX = 12
"""A doubtful difference counts if it shows in all of this many runs, however late the machine was."""
CONCURRENT_AGAIN = 8
AGAIN_MAX = 100
"""If more scenarios than this have differences in time alone, the broker's timing differs by design: they are not run again."""
_CONCURRENT = (CONCURRENT_AGAIN, CONCURRENT_AGAIN, CONCURRENT_AGAIN, 4, 4, 2, 2, 1)
"""The number of concurrent scenarios in the second run, the third run, and so on."""
_CALM_TIMEOUT_S = 5.0
_CALM_STEP_S = 0.02
_CALM_STEPS = 25


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        broker, reference: the two sides.
        versions: oldest and newest version that the broker serves, by API.
        comparisons: one per scenario.
        elapsed_s: duration of the run.
        repeated: by scenario, the number of runs after the first one.
    """

    broker: str
    reference: str
    versions: dict[str, tuple[int, int]]
    comparisons: list[Comparison]
    elapsed_s: float
    repeated: dict[str, int] = {}

    @property
    def differences(self) -> list[Difference]:
        """The differences that are not deliberate."""
        return [each for comparison in self.comparisons for each in comparison.differences if not each.reason]

    @property
    def deliberate(self) -> list[Difference]:
        return [each for comparison in self.comparisons for each in comparison.differences if each.reason]

    @property
    def compared(self) -> int:
        """Number of values compared."""
        return sum(each.compared for each in self.comparisons)

    @property
    def unsupported(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.unsupported]


def joined(reports: Sequence[Report]) -> Report:
    """One report of runs on several brokers."""
    first = reports[0]
    return Report(
        broker=first.broker,
        reference=first.reference,
        versions=first.versions,
        comparisons=[each for report in reports for each in report.comparisons],
        elapsed_s=round(sum(report.elapsed_s for report in reports), 1),
        repeated={name: runs for report in reports for name, runs in report.repeated.items()},
    )


class Target(Protocol):
    """
    A side that runs scenarios: a `Cluster`, or `Recorded`.

    Attributes:
        lateness_ms: by scenario and step, the lateness of the latest run.
    """

    @property
    def lateness_ms(self) -> Mapping[str, Lateness]: ...

    async def run(self, scenarios: Sequence[Scenario], *, concurrent: int) -> Mapping[str, Outcome]: ...


class Recorded:
    """A recording as a side: every run has the recorded outcomes."""

    def __init__(self, outcomes: Mapping[str, Outcome]) -> None:
        self._outcomes = outcomes
        self.lateness_ms: Mapping[str, Lateness] = {}

    async def run(self, scenarios: Sequence[Scenario], *, concurrent: int) -> Mapping[str, Outcome]:  # noqa: ARG002
        return {scenario.name: self._outcomes[scenario.name] for scenario in scenarios}


async def compare_brokers(
    ours: Cluster,
    theirs: Target,
    scenarios: Sequence[Scenario],
    *,
    broker: str,
    reference: str,
    deliberate: Sequence[Deliberate] = (),
    concurrent: int = CONCURRENT_SCENARIOS,
    concurrent_reference: int = CONCURRENT_SCENARIOS,
    progress: Progress | None = None,
) -> Report:
    """
    Run all scenarios on both sides and compare.

    A scenario with a doubtful difference (lateness.py) is run again, with fewer scenarios beside it and after
    the machine has come to rest, until the difference is absent in one run or counts (`RUNS_IN_TIME`, `RUNS_MAX`). Any other
    difference counts at once and stays.

    Raises:
        ConfigError: a broker does not answer any more.
        ScriptError: a scenario has a request that cannot be encoded.
    """
    began_s = asyncio.get_running_loop().time()
    verdicts = {scenario.name: Verdict(scenario) for scenario in scenarios}
    policy = RetryPolicy()
    waiting: Sequence[Scenario] = scenarios
    for number in range(RUNS_MAX):
        if number:
            await calm()
            concurrent = concurrent_reference = _CONCURRENT[min(number, len(_CONCURRENT)) - 1]
        other = await theirs.run(waiting, concurrent=concurrent_reference)
        own = await ours.run(waiting, concurrent=concurrent, progress=None if number else progress)
        for scenario in waiting:
            name = scenario.name
            lateness_ms = _worse(ours.lateness_ms.get(name, {}), theirs.lateness_ms.get(name, {}))
            verdicts[name].add(compare(scenario, own[name], other[name], deliberate), lateness_ms)
        waiting = policy.again([verdicts[scenario.name] for scenario in waiting])
        if not waiting:
            break
    return Report(
        broker=broker,
        reference=reference,
        versions=ours.versions,
        comparisons=[verdicts[scenario.name].comparison for scenario in scenarios],
        elapsed_s=round(asyncio.get_running_loop().time() - began_s, 1),
        repeated={name: verdict.runs - 1 for name, verdict in verdicts.items() if verdict.runs > 1},
    )


def _worse(ours: Lateness, theirs: Lateness) -> dict[str, int]:
    return {step: max(ours.get(step, 0), theirs.get(step, 0)) for step in (*ours, *theirs)}


class Verdict:
    """
    The differences of one scenario after some runs of it.

    Attributes:
        runs: number of runs.
        runs_in_time: number of runs in which no step was late.
        was_late: whether a step of the latest run was late.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.runs = 0
        self.runs_in_time = 0
        self.was_late = False
        self._comparison = Comparison(scenario=scenario.name, compared=0)
        self._certain: dict[tuple[str, str], Difference] = {}
        self._doubtful: dict[tuple[str, str], Difference] = {}

    def add(self, comparison: Comparison, lateness_ms: Mapping[str, int]) -> None:
        """Add a run. A doubtful difference stays only if every run before had it, too."""
        doubtful = {
            each.place: each for each in comparison.differences if is_doubtful(self.scenario, each, lateness_ms)
        }
        self._certain |= {each.place: each for each in comparison.differences if each.place not in doubtful}
        if self.runs:
            doubtful = {place: each for place, each in doubtful.items() if place in self._doubtful}
        self._doubtful = doubtful
        self._comparison = comparison
        self.was_late = is_late(lateness_ms)
        self.runs += 1
        self.runs_in_time += not self.was_late

    @property
    def is_doubtful(self) -> bool:
        return bool(self._doubtful)

    @property
    def comparison(self) -> Comparison:
        """The latest comparison with the differences that count."""
        found = {**self._doubtful, **self._certain}
        return msgspec.structs.replace(self._comparison, differences=tuple(found.values()))


class RetryPolicy:
    """Decides after each run which scenarios are run again."""

    def __init__(self) -> None:
        self._runs = 0

    def again(self, verdicts: Sequence[Verdict]) -> Sequence[Scenario]:
        """
        The scenarios to run again.

        Args:
            verdicts: of the scenarios of the latest run.
        """
        self._runs += 1
        doubtful = [each for each in verdicts if each.is_doubtful]
        late = [each.scenario for each in doubtful if each.was_late]
        in_time = [each.scenario for each in doubtful if not each.was_late and each.runs_in_time < RUNS_IN_TIME]
        if self._runs >= RUNS_IN_TIME:
            late = late[:AGAIN_MAX]
        return [*late, *(in_time if len(in_time) <= AGAIN_MAX else ())]


async def calm(timeout_s: float = _CALM_TIMEOUT_S) -> None:
    """Wait until the machine keeps time for half a second, or until the timeout."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    in_time = 0
    while in_time < _CALM_STEPS and loop.time() < deadline_s:
        began_s = loop.time()
        await asyncio.sleep(_CALM_STEP_S)
        in_time = in_time + 1 if 1000 * (loop.time() - began_s - _CALM_STEP_S) < LATE_MS / 2 else 0
