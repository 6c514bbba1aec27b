"""
The differences between two outcomes of one scenario, field by field.

Times compare with a tolerance: a time of the clock is `<now>` on both sides (canon.py), and the time that an answer took counts
if the two differ by more than `ELAPSED_TOLERANCE_MS`. An API that only one side serves is no difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kohort.model.errors import ConfigError
from kohort_lab.conformance.brokers.coordinator_log import UNREADABLE
from kohort_lab.conformance.outcome import Outcome, StepOutcome
from kohort_lab.conformance.scenarios.scenario import Scenario

ELAPSED_TOLERANCE_MS = 1_500

WAITING = frozenset({"JoinGroup", "SyncGroup", "Fetch"})
"""The APIs that may wait before they answer. The time that the other APIs take is a matter of benchmarks."""

TIMING = frozenset({"(during)", "(order)", "(elapsed_ms)"})
"""The fields of a difference that say when an answer came, and not what it contains."""

RECORDS = "records"
"""In place of a step: the records in `__consumer_offsets`."""

TRANSACTIONS = "transactions"
"""In place of a step: the records in `__transaction_state`."""

_ABSENT = "(absent)"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        step: the label of a step; `RECORDS` or `TRANSACTIONS` for the records of a coordinator.
        api, version: of the answer.
        field: the path of the field in it; in parentheses when the outcome itself differs.
        reason: why the difference is meant to be; empty if it is not.
        answered: the step during which the later of the two answers came.
    """

    scenario: str
    step: str
    api: str
    version: int
    field: str
    ours: Any
    theirs: Any
    reason: str = ""
    answered: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Step and field."""
        return self.step, self.field

    def __str__(self) -> str:
        answer = f"{self.api} v{self.version} " if self.api else ""
        field = self.field or "outcome"
        return f"{self.scenario}, step {self.step}: {answer}{field}: ours {self.ours!r}, theirs {self.theirs!r}"


class Rule(Protocol):
    """A rule for differences that are meant to be; `Deliberate` implements it."""

    @property
    def reason(self) -> str: ...
    def covers(self, difference: Difference, /) -> bool: ...


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """
    The result for one scenario.

    Attributes:
        compared: number of values compared.
        unsupported: an API and version that a side lacks, so that the scenario was not run there.
        asked: steps with an answer: label, API, version.
    """

    scenario: str
    compared: int
    differences: tuple[Difference, ...] = ()
    unsupported: str = ""
    asked: tuple[tuple[str, str, int], ...] = ()

    @property
    def answers(self) -> list[tuple[str, int, bool]]:
        """API, version, and whether the answer is the same or differs on purpose; by step."""
        different = {each.step for each in self.differences if not each.reason}
        return [(api, version, step not in different) for step, api, version in self.asked]


def compare(scenario: Scenario, ours: Outcome, theirs: Outcome, deliberate: Sequence[Rule] = ()) -> Comparison:
    """
    Compare every step's outcome, then the records that the scenario left in the logs of the coordinators.

    Raises:
        ConfigError: the two have different steps, because one is a recording of an older script.
    """
    name = scenario.name
    if ours.died or theirs.died:
        died = Difference(
            scenario=name, step="any", api="", version=-1, field="(broker)", ours=_life(ours), theirs=_life(theirs)
        )
        return Comparison(scenario=name, compared=1, differences=(died,) if ours.died != theirs.died else ())
    if ours.unsupported or theirs.unsupported:
        return Comparison(scenario=name, compared=0, unsupported=ours.unsupported or f"(oracle) {theirs.unsupported}")
    if not ours.steps.keys() == theirs.steps.keys() == {step.label for step in scenario.steps}:
        raise ConfigError(f"the recording of {name} is older than its script; refresh it: make conformance-record")
    counter = _Counter()
    differences: list[Difference] = []
    asked = []
    for step in scenario.steps:
        our, their = ours.steps[step.label], theirs.steps[step.label]
        api, version = their.api or our.api, max(our.version, their.version)
        differences += [
            Difference(
                scenario=name,
                step=step.label,
                api=api,
                version=version,
                field=field,
                ours=mine,
                theirs=other,
                answered=_later(scenario, step.label, our.during, their.during),
            )
            for field, mine, other in _step_differences(our, their, counter)
        ]
        if api:
            asked.append((step.label, api, version))
    for place, mine, other in (
        (RECORDS, ours.records, theirs.records),
        (TRANSACTIONS, ours.transactions, theirs.transactions),
    ):
        differences += [
            Difference(scenario=name, step=place, api="", version=-1, field=field, ours=our, theirs=their)
            for field, our, their in _record_differences(mine, other, counter)
        ]
    judged = tuple(msgspec.structs.replace(each, reason=_reason(each, deliberate)) for each in differences)
    return Comparison(scenario=name, compared=counter.count, differences=judged, asked=tuple(asked))


def _record_differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], counter: "_Counter"
) -> Iterator[tuple[str, Any, Any]]:
    yield from _differences(ours, theirs, "", counter)
    if UNREADABLE in ours and UNREADABLE in theirs:
        # A record that cannot be read is an error, even if both brokers wrote the same.
        yield UNREADABLE, ours[UNREADABLE], theirs[UNREADABLE]


def _later(scenario: Scenario, label: str, *during: str) -> str:
    """The last of some steps. An answer that never came is looked for until the last step."""
    labels = [step.label for step in scenario.steps]
    return max(
        (each or label for each in during), key=lambda each: labels.index(each) if each in labels else len(labels)
    )


def _life(outcome: Outcome) -> str:
    return "died" if outcome.died else "lived"


def _reason(difference: Difference, deliberate: Sequence[Rule]) -> str:
    return next((each.reason for each in deliberate if each.covers(difference)), "")


class _Counter:
    """The number of values compared."""

    def __init__(self) -> None:
        self.count = 0


_Found = tuple[str, Any, Any]


def _step_differences(ours: StepOutcome, theirs: StepOutcome, counter: _Counter) -> Iterator[_Found]:
    for name in ("trouble", "during", "order", "version"):
        counter.count += 1
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            yield f"({name})", mine, other
    if theirs.api in WAITING and abs(ours.elapsed_ms - theirs.elapsed_ms) > ELAPSED_TOLERANCE_MS:
        yield "(elapsed_ms)", ours.elapsed_ms, theirs.elapsed_ms
    if ours.answer is not None and theirs.answer is not None:
        if theirs.api == "ApiVersions":
            yield from _served_differences(ours.answer, theirs.answer, counter)
        else:
            yield from _differences(ours.answer, theirs.answer, "", counter)


_LISTS_OF_SERVED = {"api_keys": "api_key", "supported_features": "name", "finalized_features": "name"}


def _served_differences(ours: dict[str, Any], theirs: dict[str, Any], counter: _Counter) -> Iterator[_Found]:
    """Differences of ApiVersions: an API that one side lacks is none, a version of an API that both serve is one."""
    mine, other = dict(ours), dict(theirs)
    for name, key in _LISTS_OF_SERVED.items():
        if name in mine and name in other:
            both = {each[key] for each in mine[name]} & {each[key] for each in other[name]}
            mine[name] = [each for each in mine[name] if each[key] in both]
            other[name] = [each for each in other[name] if each[key] in both]
    yield from _differences(mine, other, "", counter)


def _differences(ours: Any, theirs: Any, path: str, counter: _Counter) -> Iterator[_Found]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*theirs, *(each for each in ours if each not in theirs)]:
            yield from _differences(
                ours.get(key, _ABSENT), theirs.get(key, _ABSENT), f"{path}.{key}" if path else key, counter
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        for number in range(max(len(ours), len(theirs))):
            mine = ours[number] if number < len(ours) else _ABSENT
            other = theirs[number] if number < len(theirs) else _ABSENT
            yield from _differences(mine, other, f"{path}.{number}", counter)
    else:
        counter.count += 1
        if ours != theirs or type(ours) is not type(theirs):
            yield path, ours, theirs
